"""How one answer reads: a table for people, records for programs, files by suffix. Every command ends with one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from ffnbench.common.errors import FfnbenchError
from ffnbench.features import Feature, of_features
from ffnbench.report.arrangement import Arrangement
from ffnbench.report.frame import Frame, Row
from ffnbench.report.writers import csv_text, json_text, latex, markdown
from ffnbench.result import Report

FORMATS = ("table", "markdown", "latex", "csv", "json")  # for stdout
SUFFIX_OF = {"csv": ".csv", "json": ".json", "markdown": ".md", "latex": ".tex"}
SUFFIXES = tuple(SUFFIX_OF.values())
CHECK_FORMATS, CHECK_SUFFIXES = (*FORMATS, "github"), (".xml", *SUFFIXES)
PICTURES = (".png", ".svg", ".pdf")
PICTURE_SUFFIXES = (*PICTURES, ".csv")  # of plot-activations: the csv holds the points
NOT_ALL = "the table holds what was measured by then"
ROOFLINE = "roofline"  # a picture with that in its file's name is another one
Write = Callable[[], str | bytes]


def bytes_of(files: Mapping[str, Write], path: Path) -> bytes:
    """What a file holds: by the longest of the names that it has, such as `.png` and `roofline.png`."""
    stem, suffix = path.stem.lower(), path.suffix.lower()
    fit = [name for name in files if name.endswith(suffix) and name.removesuffix(suffix) in stem]
    made = files[max(fit, key=len)]()
    return made.encode() if isinstance(made, str) else made


def is_roofline(path: Path) -> bool:
    """Whether a file is to hold a roofline."""
    return path.suffix.lower() in PICTURES and ROOFLINE in path.stem.lower()


@dataclass(frozen=True, slots=True)
class Longer:
    """A baseline with a further run, and what is said of it; without text it stays as it was."""

    said: str
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """An answer made readable. `stdout` has a writer for each format but the table, `files` one for each suffix, and
    for `roofline.png` and the like, which are files with that in their name (bytes_of).

    `code` is the exit code that follows from it, `code_if_unclear_fails` where the user wants that; `problem` is raised
    once everything is shown and written. `rescue` is what is saved elsewhere if a file can't be written, so that no
    measurement is lost. A check has a new `baseline`, and the old one with a further run.
    """

    frame: Callable[[], Frame]
    stdout: Mapping[str, Callable[[], str]]
    files: Mapping[str, Write]
    code: int = 0
    problem: FfnbenchError | None = None
    rescue: Callable[[], str] | None = None
    code_if_unclear_fails: int | None = None
    baseline: Callable[[], str] | None = None
    longer: Callable[[], Longer] | None = None
    arranged: Callable[[Arrangement], View] | None = None  # the same with other columns, in another order

    @property
    def table(self) -> Frame:
        """The frame of the answer."""
        return self.frame()

    def records(self) -> list[Row]:
        """The rows for programs."""
        return self.frame().records()

    def ending(self, code: int, problem: FfnbenchError | None = None) -> View:
        """This view with an exit code and a problem, however it is arranged."""
        again = self.arranged and (lambda how: self.arranged(how).ending(code, problem))  # type: ignore[misc]
        return replace(self, code=code, problem=problem, arranged=again)


def view_of(
    frame: Frame | Callable[[], Frame],
    *,
    json: Callable[[], str] | None = None,
    pictures: Mapping[str, Callable[[str], bytes]] | None = None,
    reports: Sequence[Report] = (),
    title: str = "",
    every: bool = True,
    rescue: Callable[[], str] | None = None,
) -> View:
    """A view of a frame, or of what makes it. `json` where that is more than the records. `pictures` draw for a suffix,
    each into files with its own name in theirs; that of "" into all others. `reports` are what the answer is of, and
    `title` is its name: files of features tell them.

    `every` is whether markdown shows the columns and details that only -v does.
    """
    made: Callable[[], Frame] = cache(frame) if callable(frame) else lambda: frame
    texts: dict[str, Callable[[], str]] = {
        "csv": lambda: csv_text(made().records()),
        "json": json or (lambda: json_text(made().records())),
        "markdown": lambda: markdown(made(), every=every),
        "latex": lambda: latex(made()),
    }
    files: dict[str, Write] = {SUFFIX_OF[name]: write for name, write in texts.items()}
    for begin, draw in (pictures or {}).items():
        files |= {begin + suffix: partial(draw, suffix) for suffix in PICTURES}
    for suffix, feature in of_features("suffixes").items():
        files[suffix] = partial(_by_feature, feature, suffix, made, pictures or {}, reports, title)
    return View(frame=made, stdout=texts, files=files, rescue=rescue)


def _by_feature(feature: Feature, suffix: str, frame: Callable[[], Frame], *shown: object) -> str:
    """What a feature writes into a file with its suffix."""
    written: str = feature.file("files").WRITERS[suffix](frame(), *shown)
    return written

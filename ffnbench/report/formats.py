"""How one answer reads: a table for people, records for programs, files by suffix.
Every command ends with one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ffnbench.common.errors import FfnbenchError
from ffnbench.features import Feature, of_features
from ffnbench.report.frame import Frame
from ffnbench.result import Report

if TYPE_CHECKING:
    from ffnbench.report.arrangement import Arrangement

STDOUT_FORMATS = ("table", "markdown", "latex", "csv", "json")  # for stdout
SUFFIX_OF = {"csv": ".csv", "json": ".json", "markdown": ".md", "latex": ".tex"}
SUFFIXES = tuple(SUFFIX_OF.values())
CHECK_FORMATS = (*STDOUT_FORMATS, "github")
CHECK_SUFFIXES = (".xml", *SUFFIXES)
FIGURE_SUFFIXES = (".png", ".svg", ".pdf")
# of plot-activations: the csv holds the points
PICTURE_SUFFIXES = (*FIGURE_SUFFIXES, ".csv")
NOT_ALL = "the table holds what was measured by then"
ROOFLINE = "roofline"  # a picture with that in its file's name is another one
Write = Callable[[], str | bytes]


def bytes_of(files: Mapping[str, Write], path: Path) -> bytes:
    """What a file holds: by the longest of the names that it has, such as `.png` and
    `roofline.png`.
    """
    stem, suffix = path.stem.lower(), path.suffix.lower()
    fit = [
        name
        for name in files
        if name.endswith(suffix) and name.removesuffix(suffix) in stem
    ]
    made = files[max(fit, key=len)]()
    return made.encode() if isinstance(made, str) else made


def is_roofline(path: Path) -> bool:
    """Whether a file is to hold a roofline."""
    return path.suffix.lower() in FIGURE_SUFFIXES and ROOFLINE in path.stem.lower()


@dataclass(frozen=True, slots=True)
class Longer:
    """A baseline with a further run, and what is said of it; without text it stays as
    it was.
    """

    said: str
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """An answer made readable: its frame, and what writes it for stdout and into files.

    `json` is what stands in JSON where that is more than the rows. `pictures` draw for
    a suffix, each into files with its own name in theirs, such as `roofline.png`; that
    of "" into all others. `reports` are what the answer is of, `title` is its name, and
    `command` makes it again where those of the reports do not: files of features tell
    them. `more_formats` and `more_files` are those of this
    answer alone.

    `code` is the exit code that follows from it, `code_if_unclear_fails` where the user
    wants that; `problem` is raised once everything is shown and written. `rescue` is
    what is saved elsewhere if a file can't be written, so that no measurement is lost.
    A check has a new `baseline`, and the old one with a further run.
    """

    frame: Callable[[], Frame]
    json: Callable[[], str] | None = None
    pictures: Mapping[str, Callable[[str], bytes]] = field(default_factory=dict)
    reports: Sequence[Report] = ()
    title: str = ""
    command: str = ""
    more_formats: Mapping[str, Callable[[], str]] = field(default_factory=dict)
    more_files: Mapping[str, Write] = field(default_factory=dict)
    code: int = 0
    problem: FfnbenchError | None = None
    rescue: Callable[[], str] | None = None
    code_if_unclear_fails: int | None = None
    baseline: Callable[[], str] | None = None
    longer: Callable[[], Longer] | None = None

    @property
    def table(self) -> Frame:
        """The frame of the answer."""
        return self.frame()

    @property
    def stdout(self) -> dict[str, Callable[[], str]]:
        """A writer for each format but the table."""
        from ffnbench.report.writers import csv_text, json_of_records, latex, markdown

        return {
            "csv": lambda: csv_text(self.table.records()),
            "json": self.json or (lambda: json_of_records(self.table.records())),
            "markdown": lambda: markdown(self.table),
            "latex": lambda: latex(self.table),
            **self.more_formats,
        }

    @property
    def files(self) -> dict[str, Write]:
        """A writer for each suffix, and for `roofline.png` and the like, files with
        that in their name (bytes_of).
        """
        texts = self.stdout
        writers: dict[str, Write] = {
            suffix: texts[name] for name, suffix in SUFFIX_OF.items()
        }
        for name, draw in self.pictures.items():
            writers |= {
                name + suffix: partial(draw, suffix) for suffix in FIGURE_SUFFIXES
            }
        for suffix, feature in of_features("suffixes").items():
            writers[suffix] = partial(_by_feature, feature, suffix, self)
        return {**writers, **self.more_files}

    def ending(self, code: int, problem: FfnbenchError | None = None) -> View:
        """This view with an exit code and a problem."""
        return replace(self, code=code, problem=problem)

    def arranged(self, how: Arrangement) -> View:
        """This view with other columns, in another order; raises FfnbenchError for a
        name that no column has, and for a sort by what is not known.
        """
        from ffnbench.report.arrangement import arranged, key_of

        frame = arranged(self.table, how)
        if how.sort and all(report.environment is None for report in self.reports):
            key = key_of(how.sorted_by, frame)
            if all(row.get(key) is None for part in frame.parts for row in part.rows):
                message = f"--sort {how.sort}: nothing here has that, as it is counted and not measured"
                hint = "`ffnbench compare` measures; `ffnbench cost --sort params` sorts by a count"
                raise FfnbenchError(message, hint)
        return replace(self, frame=lambda: frame)


def _by_feature(feature: Feature, suffix: str, view: View) -> str:
    """What a feature writes into a file with its suffix."""
    text: str = feature.file("files").WRITERS[suffix](
        view.table, view.pictures, view.reports, view.title, view.command
    )
    return text

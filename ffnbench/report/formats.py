"""The view of an answer, with which every command ends: a table for people, records for
programs, files by suffix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ffnbench.common.choices import FIGURE_SUFFIXES, PAGE_SUFFIX, SUFFIX_OF
from ffnbench.common.errors import FfnbenchError
from ffnbench.record.result import Report
from ffnbench.report.frame import Frame

if TYPE_CHECKING:
    from ffnbench.report.arrangement import Arrangement

STDOUT_FORMATS = ("table", "markdown", "latex", "csv", "json")  # for stdout
CHECK_FORMATS = (*STDOUT_FORMATS, "github")
NOT_ALL = "the table holds what was measured by then"
Write = Callable[[], str | bytes]


def file_content(writers: Mapping[str, Write], path: Path) -> bytes:
    """The content of a file, by the writer for its suffix. Raises FfnbenchError where
    the answer has none.
    """
    if path.suffix.lower() not in writers:
        raise FfnbenchError(
            f"{str(path)!r}: this answer can't be written as {path.suffix}",
            f"formats: {', '.join(writers)}",
        )
    content = writers[path.suffix.lower()]()
    return content.encode() if isinstance(content, str) else content


def is_run(path: Path) -> bool:
    """Whether a file is to hold the whole run, from which it can be read again."""
    return path.suffix.lower() == ".json"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """An answer made readable: its frame, and what writes it to stdout and into files.

    `json` gives its JSON where that is more than the rows. `picture` draws for
    a suffix. `reports` are the reports that the answer was made of, `title` is
    its name, and `command` makes it again where the commands of the reports do not:
    the page shows these. `more_formats` and `more_files` are writers that
    this answer alone has.

    `code` is the exit code that follows from it; with `--on-unclear fail` it is
    `code_if_unclear_fails`, unless that is None. `problem` is raised once everything is
    shown and written. Of a check, `baseline` gives the text of a new baseline.
    """

    frame: Callable[[], Frame]
    json: Callable[[], str] | None = None
    picture: Callable[[str], bytes] | None = None
    reports: Sequence[Report] = ()
    title: str = ""
    command: str = ""
    more_formats: Mapping[str, Callable[[], str]] = field(default_factory=dict)
    more_files: Mapping[str, Write] = field(default_factory=dict)
    code: int = 0
    problem: FfnbenchError | None = None
    code_if_unclear_fails: int | None = None
    baseline: Callable[[], str] | None = None

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
        """A writer for each suffix."""
        texts = self.stdout
        writers: dict[str, Write] = {
            suffix: texts[name] for name, suffix in SUFFIX_OF.items()
        }
        if self.picture:
            writers |= {
                suffix: partial(self.picture, suffix) for suffix in FIGURE_SUFFIXES
            }
        writers[PAGE_SUFFIX] = self._page
        return {**writers, **self.more_files}

    def _page(self) -> str:
        """This answer as an HTML document."""
        from ffnbench.report.page import page_of

        return page_of(self.table, self.picture, self.reports, self.title, self.command)

    def ending(self, code: int, problem: FfnbenchError | None = None) -> View:
        """This view with an exit code and a problem."""
        return replace(self, code=code, problem=problem)

    def arranged(self, how: Arrangement) -> View:
        """This view with other columns, in another order. Raises FfnbenchError for a
        name that no column has, and for a sort by a column whose values are not known.
        """
        from ffnbench.report.arrangement import arranged, key_of

        frame = arranged(self.table, how)
        if how.sort and all(report.environment is None for report in self.reports):
            key = key_of(how.sorted_by, frame)
            if all(row.get(key) is None for part in frame.parts for row in part.rows):
                raise FfnbenchError(
                    f"--sort {how.sort}: no row has a value of it",
                    "`ffnbench compare` measures; `cost --sort params` sorts by a count",
                )
        return replace(self, frame=lambda: frame)

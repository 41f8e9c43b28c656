"""Answers that show themselves in a terminal or a notebook, and give a data frame or
files: `Shows` has the methods of all, `Answer` is a table alone, `Drawing` a picture.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ffnbench.common.choices import PAGE_SUFFIX
from ffnbench.common.errors import FfnbenchError, WrongArgument, wrong_value
from ffnbench.report.table import Row, Table
from ffnbench.report.terminal import Terminal, plain, show

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Write = Callable[[], str | bytes]


class Shows:
    """The methods of every answer. A subclass defines `shown_table`."""

    @property
    def stem(self) -> str:
        """The name of its files in a folder, without their suffix."""
        return "answer"

    def shown_table(self) -> Table:
        """The answer; raises FfnbenchError where there is nothing to show."""
        raise NotImplementedError

    def rows(self) -> list[Row]:
        """One flat record a row, in the order and with the names of the CSV."""
        return list(self.shown_table().records)

    def origin(self) -> Row:
        """The columns that tell its data frame from those of other answers."""
        return {}

    def outcome(self) -> tuple[int, FfnbenchError | None]:
        """The exit code that follows from it, and the problem that is raised once
        everything is shown and written.
        """
        return 0, None

    def pictures(self) -> Mapping[str, Write]:
        """A writer of its picture for each suffix; none where it has no picture."""
        return {}

    def files(self, table: Table) -> dict[str, Write]:
        """A writer for each suffix, of its files and of the formats of stdout."""
        from ffnbench.common.jsonable import json_text
        from ffnbench.report.writers import csv_text, latex, markdown

        return {
            ".csv": lambda: csv_text(table.records),
            ".json": lambda: json_text(table.records, 1) + "\n",
            ".md": lambda: markdown(table),
            ".tex": lambda: latex(table),
            **self.pictures(),
            PAGE_SUFFIX: lambda: self.page(table),
        }

    def page(self, table: Table) -> str:
        """The answer as an HTML document."""
        from ffnbench.report.writers import page_of

        return page_of(table, self.pictures().get(".svg"), title=self.stem)

    def frame(self) -> pd.DataFrame:
        """The rows as a pandas DataFrame: full precision, seconds and bytes, unknown as
        missing: a column of which nothing is known is of floats, as `read_csv` has it.

        Of a report or a check the last columns are created, machine, cpu, torch, git,
        run and version: frames of several can be told apart.
        """
        import pandas as pd

        origin = self.origin()
        frame = pd.DataFrame([{**row, **origin, **row} for row in self.rows()])
        unknown = frame.columns[frame.isna().all()].difference([*origin])
        return frame.astype(dict.fromkeys(unknown, float))

    def show(self, *, verbose: bool = False) -> None:
        """Print the table: in colour in a terminal, as HTML in a notebook. `verbose`
        prints all columns and details.
        """
        if notebook_shell() and not verbose:
            from IPython.display import display

            display(self)  # type: ignore[no-untyped-call]
        else:
            show(self.shown_table(), Terminal(force_jupyter=False), verbose=verbose)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a file, its kind by the suffix; a folder (with a slash at its end) gets
        one of every kind.

        Returns the path. The formats are those of `-o`. Raises ffnbench.Error, which is
        a ValueError, for a suffix that this answer has no writer for, and for a path
        that can't be written.
        """
        return written_to(path, self.files(self.shown_table()), self.stem)

    def __str__(self) -> str:
        return plain(self.shown_table(), shutil.get_terminal_size().columns)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from ffnbench.report.writers import html_fragment

        return html_fragment(self.shown_table())


@dataclass(frozen=True, kw_only=True, repr=False)
class Answer(Shows):
    """The answer of a command that makes no report, such as facts, or the layers of a
    model. `json` gives its JSON where that is more than the rows.
    """

    table: Table
    stem: str = "answer"
    json: Write | None = None

    def shown_table(self) -> Table:
        """The table."""
        return self.table

    def files(self, table: Table) -> dict[str, Write]:
        """A writer for each suffix."""
        files = super().files(table)
        return files | {".json": self.json} if self.json else files


@dataclass(frozen=True, kw_only=True, repr=False)
class Drawing:
    """A picture: `figure` is matplotlib's, `files` are what writes it, by suffix."""

    figure: Figure
    files: Mapping[str, Write]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a file, its kind by the suffix. Returns the path."""
        return written_to(path, self.files, "plot-activations")

    def _repr_png_(self) -> str | bytes:
        return self.files[".png"]()


def notebook_shell() -> Any:
    """IPython's shell if it is that of a notebook, else None. IPython is not imported
    for this.
    """
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)
    shell = get_ipython()
    return shell if hasattr(shell, "kernel") else None


def file_content(writers: Mapping[str, Write], path: Path) -> str | bytes:
    """The content of a file, by the writer for its suffix. Raises FfnbenchError where
    the answer has none.
    """
    suffix = path.suffix.lower()
    if suffix not in writers:
        raise FfnbenchError(
            f"{str(path)!r}: this answer can't be written as {path.suffix}",
            f"formats: {', '.join(writers)}",
        )
    return writers[suffix]()


def written_to(
    path: str | os.PathLike[str], writers: Mapping[str, Write], stem: str
) -> Path:
    """Write a file, or a folder of files, by the same rules as `-o`. Returns its path,
    and raises FfnbenchError, as a ValueError, where that is not possible.
    """
    from ffnbench.report.files import output_paths, write

    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise WrongArgument(
            f"{path!r} is no path", "for example 'run.json'; a folder ends with a slash"
        )
    text = os.fspath(path)
    try:
        paths = output_paths([text], stem, list(writers))
        # all contents are made first: where one can't be drawn, no file is written
        contents = {file: file_content(writers, file) for file in paths}
        for file, content in contents.items():
            write(file, content)
    except FfnbenchError as problem:
        raise wrong_value(problem) from None
    return paths[0] if len(paths) == 1 else Path(text)

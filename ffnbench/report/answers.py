"""Answers that show themselves: in a notebook, in a terminal, as a frame, as files. What Python gets of every command.

`Shows` is what all of them can do; `Answer` is one that is nothing but its view; `ShownCheck` is that of a check.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ffnbench.common.errors import WrongArgument
from ffnbench.report.formats import View, Write, bytes_of
from ffnbench.report.frame import Frame, Row
from ffnbench.report.terminal import Terminal, plain, renderable, show
from ffnbench.result import Report

if TYPE_CHECKING:
    import pandas as pd

CALLED = ("frame", "rows", "save", "show")


def origin_record(report: Report) -> Row:
    """When, where and by what a report was made; of one that was not measured machine, cpu, torch and git are None.

    `created` is in ISO 8601; `machine` is the fingerprint of all that latency depends on; `git` is the commit of the
    folder; `run` is the same for the same run alone; `version` is ffnbench's.
    """
    here = report.environment
    made = [report.created, *(f"{s.case} {s.metric} {s.value:.9g}" for s in report.samples)]
    return {
        "created": report.created,
        "machine": here and here.fingerprint,
        "cpu": here and here.cpu,
        "torch": here and here.torch,
        "git": here and here.git_commit and here.git_commit + "-dirty" * bool(here.git_dirty),
        "run": hashlib.sha256("\n".join(made).encode()).hexdigest()[:12],
        "version": report.version,
    }


class Shows:
    """What every answer can do. A subclass has a `table`, and gives its `rows` and its `view`; READ is what else a user
    asks of it.
    """

    READ: ClassVar[tuple[str, ...]] = ()

    @property
    def _stem(self) -> str:
        """What its files are called in a folder."""
        return "answer"

    @property
    def _origin(self) -> Row:
        """What every row of its frame has, so that frames of several can be told apart."""
        return {}

    def __dir__(self) -> list[str]:
        """What a user would call or read; the rest is there all the same."""
        return [*(name for name in super().__dir__() if name.startswith("_")), *CALLED, *self.READ]

    @property
    def table(self) -> Frame:
        """The answer as a table."""
        return self.view().table

    def view(self) -> View:
        """The answer with all that writes it; raises FfnbenchError where there is nothing to write."""
        raise NotImplementedError

    def rows(self) -> list[Row]:
        """One flat record a row, in the order and with the names of the CSV."""
        raise NotImplementedError

    def frame(self) -> pd.DataFrame:
        """The rows as a pandas DataFrame: full precision, seconds and bytes, unknown as missing.

        Of a report or a check the last columns are created, machine, cpu, torch, git, run and version: frames of
        several can be told apart.
        """
        import pandas as pd

        return pd.DataFrame([{**row, **self._origin, **row} for row in self.rows()])

    def show(self, *, verbose: bool = False) -> None:
        """Print the table: in colour in a terminal, as HTML in a notebook. `verbose` prints all columns and details."""
        if notebook_shell() and not verbose:
            from IPython.display import display

            display(self)  # type: ignore[no-untyped-call]
        else:
            show(self.table, Terminal(force_jupyter=False), verbose=verbose)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a file, its kind by the suffix; a folder (with a slash at its end) gets one of every kind.

        Gives the path. The writers are those of `-o`.
        Raises FfnbenchError for a suffix that this answer has no writer for, and for a path that can't be written.
        """
        return written_to(path, self.view().files, self._stem)

    def __str__(self) -> str:
        return plain(self.table, shutil.get_terminal_size().columns)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from ffnbench.report.writers import html_fragment

        return html_fragment(self.table)

    def __rich_console__(self, console: Any, options: Any) -> Any:
        yield renderable(self.table, options.max_width)


@dataclass(frozen=True, kw_only=True, repr=False)
class Answer(Shows):
    """What a command without a report of its own answers: facts, or a model's layers."""

    shown: View
    name: str = "answer"

    def view(self) -> View:
        """The answer with all that writes it."""
        return self.shown

    def rows(self) -> list[Row]:
        """One flat record a row."""
        return self.shown.table.records()

    @property
    def _stem(self) -> str:
        return self.name


def notebook_shell() -> Any:
    """IPython's shell where it is that of a notebook's kernel, else None. Nobody is made to import IPython."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None and hasattr(module, "get_ipython") else None
    return shell if shell is not None and hasattr(shell, "kernel") else None


def written_to(path: str | os.PathLike[str], writers: Mapping[str, Write], stem: str) -> Path:
    """Write a file, or a folder of them, by the same rules as `-o`; gives its path. Raises FfnbenchError."""
    from ffnbench.report.files.outputs import Outputs

    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise WrongArgument(f"{path!r} is no path", "for example 'run.json'; a folder ends with a slash")
    text = os.fspath(path)
    suffixes = list(dict.fromkeys(f".{name.rpartition('.')[2]}" for name in writers))
    with Outputs([text], stem, suffixes) as outputs:
        # all are made before one is written: what can't be drawn is an error of its own
        contents = {file: bytes_of(writers, file) for file in outputs.paths}
        written = outputs.write(contents.__getitem__)
    return written[0] if len(written) == 1 else Path(text)


def as_displayed(figure: Any) -> None:
    """In a notebook a figure is shown as a picture from now on, also where pyplot was never imported."""
    shell = notebook_shell()
    if shell is not None:
        from IPython.core.pylabtools import select_figure_formats

        formatters = shell.display_formatter.formatters.values()
        if not any(type(figure) in formatter.type_printers for formatter in formatters):
            select_figure_formats(shell, {"png"})

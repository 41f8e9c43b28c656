"""How a report reads: its frame and its picture, by the kind of its plan, and its view.
And what Python gets of every command: answers that show themselves in a notebook or a
terminal, and give a data frame or files.

`Shows` has the methods of all answers, `Answer` is one that has only a view, and
`ShownReport` is a report.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, overload

from ffnbench.common.choices import FIGURE_SUFFIXES
from ffnbench.common.errors import (
    EXIT_INTERRUPTED,
    Interrupted,
    Unfinished,
    WrongArgument,
)
from ffnbench.plan.plan import Kind
from ffnbench.record.result import Environment, Report
from ffnbench.report.formats import (
    NOT_ALL,
    View,
    Write,
    file_content,
)
from ffnbench.report.frame import Frame, Row
from ffnbench.report.terminal import Terminal, plain, renderable, show

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from ffnbench.report.arrangement import Arrangement

ANSWER_METHODS = ("frame", "rows", "save", "show")


def origin_record(report: Report) -> Row:
    """When, where and by what a report was made. Where nothing was measured, machine,
    cpu, torch and git are None.

    `created` is in ISO 8601; `machine` is the fingerprint of all that latency depends
    on; `git` is the commit of the folder; `run` is different for each run; `version` is
    that of ffnbench.
    """
    here = report.environment
    commit = here and here.git_commit
    if commit and here and here.git_dirty:
        commit += "-dirty"
    content = [
        report.created,
        *(f"{s.case} {s.metric} {s.value:.9g}" for s in report.samples),
    ]
    return {
        "created": report.created,
        "machine": here and here.fingerprint,
        "cpu": here and here.cpu,
        "torch": here and here.torch,
        "git": commit,
        "run": hashlib.sha256("\n".join(content).encode()).hexdigest()[:12],
        "version": report.version,
    }


class Shows:
    """The methods of every answer. A subclass defines `rows` and `view`; READ are the
    names of what else it offers to users.
    """

    READ: ClassVar[tuple[str, ...]] = ()

    @property
    def _stem(self) -> str:
        """The name of its files in a folder, without their suffix."""
        return "answer"

    @property
    def _origin(self) -> Row:
        """The columns that tell its data frame from those of other answers."""
        return {}

    def __dir__(self) -> list[str]:
        """The names that a user would call or read; others can be used all the same."""
        return [
            *(name for name in super().__dir__() if name.startswith("_")),
            *ANSWER_METHODS,
            *self.READ,
        ]

    @property
    def table(self) -> Frame:
        """The answer as a table."""
        return self.view().table

    def view(self) -> View:
        """The answer with all its writers; raises FfnbenchError where there is nothing
        to write.
        """
        raise NotImplementedError

    def rows(self) -> list[Row]:
        """One flat record a row, in the order and with the names of the CSV."""
        raise NotImplementedError

    def frame(self) -> pd.DataFrame:
        """The rows as a pandas DataFrame: full precision, seconds and bytes, unknown as
        missing.

        Of a report or a check the last columns are created, machine, cpu, torch, git,
        run and version: frames of several can be told apart.
        """
        import pandas as pd

        return pd.DataFrame([{**row, **self._origin, **row} for row in self.rows()])

    def show(self, *, verbose: bool = False) -> None:
        """Print the table: in colour in a terminal, as HTML in a notebook. `verbose`
        prints all columns and details.
        """
        if notebook_shell() and not verbose:
            from IPython.display import display

            display(self)  # type: ignore[no-untyped-call]
        else:
            show(self.table, Terminal(force_jupyter=False), verbose=verbose)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a file, its kind by the suffix; a folder (with a slash at its end) gets
        one of every kind.

        Returns the path. The formats are those of `-o`. Raises FfnbenchError for a
        suffix that this answer has no writer for, and for a path that can't be written.
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
    """The answer of a command that makes no report, such as facts, or the layers of a
    model.
    """

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


@dataclass(frozen=True, kw_only=True, repr=False)
class Drawing:
    """A picture: `figure` is matplotlib's, `files` are what writes it, by suffix."""

    figure: Figure
    files: Mapping[str, Write]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a file, its kind by the suffix. Returns the path."""
        return written_to(path, self.files, "activations")

    def _repr_png_(self) -> str | bytes:
        return self.files[".png"]()


def notebook_shell() -> Any:
    """IPython's shell if it is that of a notebook, else None. IPython is not imported
    for this.
    """
    module = sys.modules.get("IPython")
    shell = None
    if module is not None and hasattr(module, "get_ipython"):
        shell = module.get_ipython()
    if shell is not None and hasattr(shell, "kernel"):
        return shell
    return None


def written_to(
    path: str | os.PathLike[str], writers: Mapping[str, Write], stem: str
) -> Path:
    """Write a file, or a folder of files, by the same rules as `-o`. Returns its path,
    and raises FfnbenchError where that is not possible.
    """
    from ffnbench.report.files.outputs import Outputs

    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise WrongArgument(
            f"{path!r} is no path", "for example 'run.json'; a folder ends with a slash"
        )
    text = os.fspath(path)
    suffixes = list(dict.fromkeys(f".{name.rpartition('.')[2]}" for name in writers))
    with Outputs([text], stem, suffixes) as outputs:
        # all contents are made first: what can't be drawn is an error of its own, and
        # then no file is written
        contents = {file: file_content(writers, file) for file in outputs.paths}
        written = outputs.write(contents.__getitem__)
    return written[0] if len(written) == 1 else Path(text)


def as_displayed(figure: Any) -> None:
    """In a notebook, have figures displayed as pictures from now on. Importing pyplot
    would do that too, but it may never be imported.
    """
    shell = notebook_shell()
    if shell is not None:
        from IPython.core.pylabtools import select_figure_formats

        formatters = shell.display_formatter.formatters.values()
        if not any(type(figure) in formatter.type_printers for formatter in formatters):
            select_figure_formats(shell, {"png"})


ANY_ENVIRONMENT = Environment(fingerprint="", cpu="", usable_cpus=1)


def frame_of_report(report: Report) -> Frame:
    """The frame of this report, by the kind of its plan."""
    match report.plan.kind:
        case Kind.BLOCK:
            from ffnbench.block.table import block_frame

            return block_frame(report)
        case Kind.ACTIVATIONS:
            from ffnbench.activations.table import timing_frame

            return timing_frame(report)
    from ffnbench.compare.table import compare_frame

    return compare_frame(report)


def figure_of(report: Report) -> Figure:
    """The picture of this report; raises FfnbenchError where there is nothing to draw.
    matplotlib is loaded for it.
    """
    if report.plan.kind == Kind.BLOCK:
        from ffnbench.block.picture import block_figure

        return block_figure(report)
    if report.figures.trade_offs:
        from ffnbench.report.pictures.trade_off import trade_off_figure

        return trade_off_figure(report)
    if report.comparisons and report.plan.axes:
        from ffnbench.report.pictures.sweeps import sweep_figure

        return sweep_figure(report)
    from ffnbench.report.pictures.ratios import ratio_figure

    return ratio_figure(report)


def picture_of(report: Report, suffix: str) -> bytes:
    """The picture of this report in the format of this suffix."""
    figure = figure_of(report)
    from ffnbench.report.pictures.canvas import render

    return render(figure, suffix)


def refuse_unknown_columns(report: Report, how: Arrangement) -> None:
    """Raise FfnbenchError for a name in `how` that no column of this report will have,
    even if nothing is measured yet.
    """
    from ffnbench.report.arrangement import key_of

    # the headings of a report with an environment are those of a measured one
    as_measured = replace(report, environment=report.environment or ANY_ENVIRONMENT)
    frame = frame_of_report(as_measured)
    for name in filter(None, (how.sorted_by, *how.chosen)):
        key_of(name, frame)


def _saved_text(report: Report) -> str:
    """The text that `read_report` reads again."""
    from ffnbench.report.files.store import report_text

    return report_text(report)


def report_view(report: Report) -> View:
    """The view of a report. Raises Interrupted where the run was interrupted before it
    had a sample.
    """
    if report.interrupted and not report.samples:
        raise Interrupted("interrupted before anything was measured")
    view = View(
        frame=cache(lambda: frame_of_report(report)),
        json=lambda: _saved_text(report),
        picture=partial(picture_of, report),
        reports=[report],
    )
    wanted, problem = report.plan.protocol.runs, None
    if report.interrupted or report.cut_short:
        return view.ending(EXIT_INTERRUPTED)
    if report.stopped:
        problem = Unfinished(report.stopped, NOT_ALL)
    elif report.failed_wholly or report.failed_rows:
        text = f"{len(report.failed_rows)} of {len(report.plan.shown)} rows failed"
        if report.failed_wholly:
            text = "nothing could be measured: every case failed"
        problem = Unfinished(text, "the lines below the table say why")
    elif report.samples and len(report.runs) < wanted:
        problem = Unfinished(
            f"{len(report.runs)} of {wanted} runs could be kept",
            "wait until the machine is quiet",
        )
    return view.ending(0, problem)


@dataclass(frozen=True, kw_only=True, repr=False)
class ShownReport(Shows, Report):
    """What was asked, counted and measured, with every sample. It shows, saves and
    draws itself.

    Public as `ffnbench.Report`. The rows are made of `samples`, `measured` and
    `comparisons`; `interrupted` says whether it was ended by hand.
    """

    READ = (
        "comparisons",
        "costs",
        "created",
        "environment",
        "failures",
        "interrupted",
        "measured",
        "plan",
        "plot",
        "runs",
        "samples",
        "version",
        "warnings",
    )

    @property
    def _stem(self) -> str:
        return self.plan.kind

    @property
    def _origin(self) -> dict[str, Any]:
        return origin_record(self)

    @property
    def table(self) -> Frame:
        """The table that belongs to this report, by the kind of its plan."""
        return frame_of_report(self)

    def view(self) -> View:
        """The report with all its writers; raises Interrupted where nothing was
        measured.
        """
        return report_view(self)

    def rows(self) -> list[dict[str, Any]]:
        """One flat record a row, in the order and with the names of the CSV
        contract.
        """
        return frame_of_report(self).records()

    @overload
    def plot(self, path: None = None) -> Figure: ...

    @overload
    def plot(self, path: str | os.PathLike[str]) -> Path: ...

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure | Path:
        """The report as a matplotlib Figure, or written to a file (.png, .svg, .pdf),
        whose path is returned.

        Raises FfnbenchError where there is nothing to draw.
        """
        if path is None:
            figure = figure_of(self)
            as_displayed(figure)
            return figure
        writers = {
            suffix: partial(picture_of, self, suffix) for suffix in FIGURE_SUFFIXES
        }
        return written_to(path, writers, self._stem)

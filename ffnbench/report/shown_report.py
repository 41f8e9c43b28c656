"""How a report reads: its frame and its picture by the kind of its plan, all that
writes it; and answers that show themselves, in a notebook, in a terminal, as a frame,
as files: what Python gets of every command.

`Shows` is what all of these can do, `Answer` is one that is nothing but its view,
`ShownReport` is a report that shows itself. A new kind of the core is one row of
FRAMES.
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

from ffnbench.common.errors import (
    EXIT_INTERRUPTED,
    Interrupted,
    Unfinished,
    WrongArgument,
)
from ffnbench.features import imported_function
from ffnbench.plan import Kind, added_kind
from ffnbench.report.formats import (
    FIGURE_SUFFIXES,
    NOT_ALL,
    ROOFLINE,
    View,
    Write,
    file_content,
)
from ffnbench.report.frame import Frame, Row
from ffnbench.report.terminal import Terminal, plain, renderable, show
from ffnbench.result import Environment, Report

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from ffnbench.report.arrangement import Arrangement

CALLED = ("frame", "rows", "save", "show")


def origin_record(report: Report) -> Row:
    """When, where and by what a report was made; of one that was not measured machine,
    cpu, torch and git are None.

    `created` is in ISO 8601; `machine` is the fingerprint of all that latency depends
    on; `git` is the commit of the folder; `run` is the same for the same run alone;
    `version` is ffnbench's.
    """
    here = report.environment
    commit = here and here.git_commit
    if commit and here and here.git_dirty:
        commit += "-dirty"
    made = [
        report.created,
        *(f"{s.case} {s.metric} {s.value:.9g}" for s in report.samples),
    ]
    return {
        "created": report.created,
        "machine": here and here.fingerprint,
        "cpu": here and here.cpu,
        "torch": here and here.torch,
        "git": commit,
        "run": hashlib.sha256("\n".join(made).encode()).hexdigest()[:12],
        "version": report.version,
    }


class Shows:
    """What every answer can do. A subclass has a `table`, and gives its `rows` and its
    `view`; READ is what else a user asks of it.
    """

    READ: ClassVar[tuple[str, ...]] = ()

    @property
    def _stem(self) -> str:
        """What its files are called in a folder."""
        return "answer"

    @property
    def _origin(self) -> Row:
        """What every row of its frame has, so that frames of several can be told
        apart.
        """
        return {}

    def __dir__(self) -> list[str]:
        """What a user would call or read; the rest is there all the same."""
        return [
            *(name for name in super().__dir__() if name.startswith("_")),
            *CALLED,
            *self.READ,
        ]

    @property
    def table(self) -> Frame:
        """The answer as a table."""
        return self.view().table

    def view(self) -> View:
        """The answer with all that writes it; raises FfnbenchError where there is
        nothing to write.
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

        Gives the path. The writers are those of `-o`. Raises FfnbenchError for a suffix
        that this answer has no writer for, and for a path that can't be written.
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
    """What a command without a report of its own answers: facts, or a model's
    layers.
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


def notebook_shell() -> Any:
    """IPython's shell where it is that of a notebook's kernel, else None. Nobody is
    made to import IPython.
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
    """Write a file, or a folder of them, by the same rules as `-o`; gives its path.
    Raises FfnbenchError.
    """
    from ffnbench.report.files.outputs import Outputs

    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise WrongArgument(
            f"{path!r} is no path", "for example 'run.json'; a folder ends with a slash"
        )
    text = os.fspath(path)
    suffixes = list(dict.fromkeys(f".{name.rpartition('.')[2]}" for name in writers))
    with Outputs([text], stem, suffixes) as outputs:
        # all are made before one is written: what can't be drawn is an error of its own
        contents = {file: file_content(writers, file) for file in outputs.paths}
        written = outputs.write(contents.__getitem__)
    return written[0] if len(written) == 1 else Path(text)


def as_displayed(figure: Any) -> None:
    """In a notebook a figure is shown as a picture from now on, also where pyplot was
    never imported.
    """
    shell = notebook_shell()
    if shell is not None:
        from IPython.core.pylabtools import select_figure_formats

        formatters = shell.display_formatter.formatters.values()
        if not any(type(figure) in formatter.type_printers for formatter in formatters):
            select_figure_formats(shell, {"png"})


SOMEWHERE = Environment(fingerprint="", cpu="", usable_cpus=1)
# the function that makes the frame of a report, by the kind of its plan. It is named by
# text, for an import would lead to a room above this one, which imports from here
FRAMES = {
    Kind.COMPARE: "compare.table:compare_frame",
    Kind.SIDES: "compare.table:compare_frame",
    Kind.BLOCK: "block.table:block_frame",
    Kind.ACTIVATIONS: "activations.table:timing_frame",
}


def frame_of_report(report: Report) -> Frame:
    """The frame of this report."""
    added = added_kind(report.plan.kind)
    name = added.frame if added else FRAMES[Kind(report.plan.kind)]
    frame: Frame = imported_function(name)(report)
    return frame


def figure_of(report: Report, *, roofline: bool = False) -> Figure:
    """The picture of this report; raises FfnbenchError where there is nothing to draw.
    matplotlib is loaded for it.
    """
    added = added_kind(report.plan.kind)
    figure: Figure
    if roofline:
        from ffnbench.report.pictures.roofline import roofline_figure

        return roofline_figure(report)
    if added:
        figure = imported_function(added.picture)(report)
        return figure
    if report.plan.kind == Kind.BLOCK:
        figure = imported_function("block.picture:block_figure")(report)
        return figure
    if report.figures.trade_offs:
        from ffnbench.report.pictures.trade_off import trade_off_figure

        return trade_off_figure(report)
    if report.comparisons and report.plan.axes:
        from ffnbench.report.pictures.sweeps import sweep_figure

        return sweep_figure(report)
    from ffnbench.report.pictures.ratios import ratio_figure

    return ratio_figure(report)


def picture_of(report: Report, suffix: str, *, roofline: bool = False) -> bytes:
    """The picture as bytes of that format."""
    figure = figure_of(report, roofline=roofline)
    from ffnbench.report.pictures.canvas import render

    return render(figure, suffix)


def refuse_unknown_columns(report: Report, how: Arrangement) -> None:
    """Raise FfnbenchError for a column that no answer to this plan has; nothing need be
    measured yet.
    """
    from ffnbench.report.arrangement import key_of

    # with the headings that it will have
    as_measured = replace(report, environment=report.environment or SOMEWHERE)
    frame = frame_of_report(as_measured)
    for name in filter(None, (how.sorted_by, *how.chosen)):
        key_of(name, frame)


def _saved_text(report: Report) -> str:
    """The text of a file that `read_report` reads again."""
    from ffnbench.report.files.store import report_text

    return report_text(report)


def report_view(report: Report) -> View:
    """A report as the end of a command; raises Interrupted where there is nothing to
    show.
    """
    if report.interrupted and not report.samples:
        raise Interrupted("interrupted before anything was measured")
    view = View(
        frame=cache(lambda: frame_of_report(report)),
        json=lambda: _saved_text(report),
        pictures={
            "": partial(picture_of, report),
            ROOFLINE: partial(picture_of, report, roofline=True),
        },
        reports=[report],
        rescue=(lambda: _saved_text(report)) if report.samples else None,
    )
    wanted, problem = report.plan.protocol.runs, None
    if report.interrupted or report.cut_short:
        return view.ending(EXIT_INTERRUPTED)
    if report.stopped:
        problem = Unfinished(report.stopped, NOT_ALL)
    elif report.failed_wholly:
        problem = Unfinished(
            "nothing could be measured: every case failed",
            "the lines below the table say why",
        )
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

    Public as `ffnbench.Report`. `samples`, `measured` and `comparisons` are what the
    rows are made of; `interrupted` is whether it was ended by hand.
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
        """The report with all that writes it; raises Interrupted where nothing was
        measured.
        """
        return report_view(self)

    def rows(self) -> list[dict[str, Any]]:
        """One flat record a row, in the order and with the names of the CSV
        contract.
        """
        return frame_of_report(self).records()

    @overload
    def plot(self, path: None = None, *, roofline: bool = False) -> Figure: ...

    @overload
    def plot(self, path: str | os.PathLike[str], *, roofline: bool = False) -> Path: ...

    def plot(
        self, path: str | os.PathLike[str] | None = None, *, roofline: bool = False
    ) -> Figure | Path:
        """The report as a matplotlib Figure, or written to a file (.png, .svg, .pdf),
        whose path is given back.

        Ratios with their intervals; `roofline` draws the rows below what this machine
        can do, where `ceilings` were measured. Raises FfnbenchError where there is
        nothing to draw.
        """
        if path is None:
            figure = figure_of(self, roofline=roofline)
            as_displayed(figure)
            return figure
        picture = {
            end: lambda end=end: picture_of(self, end, roofline=roofline)
            for end in FIGURE_SUFFIXES
        }  # type: ignore[misc]
        return written_to(path, picture, self._stem)

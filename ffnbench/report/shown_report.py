"""What Python gets of every command that counts or measures: a report that shows, saves
and draws itself; and how a report reads, by the kind of its plan.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ffnbench.common.choices import FIGURE_SUFFIXES
from ffnbench.common.errors import (
    EXIT_INTERRUPTED,
    FfnbenchError,
    Interrupted,
    Unfinished,
)
from ffnbench.plan.plan import Kind
from ffnbench.record.result import Report
from ffnbench.report.answer import Shows, Write, notebook_shell
from ffnbench.report.table import Row, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOT_ALL = "the table holds what was measured by then"
MOST_NAMES = 6  # of variants in a title


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


def table_of(report: Report) -> Table:
    """The table of this report, by the kind of its plan."""
    if report.plan.kind is Kind.BLOCK:
        from ffnbench.block.table import block_table

        return block_table(report)
    from ffnbench.compare.table import compare_table

    return compare_table(report)


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


@dataclass(frozen=True, kw_only=True, repr=False)
class ShownReport(Shows, Report):
    """What was asked, counted and measured, with every sample. It shows, saves and
    draws itself.

    Public as `ffnbench.Report`. The rows are made of `samples`, `measured` and
    `comparisons`; `interrupted` says whether it was ended by hand.
    """

    @property
    def stem(self) -> str:
        """Its command, the name of its files in a folder, without their suffix."""
        if self.plan.kind == Kind.COMPARE and self.environment is None:
            return "cost"
        return self.plan.kind

    def origin(self) -> Row:
        """When, where and by what it was made."""
        return origin_record(self)

    def shown_table(self) -> Table:
        """The table that belongs to it; raises Interrupted where the run was
        interrupted before it had a sample.
        """
        if self.interrupted and not self.samples:
            raise Interrupted("interrupted before anything was measured")
        return table_of(self)

    def outcome(self) -> tuple[int, FfnbenchError | None]:
        """The exit code, and why not all was measured."""
        if self.interrupted or self.cut_short:
            return EXIT_INTERRUPTED, None
        if self.stopped:
            return 0, Unfinished(self.stopped, NOT_ALL)
        failed, shown = len(self.failed_rows), len(self.plan.shown)
        reasons = "the lines below the table say why"
        if self.failed_wholly:
            return 0, Unfinished("every case failed", reasons)
        if failed:
            return 0, Unfinished(f"{failed} of {shown} rows failed", reasons)
        runs, wanted = len(self.runs), self.plan.protocol.runs
        if self.samples and runs < wanted:
            text = f"{runs} of {wanted} runs could be kept"
            return 0, Unfinished(text, "wait until the machine is quiet")
        return 0, None

    def pictures(self) -> Mapping[str, Write]:
        """A writer of its picture for each suffix; of counts alone only a block has
        one.
        """
        if self.is_of_counts and self.plan.kind != Kind.BLOCK:
            return {}
        return {suffix: partial(picture_of, self, suffix) for suffix in FIGURE_SUFFIXES}

    def files(self, table: Table) -> dict[str, Write]:
        """A writer for each suffix; its JSON is what `load` reads again."""
        from ffnbench.report.store import report_text

        return super().files(table) | {".json": partial(report_text, self)}

    def page(self, table: Table) -> str:
        """The report as an HTML document; its title has no keys: `cost: relu, gelu`."""
        from ffnbench.report.writers import page_of

        names = dict.fromkeys(
            case.variant.partition("@")[0] for case in self.plan.shown
        )
        title = f"{self.stem}: {', '.join(list(names)[:MOST_NAMES])}"
        return page_of(
            table, self.pictures().get(".svg"), self, title, self.plan.command
        )

    def plot(self) -> Figure:
        """The report as a matplotlib Figure; `save` writes it. Raises ffnbench.Error, a
        ValueError, where there is nothing to draw.
        """
        figure = figure_of(self)
        as_displayed(figure)
        return figure


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

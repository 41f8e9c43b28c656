"""A report that shows itself, and one whose figures are computed anew from its samples."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from ffnbench.plan import METHOD
from ffnbench.report.table import Table
from ffnbench.report.text import html_fragment, plain, renderable
from ffnbench.report.views import reading_of
from ffnbench.result import Report
from ffnbench.stats.ceilings import shares_of
from ffnbench.stats.noise import follows_from_samples
from ffnbench.stats.verdict import summarise

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, repr=False)
class ShownReport(Report):
    """A Report that shows itself as its table: in a notebook, in a terminal and with rich."""

    @property
    def table(self) -> Table:
        """The table that belongs to this report, by the kind of its plan."""
        return reading_of(self).table(self)

    def rows(self) -> list[dict[str, Any]]:
        """One flat record a row, in the order and with the names of the CSV contract."""
        return reading_of(self).records(self)

    def frame(self) -> pd.DataFrame:
        """The rows as a pandas DataFrame, unknown as missing."""
        import pandas as pd

        return pd.DataFrame(self.rows())

    def __repr__(self) -> str:
        return plain(self.table)

    def _repr_html_(self) -> str:
        return html_fragment(self.table)

    def __rich_console__(self, console: Any, options: Any) -> Any:
        yield renderable(self.table, options.max_width)


def as_shown(found: Report) -> ShownReport:
    """The same report, able to show itself."""
    return ShownReport(**{field.name: getattr(found, field.name) for field in fields(Report)})


def recompute(found: ShownReport) -> ShownReport:
    """The report with every figure computed anew from its samples, by today's method."""
    if found.environment is None:
        return found
    measured, comparisons, warnings = summarise(found.run)
    shares = shares_of(found.run, found.costs)
    kept = [note for note in found.warnings if not follows_from_samples(note.text)]
    told = (*kept, *(note for note in warnings if note not in kept))
    return replace(found, measured=measured, comparisons=comparisons, shares=shares, warnings=told)


def difference(stored: Report, fresh: Report) -> str:
    """What to say where the figures of a file are not those that its samples give now; nothing where they are."""
    if _figures(stored) == _figures(fresh):
        return ""
    if stored.plan.protocol.method != METHOD:
        return (
            "every figure is computed anew from the samples: the file's own were made by method "
            f"{stored.plan.protocol.method} of ffnbench's statistics, these by method {METHOD}"
        )
    return f"the figures stored in the file (by ffnbench {stored.version}) are not those of its samples"


def _figures(found: Report) -> list[tuple[str, str, str, str]]:
    """What is compared, to nine digits: sums of floats may differ in the last ones between machines."""
    figures = [(m.case, m.metric, f"{m.estimate.value:.9g}", "") for m in found.measured]
    for c in found.comparisons:
        figures.append((c.case, c.metric, f"{c.ratio.value:.9g}" if c.ratio else "", c.verdict.value))
    figures += [(s.case, s.roof, f"{s.share.value:.9g}", s.bound.value) for s in found.shares]
    return figures

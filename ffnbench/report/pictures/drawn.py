"""What the picture of a sweep is drawn of: ratios, or seconds of a single variant, along its axis."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ffnbench.metrics import LATENCY
from ffnbench.plan import Axis, Group
from ffnbench.report.header import heading
from ffnbench.report.words import verdict_text
from ffnbench.result import Estimate, Report, Verdict
from ffnbench.units import SI, TIME, quantity, scale

LARGE = 1e6  # numbers from here on are shortened


@dataclass(frozen=True, slots=True)
class DrawnRow:
    """A row of the run: where it stands, its value and interval, or why it has none. `up` is the value of the axis that
    a heat map goes up by.
    """

    label: str
    at: float
    up: Any
    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    why: str = ""
    undecided: bool = False


@dataclass(frozen=True)
class Drawn:
    """What is drawn of a run along `axis`; the other axes make panels, but for `up`, which a heat map has."""

    report: Report
    axis: Axis
    up: Axis | None = None

    @cached_property
    def of_ratios(self) -> bool:
        """Whether ratios are drawn, and not seconds: where a cell has several variants."""
        return any(len(group.cases) > 1 for group in self.report.plan.groups)

    @cached_property
    def names(self) -> list[str]:
        """All variants of the run."""
        return list(dict.fromkeys(group.variant_of(case) for group in self.report.plan.groups for case in group.cases))

    @cached_property
    def variants(self) -> list[str]:
        """The variants that are drawn: of ratios all but the references."""
        plan = self.report.plan
        shown = [
            group.variant_of(case)
            for group in plan.groups
            for case in group.cases
            if not (self.of_ratios and plan.is_reference(case.label))
        ]
        return list(dict.fromkeys(shown))

    @cached_property
    def unit(self) -> tuple[float, str]:
        """What values are divided by, and what stands beside them."""
        plan = self.report.plan
        if self.of_ratios:
            references = {group.variant_of(plan.case(group.reference)) for group in plan.groups}
            return 1.0, f"time vs {references.pop() if len(references) == 1 else 'the reference'}"
        seconds = [self._estimate(case.label) for group in plan.groups for case in group.cases]
        unit, size = scale([estimate.value for estimate in seconds if estimate], TIME)
        return size, f"latency ({unit})"

    @cached_property
    def panels(self) -> dict[str, dict[str, list[DrawnRow]]]:
        """Rows by variant, along the axis, for each value of the other axes."""
        panels: dict[str, dict[str, list[DrawnRow]]] = {}
        for group in self.report.plan.groups:
            others = {key: value for key, value in group.values.items() if key != self.axis.name}
            if self.up:
                others.pop(self.up.name)
            series = panels.setdefault(within_text(others), {})
            for case in group.cases:
                series.setdefault(group.variant_of(case), []).append(self._row(group, case.label))
        for series in panels.values():
            for rows in series.values():
                rows.sort(key=lambda row: row.at)
        return panels

    @property
    def rows(self) -> list[DrawnRow]:
        """All that is drawn."""
        return [row for series in self.panels.values() for name in self.variants for row in series.get(name, ())]

    def _estimate(self, label: str) -> Estimate | None:
        if not self.of_ratios:
            return self.report.estimate(label, LATENCY)
        comparison = self.report.comparison(label)
        return comparison.ratio if comparison else None

    def _row(self, group: Group, label: str) -> DrawnRow:
        at, up = float(group.values[self.axis.name]), group.values[self.up.name] if self.up else None
        estimate = self._estimate(label)
        if estimate is None or not self.report.has_time(label):
            return DrawnRow(label, at, up, why=verdict_text(self.report, label)[0] or "not known")
        low = estimate.value if estimate.low is None else estimate.low
        high = estimate.value if estimate.high is None else estimate.high
        value, low, high = (end / self.unit[0] for end in (estimate.value, low, high))
        comparison = self.report.comparison(label)
        undecided = self.of_ratios and comparison is not None and comparison.verdict is Verdict.UNCLEAR
        return DrawnRow(label, at, up, value, low, high, undecided=undecided)


def within_text(values: Mapping[str, Any]) -> str:
    """`d_model 512, bfloat16`."""
    plain = {key: str(value).lower() if isinstance(value, bool | None) else value for key, value in values.items()}
    return heading(Group(reference="", cases=(), values=plain))


def number_text(value: float) -> str:
    """A number beside an axis: `4,096`, `4.72 M`."""
    return quantity(value, SI) if abs(value) >= LARGE else f"{value:,g}"

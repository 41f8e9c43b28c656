"""What a curve is drawn of: the rows of a run by panel and variant, any column over any axis or column.

A column of numbers that is no axis has the unit of its heading. What is measured joins no points, and makes no panels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ffnbench.errors import FfnbenchError
from ffnbench.metrics import PEAK, SAVED
from ffnbench.plan import Case, Group
from ffnbench.report.arrangement import key_of
from ffnbench.report.csv_columns import OF_SAMPLES, case_records
from ffnbench.report.records import Record
from ffnbench.report.tables.compare import HEADINGS, Heading, compare_table
from ffnbench.report.tables.groups import heading
from ffnbench.report.tables.words import verdict_text
from ffnbench.result import Report
from ffnbench.stats.curves import Axis, axes_of, variant_of
from ffnbench.stats.pairs import is_told
from ffnbench.units import SI, TIME, quantity, scale

RATIO, LATENCY_S = "ratio", "latency_s"
TIMED = (RATIO, LATENCY_S, "tokens_per_s", "flops_per_s", "bytes_per_s")
MEASURED = {*OF_SAMPLES, PEAK, SAVED}
LARGE = 1e6  # numbers from here on are shortened
TITLES = {
    **HEADINGS, LATENCY_S: Heading("latency", TIME), "params": Heading("params", SI),
    "flops_per_s": Heading("rate", SI, "FLOP/s"), "bytes_per_s": Heading("rate", SI, "B/s"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class DrawnRow:
    """A row of the run: where it stands, its value and interval, or why it has none."""

    record: Record
    at: Any
    order: Any  # along a line
    held: Any  # the value of the axis that a heat map goes up by
    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    why: str = ""


@dataclass(frozen=True)
class Drawn:
    """What is drawn: rows of a run by panel and variant, x over y."""

    report: Report
    x: str
    y: str
    facet: str
    held: str = ""  # an axis that makes no panels

    @cached_property
    def rows(self) -> list[tuple[Group, Case, Record]]:
        """Group, case and record of each row."""
        records = {record["label"]: record for record in case_records(self.report)}
        return [(g, case, records[case.label]) for g in self.report.plan.groups for case in g.cases]

    def found(self, key: str) -> list[Any]:
        """What rows have of an axis, or in a column."""
        return [x for group, _, record in self.rows if (x := value_at(group, record, key)) is not None]

    @property
    def swept(self) -> bool:
        """Whether x is an axis of the plan, and not a column."""
        return self.x in self.report.plan.groups[0].values

    @cached_property
    def axis(self) -> Axis:
        """What x has, as an axis; texts stand at their numbers."""
        values = range(len(self.texts)) if self.texts else {x / self.units[self.x][0] for x in self.found(self.x)}
        return Axis(self.x, tuple(map(float, sorted(values))))

    @cached_property
    def texts(self) -> list[str]:
        """The values of x where they are no numbers."""
        found = self.found(self.x)
        return [] if all(map(_is_number, found)) else list(dict.fromkeys(map(str, found)))

    @cached_property
    def units(self) -> dict[str, tuple[float, str]]:
        """What x and y are divided by, and their names."""
        return {key: self._unit(key) for key in (self.x, self.y)}

    def _unit(self, key: str) -> tuple[float, str]:
        if key == self.x and (self.swept or self.texts):
            return 1.0, key
        if key == RATIO:
            plan = self.report.plan
            names = {variant_of(group, plan.case(group.reference)) for group in plan.groups}
            return 1.0, f"time vs {names.pop() if len(names) == 1 else 'the reference'}"
        shown = TITLES.get(key, Heading(key))
        unit, size = scale(self.found(key), shown.units or (("", 1.0),))
        return size, f"{shown.title} ({unit}{shown.per})" if unit + shown.per else shown.title

    @cached_property
    def panels(self) -> dict[str, dict[str, list[DrawnRow]]]:
        """Dots by variant, along x, for each value of the other axes and of the facet."""
        found: dict[str, dict[str, list[DrawnRow]]] = {}
        for group, case, record in self.rows:
            if value_at(group, record, self.x) is not None:
                dots = found.setdefault(self._panel(group, record), {}).setdefault(variant_of(group, case), [])
                dots.append(self._dot(group, record))
        for dots in [dots for series in found.values() for dots in series.values()]:
            dots.sort(key=lambda dot: dot.order)
        return found

    @cached_property
    def variants(self) -> list[str]:
        """The variants that are drawn: where y is a ratio, all but the references."""
        of_ratio, plan = self.y == RATIO, self.report.plan
        shown = [(g, case) for g, case, _ in self.rows if not of_ratio or not plan.is_reference(case.label)]
        return list(dict.fromkeys(variant_of(group, case) for group, case in shown))

    @property
    def dots(self) -> list[DrawnRow]:
        """All that is drawn."""
        return [dot for series in self.panels.values() for name in self.variants for dot in series.get(name, ())]

    @cached_property
    def along(self) -> str:
        """The axis whose points a line joins: x, or where x is counted the one with most points; empty for none."""
        axes = [axis.name for axis in axes_of(self.report.plan) if axis.name != self.facet]
        return self.x if self.swept else next(iter(axes), "")

    @property
    def joined(self) -> bool:
        """Whether a line joins points: what is measured may go to and fro."""
        return bool(self.along) and (self.swept or self.x not in MEASURED)

    def _panel(self, group: Group, record: Record) -> str:
        values = {key: value for key, value in group.values.items() if key not in (self.along, self.held)}
        if self.facet:
            values = {self.facet: value_at(group, record, self.facet)} | values
        return within_text(values)

    def _dot(self, group: Group, record: Record) -> DrawnRow:
        x, value, unit = value_at(group, record, self.x), record.get(self.y), "_s" if self.y.endswith("_s") else ""
        at = self.texts.index(str(x)) if self.texts else x / self.units[self.x][0]
        order = at if self.along == self.x else group.values.get(self.along, at)
        dot = DrawnRow(record, at, order, group.values.get(self.held))
        if value is None or (self.y in TIMED and not is_told(self.report, record["label"])):
            return replace(dot, why=verdict_text(self.report, record["label"])[0] or "not known")
        ends = (record.get(f"{self.y.removesuffix(unit)}{end}{unit}") for end in ("_low", "_high"))
        low, high = ((value if end is None else end) / self.units[self.y][0] for end in ends)
        return replace(dot, value=value / self.units[self.y][0], low=low, high=high)


def within_text(values: Mapping[str, Any]) -> str:
    """`d_model 512, bfloat16`."""
    plain = {key: str(value).lower() if isinstance(value, bool | None) else value for key, value in values.items()}
    return heading(Group(reference="", cases=(), values=plain))


def value_at(group: Group, record: Record, key: str) -> Any:
    """What a row has of an axis, or in a column."""
    return group.values.get(key, record.get(key))


def number_text(value: float) -> str:
    """A number beside an axis: `4,096`, `4.72 M`."""
    return quantity(value, SI) if abs(value) >= LARGE else f"{value:,g}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def drawn_of(report: Report, x: str = "", y: str = "", facet: str = "") -> Drawn:
    """What is to be drawn; raises FfnbenchError for a name that is none, and for a column without a number."""
    values, axes = report.plan.groups[0].values, axes_of(report.plan)
    table, records = compare_table(report), case_records(report)

    def key(name: str) -> str:
        return name if name in values or name in records[0] else key_of(name, table, records)

    several = any(len(group.cases) > 1 for group in report.plan.groups) and report.environment is not None
    facet = key(facet) if facet else ""
    usual = [name for name in (*(axis.name for axis in axes), *values) if name != facet]
    x = key(x) if x else next(iter(usual), "params")
    x = "variant" if x == "label" else x  # with where it is, for too long beside an axis
    y = key(y) if y else RATIO if several else LATENCY_S if report.environment else "params"
    found = Drawn(report, x, y, facet)
    for name in (x, y):
        if not found.found(name):
            raise FfnbenchError(f"no row of this run has a {name}", "report RUN.json -f csv shows all columns")
    if not all(_is_number(record[y]) for _, _, record in found.rows if record.get(y) is not None):
        raise FfnbenchError(f"{y} is no number", "for example --y latency, ratio, params, peak or gflops")
    if facet and all(sum(map(len, series.values())) == 1 for series in found.panels.values()):
        raise FfnbenchError(f"no rows share a panel of {facet}", "for example --facet variant")
    return found

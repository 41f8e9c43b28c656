"""Saved runs beside each other: how each row has changed from the first run to the
others, and how sure that is. Pure.

The runs are independent, and so are their processes. A file that holds several runs
knows what moves between runs; of a single run nobody does, and the interval is over its
processes alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import fmean
from typing import Any

from ffnbench.metrics import LATENCY, PEAK
from ffnbench.plan import Case, needed_by
from ffnbench.result import Estimate, Report, Verdict
from ffnbench.stats.history import change_between, history_of, log_of_row
from ffnbench.stats.interval import Mean
from ffnbench.stats.rounds import table_of

RATIO, PARAMS, FLOPS = "ratio", "params", "flops_timed"
COMPARED_TIMES = (LATENCY, RATIO)
COMPARED = (LATENCY, RATIO, PARAMS, FLOPS, PEAK)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChange:
    """One metric of one row in the first run and in another: None where a run does not
    know it.

    `change` is new over old, with an interval where it is timed; what is `busy` in one
    of the two has no change, nor a ratio there.
    """

    label: str
    metric: str
    old: Estimate | None
    new: Estimate | None
    change: Estimate | None
    busy: bool = False

    @property
    def clear(self) -> bool:
        """Whether the two differ: by more than the interval for what is timed, at all
        for what is exact.
        """
        if self.change is None:
            return False
        if self.change.low is None or self.change.high is None:
            return self.metric not in COMPARED_TIMES and self.change.value != 1
        return not self.change.low <= 1 <= self.change.high


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsCompared:
    """The labels that all runs have, and what each later run has changed since the
    first.

    `differing` is for each later run what is not the same about a row: (name, then,
    now). `means` are the geometric means of each metric over rows that are the same
    everywhere.
    """

    common: Sequence[str]
    changes: Sequence[Sequence[RunChange]]
    differing: Sequence[Mapping[str, Sequence[tuple[str, str, str]]]]
    means: Mapping[str, Sequence[RunChange]]

    def of(self, metric: str) -> list[list[RunChange]]:
        """The changes of a metric, a list of all rows for each later run."""
        return [
            [change for change in changes if change.metric == metric]
            for changes in self.changes
        ]


def compare_runs(runs: Sequence[Report]) -> RunsCompared:
    """The first run against all others."""
    first, *others = runs
    common = common_rows(runs)
    changes = [changes_between(first, run, common) for run in others]
    differing = []
    for run in others:
        differing.append(
            {
                label: case_differences(first.plan.case(label), run.plan.case(label))
                for label in common
            }
        )
    alike = {
        label for label in common if not any(of_run[label] for of_run in differing)
    }
    means = {}
    for metric in COMPARED:
        of_metric = []
        for of_run in changes:
            of_metric.append(
                [
                    change
                    for change in of_run
                    if change.metric == metric and change.label in alike
                ]
            )
        means[metric] = mean_changes(of_metric)
    return RunsCompared(
        common=common, changes=changes, differing=differing, means=means
    )


def common_rows(runs: Sequence[Report]) -> list[str]:
    """The labels that all runs have, in the order of the first."""
    others = [{case.label for case in run.plan.shown} for run in runs[1:]]
    return [
        case.label
        for case in runs[0].plan.shown
        if all(case.label in labels for labels in others)
    ]


def changes_between(old: Report, new: Report, labels: Sequence[str]) -> list[RunChange]:
    """Every metric of every row, metric by metric."""
    return [
        _change_of_row(old, new, label, metric)
        for metric in COMPARED
        for label in labels
    ]


def _change_of_row(old: Report, new: Report, label: str, metric: str) -> RunChange:
    before, after = value_in(old, label, metric), value_in(new, label, metric)
    if metric not in COMPARED_TIMES:
        change = None
        if before is not None and after is not None and before.value:
            change = Estimate(value=after.value / before.value)
        return RunChange(
            label=label, metric=metric, old=before, new=after, change=change
        )
    is_busy_in_one = is_busy(old, label) or is_busy(new, label)
    change = None
    is_to_another = False
    if metric == RATIO:
        is_to_another = old.plan.reference_of(label) != new.plan.reference_of(label)
    if not is_busy_in_one and not is_to_another:
        mean_before = mean_in(old, label, metric)
        mean_after = mean_in(new, label, metric)
        if mean_before and mean_after:
            change = change_between(mean_before, mean_after).estimate()
    return RunChange(
        label=label,
        metric=metric,
        old=before,
        new=after,
        change=change,
        busy=is_busy_in_one,
    )


def is_busy(report: Report, label: str) -> bool:
    """Whether a row's rounds were disturbed, so that it has no figure to compare."""
    comparison = report.comparison(label)
    return comparison is not None and comparison.verdict is Verdict.BUSY


def value_in(report: Report, label: str, metric: str) -> Estimate | None:
    """A metric of a row; None where the run does not know it, and of the reference's
    ratio to itself.
    """
    if metric == LATENCY:
        return report.estimate(label, LATENCY)
    if metric == RATIO:
        comparison = report.comparison(label)
        if (
            comparison is None
            or report.plan.is_reference(label)
            or is_busy(report, label)
        ):
            return None
        return comparison.ratio
    value = _exact_value(report, label, metric)
    return None if value is None else Estimate(value=value)


def _exact_value(report: Report, label: str, metric: str) -> float | None:
    if metric == PARAMS:
        return report.cost(label).params
    if metric == FLOPS:
        case = report.plan.case(label)
        flops = needed_by(case, report.cost(label)).flops
        return None if flops is None else flops // case.workload.tokens
    return report.value(label, metric)


def mean_in(report: Report, label: str, metric: str) -> Mean | None:
    """The log over all runs of a file; None for what was not measured, and for the
    reference's ratio to itself.
    """
    if report.estimate(label, LATENCY) is None or (
        metric == RATIO and report.plan.is_reference(label)
    ):
        return None
    means = []
    for run in report.runs:
        if metric == LATENCY:
            mean = table_of(run).seconds(label).mean()
        else:
            mean = log_of_row(run, label, LATENCY)
        if mean:
            means.append(mean)
    if not means:
        return None
    if len(means) > 1 and all(mean.freedom > 0 for mean in means):
        return history_of(means).over_runs
    return means[0]


def mean_changes(changes: Sequence[Sequence[RunChange]]) -> list[RunChange]:
    """The geometric means over the rows that all runs know, one a later run; none of a
    single row.

    `changes` are those of one metric, a list of the same rows for each later run.
    """
    known_everywhere = []
    for of_label in zip(*changes, strict=True):
        if all(row.change and row.old and row.new for row in of_label):
            known_everywhere.append(of_label)
    if len(known_everywhere) < 2:
        return []
    means = []
    for of_run in zip(*known_everywhere, strict=True):
        mean = RunChange(
            label="geometric mean",
            metric=of_run[0].metric,
            old=_geometric_mean(row.old for row in of_run),
            new=_geometric_mean(row.new for row in of_run),
            change=_geometric_mean(row.change for row in of_run),
        )
        means.append(mean)
    return means


def _geometric_mean(estimates: Iterable[Estimate | None]) -> Estimate | None:
    """None where a value is not above zero."""
    values = [estimate.value for estimate in estimates if estimate]
    if min(values) <= 0:
        return None
    return Estimate(value=math.exp(fmean(map(math.log, values))))


def case_differences(old: Case, new: Case) -> list[tuple[str, str, str]]:
    """What is not the same about two cases of one label, of the network and its
    workload: its name, then, now.
    """
    values: list[tuple[str, object, object]] = []
    pairs: list[tuple[Any, Any]] = [(old.workload, new.workload)]
    if type(old.ffn) is type(new.ffn):
        pairs.insert(0, (old.ffn, new.ffn))
    else:
        values.append(("network", old.variant, new.variant))
    for then, now in pairs:
        for field in fields(then):
            name = field.name
            values.append((name, getattr(then, name), getattr(now, name)))
    return [(name, str(then), str(now)) for name, then, now in values if then != now]

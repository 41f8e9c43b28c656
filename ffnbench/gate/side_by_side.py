"""Saved runs beside each other: how each row has changed from the first run to the
others, with an interval. Pure.

The runs are independent, and so are their processes. A file of several runs shows what
moves between runs. A single run does not, and its interval is over its processes only.
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
# the metrics that come from timed samples and have intervals, and then all metrics that
# are compared
COMPARED_TIMES = (LATENCY, RATIO)
COMPARED = (LATENCY, RATIO, PARAMS, FLOPS, PEAK)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChange:
    """One metric of one row in the first run (`old`) and in a later one (`new`); None
    in a run that does not know it.

    `change` is new over old, with an interval if the metric is timed. It is None for a
    row that is `busy` in one of the two runs, and so is the ratio in that run.
    """

    label: str
    metric: str
    old: Estimate | None
    new: Estimate | None
    change: Estimate | None
    busy: bool = False

    @property
    def clear(self) -> bool:
        """Whether the two runs differ: what is timed has to do so by more than its
        interval.
        """
        if self.change is None:
            return False
        if self.change.low is None or self.change.high is None:
            return self.metric not in COMPARED_TIMES and self.change.value != 1
        return not self.change.low <= 1 <= self.change.high


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsCompared:
    """The labels that all runs have, and the changes of each later run since the first
    one.

    `differing` has for each later run, by label, what is not the same about a row:
    (name, then, now). `means` has for each metric the geometric means over the rows
    that are the same in all runs, one for each later run.
    """

    common: Sequence[str]
    changes: Sequence[Sequence[RunChange]]
    differing: Sequence[Mapping[str, Sequence[tuple[str, str, str]]]]
    means: Mapping[str, Sequence[RunChange]]

    def of(self, metric: str) -> list[list[RunChange]]:
        """The changes of one metric: for each later run a list of all rows."""
        return [
            [change for change in changes if change.metric == metric]
            for changes in self.changes
        ]


def compare_runs(runs: Sequence[Report]) -> RunsCompared:
    """Compare the first run with each of the others."""
    first, *others = runs
    common = common_rows(runs)
    changes = [changes_between(first, run, common) for run in others]
    differing = [
        {
            label: case_differences(first.plan.case(label), run.plan.case(label))
            for label in common
        }
        for run in others
    ]
    alike = {
        label for label in common if not any(of_run[label] for of_run in differing)
    }
    of_alike = [
        [change for change in of_run if change.label in alike] for of_run in changes
    ]
    means = {metric: mean_changes(metric, of_alike) for metric in COMPARED}
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
    """The changes of all metrics of these rows, metric by metric."""
    return [
        _change_of_row(old, new, label, metric)
        for metric in COMPARED
        for label in labels
    ]


def _change_of_row(old: Report, new: Report, label: str, metric: str) -> RunChange:
    """The change of one metric of one row; ratios to two different references have
    none.
    """
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
    has_other_reference = metric == RATIO and (
        old.plan.reference_of(label) != new.plan.reference_of(label)
    )
    if not is_busy_in_one and not has_other_reference:
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
    """Whether so many rounds of a row were disturbed that it has no time to compare."""
    comparison = report.comparison(label)
    return comparison is not None and comparison.verdict is Verdict.BUSY


def value_in(report: Report, label: str, metric: str) -> Estimate | None:
    """A metric of a row; None if the run does not know it, and for the ratio of a
    reference to itself.
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
    """A metric that is counted, FLOPs per token; None if it is not known."""
    if metric == PARAMS:
        return report.cost(label).params
    if metric == FLOPS:
        case = report.plan.case(label)
        flops = needed_by(case, report.cost(label)).flops
        return None if flops is None else flops // case.workload.tokens
    return report.value(label, metric)


def mean_in(report: Report, label: str, metric: str) -> Mean | None:
    """The mean log of a timed metric over all runs of a file; None if it was not
    measured, and for the ratio of a reference to itself.

    It includes what moves between runs if the file has several, each of several
    workers.
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


def mean_changes(
    metric: str, changes: Sequence[Sequence[RunChange]]
) -> list[RunChange]:
    """The geometric means of a metric over the rows that all runs know, one for each
    later run; none if that is a single row.

    `changes` has for each later run the changes of the same rows.
    """
    known_everywhere = []
    for of_row in zip(*changes, strict=True):
        is_known = all(change.change and change.old and change.new for change in of_row)
        if is_known and of_row[0].metric == metric:
            known_everywhere.append(of_row)
    if len(known_everywhere) < 2:
        return []
    return [
        RunChange(
            label="geometric mean",
            metric=metric,
            old=_geometric_mean(change.old for change in of_run),
            new=_geometric_mean(change.new for change in of_run),
            change=_geometric_mean(change.change for change in of_run),
        )
        for of_run in zip(*known_everywhere, strict=True)
    ]


def _geometric_mean(estimates: Iterable[Estimate | None]) -> Estimate | None:
    """The geometric mean of the estimates; None if one of them is not above zero."""
    values = [estimate.value for estimate in estimates if estimate]
    if min(values) <= 0:
        return None
    return Estimate(value=math.exp(fmean(map(math.log, values))))


def case_differences(old: Case, new: Case) -> list[tuple[str, str, str]]:
    """What is not the same about the networks and workloads of two cases of one label:
    (name, then, now) for each difference.
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

"""The findings of a check, from a report, a baseline and a policy. Pure, and the only
place where the status of a row is decided.

Exact metrics are equal or not. Latency is checked by its ratio to the reference in the
same run, so that the speed of a machine cancels. The change is the ratio now over that
of the baseline's runs. Its interval includes the scatter of the workers of all runs,
and what moves between runs (history.py). No row regresses by a point estimate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from ffnbench.common.errors import EXIT_REGRESSED, EXIT_UNFINISHED, FfnbenchError
from ffnbench.common.names import hint_for
from ffnbench.common.units import read_share
from ffnbench.plan.metrics import LATENCY, METRICS, Metric
from ffnbench.plan.plan import Plan, Workload
from ffnbench.record.result import CONFIDENCE, Agreement, Environment, Estimate, Report
from ffnbench.stats.history import (
    Change,
    History,
    histories_of,
    mean_of_row,
    mismatch_of_row,
)
from ffnbench.stats.rounds import Rounds, ratio_logs, rounds_of
from ffnbench.stats.verdict import ONE_WORKER, busy_text, control_slack

RowKey = tuple[str, str]  # case, metric
DEFAULT_LATENCY = 0.05
# what a row of a check is about if it is about no metric: the spec of a case, and
# whether head computes what base does
SPEC, OUTPUT = "spec", "output"
# a difference between two outputs in float64 that rounding explains: it leaves 1e-15,
# or 1e-7 where a module casts to float32 inside
EXACT_WITHIN = 1e-6
EXIT_UNCLEAR = 4


class Status(StrEnum):
    """What a check says of one metric of one case."""

    REGRESSED = "REGRESSED"
    UNCLEAR = "UNCLEAR"
    MISSING = "MISSING"
    INCOMPARABLE = "INCOMPARABLE"
    NEW = "NEW"
    IMPROVED = "IMPROVED"
    OK = "OK"

    @property
    def word(self) -> str:
        """The status as people read it; files and Python have the value."""
        return "can't tell" if self is Status.UNCLEAR else self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One row of a check: its value before and now, and the status that follows.

    `change` is now over before.
    """

    case: str
    metric: str
    status: Status
    tolerance: float
    before: float | None = None
    now: float | None = None
    change: Estimate | None = None
    reason: str = ""

    @property
    def ratio(self) -> float | None:
        """The change without its interval, of an exact metric too; None if it was 0, or
        if one of the values is not known.
        """
        if self.change is not None:
            return self.change.value
        if self.now is None or not self.before:
            return None
        return self.now / self.before


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The answer of a check: the finding on every row, and the two reports that they
    follow from.

    `against` is the file of the baseline, `saved` that of a run which was measured
    before. If there is no baseline, `sides` says in words what base and head are.
    `command` asks the same again.
    """

    findings: tuple[Finding, ...]
    before: Report
    now: Report
    against: str = ""
    saved: str = ""
    sides: tuple[str, ...] = ()
    command: str = ""

    @property
    def smallest(self) -> float | None:
        """The smallest slowdown that would have been found in every latency row that is
        UNCLEAR; None if no row is.
        """
        slowdowns = [
            (1 + finding.change.half_width) * (1 + finding.tolerance) - 1
            for finding in self._latencies(Status.UNCLEAR)
            if finding.change and finding.change.half_width is not None
        ]
        return max(slowdowns, default=None)

    @property
    def excluded(self) -> float | None:
        """The slowdown that every latency row excludes which is OK or IMPROVED; None if
        no row is.
        """
        passed = self._latencies(Status.OK, Status.IMPROVED)
        return max((finding.tolerance for finding in passed), default=None)

    def _latencies(self, *statuses: Status) -> list[Finding]:
        return [
            finding
            for finding in self.findings
            if finding.metric == LATENCY and finding.status in statuses
        ]

    @property
    def interrupted(self) -> bool:
        """Whether it was ended by hand."""
        return self.now.interrupted


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How much a metric of a case may grow. A tolerance is given for one case, or for
    all; an exact metric without one may not change.
    """

    # the label of a case or "" for all, the metric, the tolerance as a share
    tolerances: tuple[tuple[str, str, float], ...] = ()

    def of(self, case: str, metric: str) -> float:
        """The tolerance of one metric of one case: that of the case, or that of all, or
        the default.
        """
        given = {(label, name): tolerance for label, name, tolerance in self.tolerances}
        default = DEFAULT_LATENCY if metric == LATENCY else 0.0
        return given.get((case, metric), given.get(("", metric), default))


EXACT_METRICS = tuple(metric for metric in METRICS if metric.checked and metric.exact)
CHECKED_METRICS = (*(metric.name for metric in EXACT_METRICS), LATENCY)


def parse_tolerances(
    texts: Iterable[str], rows: Mapping[str, str]
) -> tuple[tuple[str, str, float], ...]:
    """Read tolerances such as `latency=5%`, `5%` (which is of latency) and
    `swiglu:latency=8%` as those of a Policy.

    `rows` are by their labels the names of rows, which may stand for them in all
    groups of a sweep; `llama3-8b` stands for `llama3-8b (swiglu)`. Raises FfnbenchError
    for any other text, and for a number without a unit, which could be percent or a
    share.
    """
    of_labels: list[tuple[str, str, float]] = []
    of_groups: list[tuple[str, str, float]] = []
    for text in texts:
        if "=" not in text and text.strip()[:1].isdigit():
            name, size = LATENCY, text
        else:
            name, equals, size = text.rpartition("=")
            if not equals:
                raise FfnbenchError(
                    f"cannot read the tolerance {text!r}",
                    "for example latency=5% or swiglu:latency=8%",
                )
        case, _, metric = name.rpartition(":")
        if metric not in CHECKED_METRICS:
            hint = hint_for(
                metric, CHECKED_METRICS, "metrics: " + ", ".join(CHECKED_METRICS)
            )
            raise FfnbenchError(f"no metric is called {metric!r}, in {text!r}", hint)
        if not case or case in rows:
            of_labels.append((case, metric, _read_tolerance(size, text, metric)))
            continue
        cases = [
            label
            for label, row in rows.items()
            if case in (row, row.partition(" (")[0])
        ]
        if not cases:
            hint = hint_for(case, rows, "cases: " + ", ".join(rows))
            raise FfnbenchError(f"the baseline has no case {case!r}, in {text!r}", hint)
        fraction = _read_tolerance(size, text, metric)
        of_groups += [(label, metric, fraction) for label in cases]
    # what is said of one row by its whole label comes last, and counts
    return (*of_groups, *of_labels)


def _read_tolerance(size: str, text: str, metric: str) -> float:
    """Read the size of a tolerance; messages quote `text`, which is the whole of it."""
    try:
        fraction = read_share(size)
    except FfnbenchError as problem:
        raise FfnbenchError(
            f"the tolerance {text!r}: {problem.message}", problem.hint
        ) from None
    if not 0 <= fraction < 10 or (metric == LATENCY and fraction == 0):
        raise FfnbenchError(
            f"the tolerance {text!r} must be above zero", "for example latency=5%"
        )
    return fraction


def exact_value(report: Report, label: str, metric: Metric) -> float | None:
    """The value of an exact metric: as it was measured, else by its closed form, which
    the tests hold equal to that; None if neither is known.

    A run that ended early has no value of what it did not come to measure.
    """
    estimate = report.estimate(label, metric.name)
    if estimate:
        return estimate.value
    cost = report.cost(label)
    ended_before = metric.job and (report.interrupted or report.stopped)
    if not metric.closed_form or cost.failed or ended_before:
        return None
    value: float | None = getattr(cost, metric.name)
    return value


def exact_findings(before: Report, now: Report, policy: Policy) -> list[Finding]:
    """The findings on the spec of every case, and on every exact metric that one of the
    two runs knows.
    """
    labels_now = {case.label for case in now.plan.shown}
    labels_before = {case.label for case in before.plan.shown}
    findings = []
    for case in before.plan.shown:
        label = case.label
        spec = label, SPEC
        if label not in labels_now:
            findings.append(
                _finding(
                    spec, Status.MISSING, policy, reason="this run has no such case"
                )
            )
            continue
        case_now = now.plan.case(label)
        fed_otherwise = workloads_differ(
            case.workload.identity, case_now.workload.identity
        )
        difference = fed_otherwise
        if case_now.ffn != case.ffn:
            difference = "another network"
        status = Status.REGRESSED if difference else Status.OK
        findings.append(_finding(spec, status, policy, reason=difference))
        for metric in EXACT_METRICS:
            finding = _exact_finding(
                before, now, label, metric, policy, alike=not fed_otherwise
            )
            if finding:
                findings.append(finding)
    new = [case.label for case in now.plan.shown if case.label not in labels_before]
    return findings + [_finding((label, SPEC), Status.NEW, policy) for label in new]


def workloads_differ(before: Workload, now: Workload) -> str:
    """In which fields two workloads differ, with both values; empty if they do not."""
    values_now = asdict(now)
    return "; ".join(
        f"{name} {then} then, {values_now[name]} now"
        for name, then in asdict(before).items()
        if then != values_now[name]
    )


def _exact_finding(
    before: Report,
    now: Report,
    label: str,
    metric: Metric,
    policy: Policy,
    *,
    alike: bool,
) -> Finding | None:
    """The finding on one exact metric; None if neither run knows it.

    `alike` says that the row is fed as it was: a smaller value for less work is no
    gain.
    """
    row = label, metric.name
    old, new = exact_value(before, label, metric), exact_value(now, label, metric)
    if old is None and new is None:
        return None
    if old is None:
        return _finding(row, Status.NEW, policy, now=new)
    if new is None or math.isnan(new):
        return replace(_without_value(row, policy, now, label), before=old)
    if metric.less_is_better and new < old and alike:
        status = Status.IMPROVED
    elif abs(new - old) <= policy.of(label, metric.name) * abs(old):
        status = Status.OK
    else:
        status = Status.REGRESSED
    return _finding(row, status, policy, before=old, now=new)


def _without_value(row: RowKey, policy: Policy, now: Report, *labels: str) -> Finding:
    """The finding on a row that this run has not measured: MISSING if one of these
    labels has failed, with its message; UNCLEAR if the budget was over before.
    """
    for label in labels:
        failure = now.failure(label)
        if failure:
            return _finding(row, Status.MISSING, policy, reason=failure.message)
    if now.out_of_budget:
        return _finding(row, Status.UNCLEAR, policy, reason=now.stopped)
    return _finding(row, Status.MISSING, policy, reason="not measured in this run")


def _finding(row: RowKey, status: Status, policy: Policy, **more: Any) -> Finding:
    """A finding on a row, with the row's tolerance."""
    return Finding(
        case=row[0], metric=row[1], status=status, tolerance=policy.of(*row), **more
    )


def machine_kind(environment: Environment | None) -> tuple[object, ...]:
    """What ratios depend on: the processor and the GPU, but not how fast they are at
    the time.
    """
    if environment is None:
        return ()
    return environment.cpu, environment.cpu_capability, environment.gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineTimes:
    """A baseline, and by label the history of each row that it has an interval of."""

    report: Report
    rows: Mapping[str, History]


def baseline_times(before: Report) -> BaselineTimes:
    """The times of a baseline. All interim analyses of a check use them, so they are
    read once.
    """
    return BaselineTimes(report=before, rows=histories_of(before))


def latency_findings(
    baseline: BaselineTimes,
    now: Report,
    policy: Policy,
    confidence: float = CONFIDENCE,
) -> list[Finding]:
    """The findings on the latency of every row of the baseline, by its ratio to the
    reference then and now.

    Today's run is compared with the mean of the baseline's runs. `confidence` is the
    level that this interim analysis takes for the stated CONFIDENCE.
    """
    before, rounds = baseline.report, rounds_of(now)
    if machine_kind(before.environment) != machine_kind(now.environment):
        return incomparable(
            before,
            policy,
            "another kind of machine: measure both versions in one job (`ffnbench ab --help`)",
        )
    findings = []
    for label in _timed(before.plan):
        if before.could_not_run(label):
            continue
        fed_otherwise = _fed_otherwise(before.plan, now.plan, label)
        if fed_otherwise:
            row = label, LATENCY
            findings.append(
                _finding(row, Status.INCOMPARABLE, policy, reason=fed_otherwise)
            )
            continue
        history, mean = baseline.rows.get(label), mean_of_row(now, rounds, label)
        change = None
        if history and mean:
            change = history.change(mean.inflated(confidence))
        findings.append(_time_finding(label, change, now, rounds, policy))
    return findings


def paired_findings(
    now: Report,
    policy: Policy,
    confidence: float = CONFIDENCE,
) -> list[Finding]:
    """The findings on the latency of every row against the reference of the same run:
    old and new code in the same rounds.

    Nothing moves between runs here, so the change is the ratio with its own interval.
    Before and now are seconds if these are known.
    """
    rounds = rounds_of(now)
    findings = []
    for label in _timed(now.plan):
        mean = mean_of_row(now, rounds, label)
        seconds = now.value(now.plan.reference_of(label), LATENCY)
        change = None
        if mean:
            log_seconds = math.log(seconds) if seconds else 0.0
            difference = mean.inflated(confidence)
            change = Change(log_seconds, log_seconds + mean.mean, difference)
        finding = _time_finding(label, change, now, rounds, policy)
        if not seconds:
            finding = replace(finding, before=None, now=None)
        findings.append(finding)
    return findings


def _fed_otherwise(before: Plan, now: Plan, label: str) -> str:
    """In what a row, or else its reference, is fed otherwise than before, so that the
    times can't be compared; empty if in nothing.
    """
    labels_now = {case.label for case in now.cases}
    for name in (label, before.reference_of(label)):
        if name in labels_now:
            difference = workloads_differ(
                before.case(name).workload.inputs, now.case(name).workload.inputs
            )
            if difference:
                return difference
    return ""


def _time_finding(
    label: str, change: Change | None, now: Report, rounds: Rounds, policy: Policy
) -> Finding:
    """The finding on a row's latency by its change, which is None if it is not known.

    A row that computes something else has no time to compare, nor has one whose
    reference does.

    The interval is not corrected for the number of rows: unchanged code lies a whole
    tolerance below its limit, so that even twenty rows are not accused by chance if the
    tolerance is wider than an interval.
    """
    row = label, LATENCY
    mismatch = mismatch_of_row(now, label)
    if mismatch:
        return _finding(row, Status.MISSING, policy, reason=mismatch)
    reference = now.plan.reference_of(label)
    logs, slack = ratio_logs(rounds, label, reference), control_slack(rounds)
    if change is None and not logs.rounds:
        return _without_value(row, policy, now, label, reference)
    if change is None:
        reason = busy_text(now) if logs.clean_rounds < logs.rounds else ONE_WORKER
        return _finding(row, Status.UNCLEAR, policy, reason=reason)
    half = change.difference.half_width(CONFIDENCE) + slack
    low = math.exp(change.difference.mean - half)
    high = math.exp(change.difference.mean + half)
    status = status_of(low, high, policy.of(*row))
    reason = ""
    if status is Status.UNCLEAR and logs.disturbed:
        reason = busy_text(now)
    elif status is Status.UNCLEAR and slack:
        reason = "the reference differs from itself: the machine is too noisy now"
    before_and_now = {"before": math.exp(change.before), "now": math.exp(change.now)}
    return _finding(
        row, status, policy, **before_and_now, change=change.estimate(), reason=reason
    )


def incomparable(before: Report, policy: Policy, reason: str) -> list[Finding]:
    """The finding INCOMPARABLE for every row whose time would be checked."""
    return [
        _finding((label, LATENCY), Status.INCOMPARABLE, policy, reason=reason)
        for label in _timed(before.plan)
    ]


def _timed(plan: Plan) -> list[str]:
    """The labels of the rows whose latency is checked: of each that has a
    reference.
    """
    return [case.label for case in plan.shown if not plan.is_reference(case.label)]


# The status of a change by its interval [low, high], now over before, and the limit
# 1 + tolerance, is that of the first rule that holds.
RATIO_RULES: tuple[tuple[Callable[[float, float, float], bool], Status], ...] = (
    (lambda low, high, limit: low > limit, Status.REGRESSED),
    (lambda low, high, limit: high > limit, Status.UNCLEAR),
    (lambda low, high, limit: high < 1, Status.IMPROVED),
    (lambda low, high, limit: True, Status.OK),
)


def status_of(low: float, high: float, tolerance: float) -> Status:
    """The status of a change that is known by an interval."""
    limit = 1 + tolerance
    return next(status for holds, status in RATIO_RULES if holds(low, high, limit))


def exit_code(checked: Checked, *, unclear_fails: bool) -> int:
    """The exit code of a check: that of a regression, else that of a row that failed or
    was not measured, else that of one that can't be told if `unclear_fails`, else 0.
    """
    statuses = {finding.status for finding in checked.findings}
    if Status.REGRESSED in statuses:
        return EXIT_REGRESSED
    if Status.MISSING in statuses or checked.now.failed_rows:
        return EXIT_UNFINISHED
    if unclear_fails and statuses & {Status.UNCLEAR, Status.INCOMPARABLE}:
        return EXIT_UNCLEAR
    return 0


def without_gain(findings: Iterable[Finding], output: Finding) -> list[Finding]:
    """The findings, none of which is a gain if the finding `output` can't tell whether
    the two sides compute the same.
    """
    if output.status is not Status.UNCLEAR:
        return list(findings)
    reason = "faster, but it may compute something else: see the row `output`"
    without = []
    for finding in findings:
        if finding.status is Status.IMPROVED:
            finding = replace(finding, status=Status.UNCLEAR, reason=reason)
        without.append(finding)
    return without


def output_finding(label: str, agreement: Agreement, *, allowed: bool) -> Finding:
    """The finding on whether head computes what base does: REGRESSED if it does not, or
    OK if that is `allowed`.

    It is UNCLEAR if not only the outputs differ but also the weights, because base's
    could not be copied to head.
    """
    status = Status.OK
    reasons = [_how_outputs_differ(agreement)]
    if agreement.own_weights:
        reasons.append(f"its weights are not base's: {agreement.own_weights}")
    if reasons[0] and allowed:
        reasons.append("allowed by --allow-mismatch")
    elif reasons[0] and agreement.own_weights:
        status = Status.UNCLEAR
    elif reasons[0]:
        status = Status.REGRESSED
        reasons.append("not timed (--allow-mismatch times it anyway)")
    return Finding(
        case=label,
        metric=OUTPUT,
        status=status,
        tolerance=agreement.tolerance,
        now=agreement.error,
        reason="; ".join(filter(None, reasons)),
    )


def _how_outputs_differ(agreement: Agreement) -> str:
    """By how much the outputs differ, in the case's dtype or in float64; empty if
    rounding explains it.
    """
    error, exact_error = agreement.error, agreement.exact_error
    if error is None:
        return "head's output is not finite, or has another shape than base's"
    in_float64 = exact_error is not None and exact_error > min(
        agreement.tolerance, EXACT_WITHIN
    )
    if error > agreement.tolerance:
        text = f"head's output differs from base's by {error:.1e}"
        return f"{text}, in float64 too" if in_float64 else text
    if in_float64:
        return f"head's output differs from base's by {exact_error:.1e} in float64"
    return ""

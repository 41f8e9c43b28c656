"""Report x baseline x policy -> findings. Pure, and the only place where the status of
a check is decided.

Exact metrics are equal or not. Latency is checked by its in-run ratio to the reference,
so that a faster or slower machine of the same kind cancels: the change is the ratio now
over the ratio of the baseline's runs, with an interval that knows of the workers of all
of them and of what moves between runs (history.py). Nothing regresses on a point
estimate.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from ffnbench.common.errors import EXIT_REGRESSED, FfnbenchError
from ffnbench.common.names import hint_for
from ffnbench.common.units import read_share
from ffnbench.metrics import LATENCY, METRICS, Metric
from ffnbench.plan import SWEPT, Case, Plan
from ffnbench.result import CONFIDENCE, Agreement, Environment, Estimate, Report
from ffnbench.stats.history import (
    SECONDS,
    Change,
    History,
    history_of_row,
    log_of_row,
    mismatch_of_row,
    rounds_of_row,
)
from ffnbench.stats.interval import Mean, VarianceEstimate
from ffnbench.stats.machines import mean_over_machines
from ffnbench.stats.verdict import ONE_WORKER, busy_text, control_slack

RowKey = tuple[str, str]  # case, metric
DEFAULT_LATENCY, DEFAULT_SECONDS = 0.05, 0.10
# of what a case is fed, and how: times of cases that differ here say nothing of each
# other
FED = (
    "batch",
    "seq_len",
    "dtype",
    "mode",
    "time",
    "cache",
    "matmul_precision",
    "reduced_reductions",
)
# what makes it another row
IDENTITY = (*FED, "backend", "compile", "freeze", "weights", "group", "spin")


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
        """What people read; files and Python have the value."""
        return "can't tell" if self is Status.UNCLEAR else self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One row of a check: what was, what is, and what follows. `change` is now over
    before; where a run on another machine is confirmed, it is that of both runs, and
    `first_run` and `this_run` are those of each.
    """

    case: str
    metric: str
    status: Status
    tolerance: float
    before: float | None = None
    now: float | None = None
    change: Estimate | None = None
    reason: str = ""
    first_run: Estimate | None = None
    this_run: Estimate | None = None

    @property
    def ratio(self) -> float | None:
        """The change without its interval, of an exact metric too; None from nothing,
        or to what is not known.
        """
        if self.change is not None:
            return self.change.value
        if self.now is None or not self.before:
            return None
        return self.now / self.before


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The answer of a check: what follows for every row, and the two reports that it
    follows from.

    `against` is where the baseline stands, `saved` where the run does that was measured
    before; for two sides of one run `sides` says what they are. `command` asks the same
    again. `confirms` is the answer whose rows were measured again.
    """

    findings: tuple[Finding, ...]
    before: Report
    now: Report
    against: str = ""
    saved: str = ""
    sides: tuple[str, ...] = ()
    command: str = ""
    confirms: str = ""

    @property
    def smallest(self) -> float | None:
        """The smallest slowdown that would have been caught in every latency row that
        could not be decided.
        """
        slowdowns = []
        for finding in self.findings:
            change = finding.change
            if finding.metric != LATENCY or finding.status is not Status.UNCLEAR:
                continue
            if change is not None and change.half_width is not None:
                slowdowns.append((1 + change.half_width) * (1 + finding.tolerance) - 1)
        return max(slowdowns, default=None)

    @property
    def excluded(self) -> float | None:
        """The slowdown that every latency row excludes which is OK or faster; None
        where none is.
        """
        passed = [
            f
            for f in self.findings
            if f.metric == LATENCY and f.status in (Status.OK, Status.IMPROVED)
        ]
        return max((f.tolerance for f in passed), default=None)

    @property
    def interrupted(self) -> bool:
        """Whether it was ended by hand."""
        return self.now.interrupted


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How much a metric may grow: by case and metric, by metric; exact metrics not at
    all unless it is said.
    """

    tolerances: tuple[tuple[str, str, float], ...] = ()  # case or "", metric, fraction
    across_machines: bool = False
    absolute: bool = False

    def of(self, case: str, metric: str) -> float:
        """The tolerance of one metric of one case: the most particular one that was
        given.
        """
        given = {(label, name): tolerance for label, name, tolerance in self.tolerances}
        default = {LATENCY: DEFAULT_LATENCY, SECONDS: DEFAULT_SECONDS}.get(metric, 0.0)
        return given.get((case, metric), given.get(("", metric), default))


EXACT_METRICS = tuple(metric for metric in METRICS if metric.checked and metric.exact)
TIMED_METRICS = (LATENCY, SECONDS)
CHECKED_METRICS = (*(metric.name for metric in EXACT_METRICS), *TIMED_METRICS)


def parse_tolerances(
    texts: Iterable[str], labels: Iterable[str]
) -> tuple[tuple[str, str, float], ...]:
    """Read `latency=5%`, `5%` (latency's), `swiglu:latency=8%` into (case or "",
    metric, fraction).

    Raises FfnbenchError for what is none of these, and for a bare number, which could
    be percent or a share.
    """
    all_labels = list(labels)
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
        if not case or case in all_labels:
            of_labels.append((case, metric, _read_tolerance(size, text, metric)))
            continue
        cases = _cases_of(case, all_labels)
        if not cases:
            hint = hint_for(case, all_labels, "cases: " + ", ".join(all_labels))
            raise FfnbenchError(f"the baseline has no case {case!r}, in {text!r}", hint)
        fraction = _read_tolerance(size, text, metric)
        of_groups += [(label, metric, fraction) for label in cases]
    # what is said of one row by its whole label comes last, and counts
    return (*of_groups, *of_labels)


def _read_tolerance(size: str, text: str, metric: str) -> float:
    try:
        fraction = read_share(size)
    except FfnbenchError as problem:
        raise FfnbenchError(
            f"the tolerance {text!r}: {problem.message}", problem.hint
        ) from None
    if not 0 <= fraction < 10 or (metric in TIMED_METRICS and fraction == 0):
        raise FfnbenchError(
            f"the tolerance {text!r} must be above zero", "for example latency=5%"
        )
    return fraction


def _cases_of(name: str, labels: Iterable[str]) -> list[str]:
    """The rows that a shorter name means: `llama3-8b` is `llama3-8b (swiglu)`, and
    `swiglu` is it in every group.
    """
    suffix = re.compile(rf"{re.escape(name)}( \(.*\))?(@({'|'.join(SWEPT)})=[^@]*)*")
    return [label for label in labels if suffix.fullmatch(label)]


def exact_value(report: Report, label: str, metric: Metric) -> float | None:
    """What was measured, or the closed form where nothing was and there is one: the
    tests hold the two equal.

    A run that ended early has no closed form of what it did not come to.
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
    """Every exact metric that the baseline knows, and the specs."""
    labels_now = {case.label for case in now.plan.shown}
    labels_before = {case.label for case in before.plan.shown}
    findings = []
    for case in before.plan.shown:
        label = case.label
        if label not in labels_now:
            findings.append(
                _finding(
                    (label, "spec"),
                    Status.MISSING,
                    policy,
                    reason="this run has no such case",
                )
            )
            continue
        case_now = now.plan.case(label)
        fed_otherwise = workloads_differ(case, case_now, IDENTITY)
        if case_now.ffn != case.ffn:
            findings.append(
                _finding(
                    (label, "spec"), Status.REGRESSED, policy, reason="another network"
                )
            )
        elif fed_otherwise:
            findings.append(
                _finding(
                    (label, "spec"), Status.REGRESSED, policy, reason=fed_otherwise
                )
            )
        else:
            findings.append(_finding((label, "spec"), Status.OK, policy))
        for metric in EXACT_METRICS:
            finding = _exact_finding(
                before, now, label, metric, policy, alike=not fed_otherwise
            )
            if finding:
                findings.append(finding)
    new = [case.label for case in now.plan.shown if case.label not in labels_before]
    return findings + [_finding((label, "spec"), Status.NEW, policy) for label in new]


def workloads_differ(before: Case, now: Case, names: Iterable[str]) -> str:
    """What of a workload is not the same; empty where all is."""
    values = [
        (name, getattr(before.workload, name), getattr(now.workload, name))
        for name in names
    ]
    return "; ".join(
        f"{name} {then} then, {here} now" for name, then, here in values if then != here
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
    """`alike` says that the row is fed as it was: less for less work is no gain."""
    row = label, metric.name
    old, new = exact_value(before, label, metric), exact_value(now, label, metric)
    if old is None and new is None:
        return None
    if old is None:
        return _finding(row, Status.NEW, policy, now=new)
    if new is None or math.isnan(new):
        return _finding(
            row,
            Status.MISSING,
            policy,
            before=old,
            reason=_why_not_measured(now, label),
        )
    if metric.less_is_better and new < old and alike:
        status = Status.IMPROVED
    elif abs(new - old) <= policy.of(label, metric.name) * abs(old):
        status = Status.OK
    else:
        status = Status.REGRESSED
    return _finding(row, status, policy, before=old, now=new)


def _why_not_measured(now: Report, *labels: str) -> str:
    """The first failure of these rows."""
    for label in labels:
        failure = now.failure(label)
        if failure:
            return failure.message
    return "not measured in this run"


def _finding(row: RowKey, status: Status, policy: Policy, **more: Any) -> Finding:
    return Finding(
        case=row[0], metric=row[1], status=status, tolerance=policy.of(*row), **more
    )


def machine_kind(environment: Environment | None) -> tuple[object, ...]:
    """What ratios depend on: the processor and the GPU, not their speed of the day."""
    if environment is None:
        return ()
    return environment.cpu, environment.cpu_capability, environment.gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineTimes:
    """The history of each row whose time is checked; None for a row of which the
    baseline has no interval.
    """

    report: Report
    rows: Mapping[RowKey, History | None]


def baseline_times(before: Report, policy: Policy) -> BaselineTimes:
    """A baseline read once, for all interim analyses of a check."""
    rows = {
        row: history_of_row(before, *row) for row in _timed_rows(before.plan, policy)
    }
    return BaselineTimes(report=before, rows=rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRun:
    """The rows whose time regressed in a run on another machine: the log of each, and
    how far (in logs) the control was off there.
    """

    means: Mapping[RowKey, Mean]
    slack: float


# of base in the rounds of head: there is no other run to vary from
WITHIN_RUN = History(
    mean=0.0,
    own=VarianceEstimate(0.0, 1.0),
    between=VarianceEstimate(0.0, 1.0),
    effective=1.0,
)


def latency_findings(
    baseline: BaselineTimes,
    now: Report,
    policy: Policy,
    confidence: float = CONFIDENCE,
    earlier: EarlierRun | None = None,
) -> list[Finding]:
    """The latency of every row of the baseline against the reference's, then and now;
    seconds where asked for.

    Today's run is compared with the mean of the baseline's runs. `confidence` is the
    level that this interim analysis takes for the stated CONFIDENCE. Of an `earlier`
    run its rows alone are checked, by both runs together.
    """
    before, slack = baseline.report, control_slack(now)
    if not policy.across_machines and machine_kind(before.environment) != machine_kind(
        now.environment
    ):
        return incomparable(
            before,
            policy,
            "another kind of machine: measure both versions in one job (`ffnbench ab --help`)",
        )
    findings = []
    for row, history in baseline.rows.items():
        if earlier is not None and row not in earlier.means:
            continue
        fed_otherwise = _fed_otherwise(before.plan, now.plan, row[0])
        if fed_otherwise:
            findings.append(
                _finding(row, Status.INCOMPARABLE, policy, reason=fed_otherwise)
            )
            continue
        mean = mean_with_interval(now, row, confidence)
        if earlier is None:
            change = history.change(mean) if history and mean else None
            findings.append(_time_finding(row, change, now, policy, slack))
        else:
            findings.append(_confirmed(row, history, mean, earlier, now, policy, slack))
    return findings


def paired_findings(
    now: Report,
    policy: Policy,
    confidence: float = CONFIDENCE,
    earlier: EarlierRun | None = None,
) -> list[Finding]:
    """The latency of every row against the reference of the same run: old and new code
    in the same rounds.

    There is no other run to vary from, so the change is the ratio with its own
    interval. Before and now are seconds where these are known. Of an `earlier` run its
    rows alone are checked, by both runs together, which have no seconds in common.
    """
    slack = control_slack(now)
    findings = []
    for row in _timed_rows(now.plan, replace(policy, absolute=False)):
        mean = mean_with_interval(now, row, confidence)
        if earlier is None:
            change = None
            if mean:
                seconds = now.value(now.plan.reference_of(row[0]), LATENCY) or 1.0
                log_seconds = math.log(seconds)
                change = Change(log_seconds, log_seconds + mean.mean, mean)
            findings.append(_time_finding(row, change, now, policy, slack))
        elif row in earlier.means:
            finding = _confirmed(row, WITHIN_RUN, mean, earlier, now, policy, slack)
            findings.append(replace(finding, before=None, now=None))
    return findings


def _confirmed(
    row: RowKey,
    history: History | None,
    mean: Mean | None,
    earlier: EarlierRun,
    now: Report,
    policy: Policy,
    slack: float,
) -> Finding:
    """What follows for one row from a run on another machine and this one, each of
    which is shown beside both together.
    """
    if history is None:
        return _time_finding(row, None, now, policy, slack)
    first = earlier.means[row]
    both = this_run = None
    if mean is not None:
        both = history.change_over_machines(mean_over_machines(first, mean))
        this_run = history.change(mean).estimate()
    finding = _time_finding(row, both, now, policy, max(slack, earlier.slack))
    reason = finding.reason
    if finding.status is Status.UNCLEAR and not reason:
        reason = "the interval of both runs together crosses the limit"
    return replace(
        finding,
        reason=reason,
        first_run=history.change(first).estimate(),
        this_run=this_run,
    )


def mean_with_interval(now: Report, row: RowKey, confidence: float) -> Mean | None:
    """A row's log with what the interim analyses cost in its error; None without an
    interval.
    """
    mean = log_of_row(now, *row)
    if mean and mean.freedom > 0:
        return mean.inflated(confidence)
    return None


def _fed_otherwise(before: Plan, now: Plan, label: str) -> str:
    """What is not the same about what a row, or its reference, is fed; such times say
    nothing of each other.
    """
    labels_now = {case.label for case in now.cases}
    for name in (label, before.reference_of(label)):
        if name in labels_now:
            difference = workloads_differ(before.case(name), now.case(name), FED)
            if difference:
                return difference
    return ""


def _time_finding(
    row: RowKey, change: Change | None, now: Report, policy: Policy, slack: float
) -> Finding:
    """What follows for one row from its change, where that is known.

    There is no time of a row that computes something else, nor against such a
    reference. `slack` (in logs) is how far the control was off.

    The interval is not corrected for the number of rows: unchanged code lies a whole
    tolerance below its limit, so that even twenty rows are not accused by chance where
    the tolerance is wider than an interval.
    """
    label, metric = row
    mismatch = mismatch_of_row(now, label, metric)
    if mismatch:
        return _finding(row, Status.MISSING, policy, reason=mismatch)
    rounds = rounds_of_row(now, label, metric)
    if change is None and not rounds.rounds:
        reason = _why_not_measured(now, label, now.plan.reference_of(label))
        return _finding(row, Status.MISSING, policy, reason=reason)
    if change is None:
        reason = busy_text(now) if rounds.clean_rounds < rounds.rounds else ONE_WORKER
        return _finding(row, Status.UNCLEAR, policy, reason=reason)
    half = change.difference.half_width(CONFIDENCE)
    if metric == LATENCY:
        half += slack  # which is of ratios
    low = math.exp(change.difference.mean - half)
    high = math.exp(change.difference.mean + half)
    status = status_of(low, high, policy.of(*row))
    reason = ""
    if status is Status.UNCLEAR and rounds.disturbed:
        reason = busy_text(now)
    elif status is Status.UNCLEAR and slack and metric == LATENCY:
        reason = "the reference differs from itself: the machine is too noisy now"
    before_and_now = {"before": math.exp(change.before), "now": math.exp(change.now)}
    return _finding(
        row, status, policy, **before_and_now, change=change.estimate(), reason=reason
    )


def incomparable(before: Report, policy: Policy, reason: str) -> list[Finding]:
    """Every row whose time would be checked, as one that can't be."""
    return [
        _finding(row, Status.INCOMPARABLE, policy, reason=reason)
        for row in _timed_rows(before.plan, policy)
    ]


def _timed_rows(plan: Plan, policy: Policy) -> list[RowKey]:
    """Latency of every row that is compared; seconds of every case where asked for."""
    rows = [
        (case.label, LATENCY)
        for case in plan.shown
        if not plan.is_reference(case.label)
    ]
    if policy.absolute:
        rows += [(case.label, SECONDS) for case in plan.shown]
    return rows


def status_of(low: float, high: float, tolerance: float) -> Status:
    """The status on the interval of a change: beyond the limit, within it, below 1, or
    on both sides of the limit.
    """
    if low > 1 + tolerance:
        return Status.REGRESSED
    if high > 1 + tolerance:
        return Status.UNCLEAR
    if high < 1:
        return Status.IMPROVED
    return Status.OK


def exit_code(findings: Iterable[Finding], *, unclear_fails: bool) -> int:
    """0 nothing regressed, 1 regressed, 3 a row that should be there is not, 4 unclear
    and told to fail then.
    """
    statuses = {finding.status for finding in findings}
    if Status.REGRESSED in statuses:
        return EXIT_REGRESSED
    if Status.MISSING in statuses:
        return 3
    if unclear_fails and statuses & {Status.UNCLEAR, Status.INCOMPARABLE}:
        return 4
    return 0


OUTPUT = "output"
# of two runs in float64: rounding leaves 1e-15, or 1e-7 where a module casts to float32
# inside
EXACT_WITHIN = 1e-6


def without_gain(findings: Iterable[Finding], output: Finding) -> list[Finding]:
    """The findings; where it is not known whether the two sides compute the same, none
    of them is a gain.
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
    """Whether head computes what base does: REGRESSED where it does not, OK where that
    is `allowed`.

    UNCLEAR where their outputs differ and so do their weights, which could not be
    carried over.
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
    """By how much the outputs differ, in the case's dtype or in float64; empty where
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

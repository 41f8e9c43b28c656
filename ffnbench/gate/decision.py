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
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from ffnbench.common.errors import EXIT_REGRESSED, EXIT_UNFINISHED, FfnbenchError
from ffnbench.common.names import hint_for
from ffnbench.plan.metrics import LATENCY, METRICS, Metric
from ffnbench.plan.plan import Case, Workload
from ffnbench.plan.reading import percent
from ffnbench.record.result import CONFIDENCE, Agreement, Environment, Estimate, Report
from ffnbench.stats.history import History, histories_of, mismatch_of_row
from ffnbench.stats.rounds import Rounds, ratio_logs, rounds_of
from ffnbench.stats.verdict import ONE_WORKER, busy_text, control_slack

DEFAULT_LATENCY = 0.05
# what a row of a check is about if it is about no metric: the spec of a case, and
# whether head computes what base does
SPEC, OUTPUT = "spec", "output"
# a difference between two outputs in float64 that rounding explains: it leaves 1e-15,
# or 1e-7 where a module casts to float32 inside
EXACT_WITHIN = 1e-6
EXIT_UNCLEAR = 4
EXACT_METRICS = tuple(metric for metric in METRICS if metric.checked and metric.exact)
CHECKED_METRICS = (*(metric.name for metric in EXACT_METRICS), LATENCY)


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
class Evidence:
    """All that decides the status of a row. A text is empty if it does not apply.

    The change lies between `low` and `high`, where 0.05 is 5 % more; they are NaN if it
    has no interval. The change of an exact metric is certain: low is high.
    """

    tolerance: float
    low: float = math.nan
    high: float = math.nan
    gains: bool = True  # whether less is better
    is_new: bool = False
    is_missing: bool = False  # from this run
    failure: str = ""
    stopped: str = ""  # why the run ended, if its budget was over
    incomparable: str = ""  # why the two times can't be compared
    difference: str = ""  # between the two specs, or the two outputs
    other_weights: str = ""  # why the two outputs are of different weights
    wrong: str = ""  # how the output differs from what it should be
    busy: str = ""  # what disturbed too many of its rounds
    slack: float = 0.0  # how far the reference differs from itself (in logs)


NOT_MEASURED = "not measured in this run"
UNLIKE_ITSELF = "the reference differs from itself: the machine is too noisy now"
# The status of a row, with its reason, is that of the first rule that holds. A row that
# computes something else, or whose reference does, has no time to compare.
RULES: tuple[tuple[Callable[[Evidence], object], Status, str], ...] = (
    (lambda row: row.incomparable, Status.INCOMPARABLE, "{row.incomparable}"),
    (lambda row: row.wrong, Status.MISSING, "{row.wrong}"),
    (lambda row: row.is_missing and row.failure, Status.MISSING, "{row.failure}"),
    (lambda row: row.is_missing and row.stopped, Status.UNCLEAR, "{row.stopped}"),
    (lambda row: row.is_missing, Status.MISSING, NOT_MEASURED),
    (lambda row: row.is_new, Status.NEW, ""),
    (lambda row: row.other_weights, Status.UNCLEAR, "{row.difference}"),
    (lambda row: row.difference, Status.REGRESSED, "{row.difference}"),
    (lambda row: math.isnan(row.low) and row.busy, Status.UNCLEAR, "{row.busy}"),
    (lambda row: math.isnan(row.low), Status.UNCLEAR, ONE_WORKER),
    (lambda row: row.low > row.tolerance, Status.REGRESSED, ""),
    (lambda row: row.high > row.tolerance and row.busy, Status.UNCLEAR, "{row.busy}"),
    (lambda row: row.high > row.tolerance and row.slack, Status.UNCLEAR, UNLIKE_ITSELF),
    (lambda row: row.high > row.tolerance, Status.UNCLEAR, ""),
    (lambda row: row.high < 0 and row.gains, Status.IMPROVED, ""),
    (lambda row: row.high < -row.tolerance and not row.gains, Status.REGRESSED, ""),
    (lambda row: True, Status.OK, ""),
)


def decide(row: Evidence) -> tuple[Status, str]:
    """The status of a row and its reason."""
    return next(
        (status, reason.format(row=row))
        for holds, status, reason in RULES
        if holds(row)
    )


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
class Policy:
    """How much a metric of a case may grow: an exact one not at all, where no tolerance
    is given.

    `tolerances` are shares by the name of a case, "" for all, and the metric. `names`
    are, by the label of a case, the other names of it: that of its row in all groups of
    a sweep, and `llama3-8b` for `llama3-8b (swiglu)`.
    """

    tolerances: Mapping[tuple[str, str], float] = field(default_factory=dict)
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def of(self, case: str, metric: str) -> float:
        """The tolerance of one metric of one case: that of its label, else of its other
        names, else of all, else the default.
        """
        for name in (case, *self.names.get(case, ()), ""):
            if (name, metric) in self.tolerances:
                return self.tolerances[name, metric]
        return DEFAULT_LATENCY if metric == LATENCY else 0.0


def read_policy(texts: Iterable[str], rows: Mapping[str, str]) -> Policy:
    """The policy of tolerances such as `latency=5%`, `5%` (which is of latency) and
    `swiglu:latency=8%`.

    `rows` are by their labels the names of rows. Raises FfnbenchError for any other
    text, and for a number without a unit, which could be percent or a share.
    """
    names = {label: (row, row.partition(" (")[0]) for label, row in rows.items()}
    known = {"", *names, *(name for of_case in names.values() for name in of_case)}
    tolerances = {}
    for text in texts:
        name, equals, size = text.rpartition("=")
        if not equals:
            name = LATENCY if text.strip()[:1].isdigit() else text
        case, _, metric = name.rpartition(":")
        if metric not in CHECKED_METRICS:
            hint = hint_for(
                metric, CHECKED_METRICS, "metrics: " + ", ".join(CHECKED_METRICS)
            )
            raise FfnbenchError(f"no metric is called {metric!r}, in {text!r}", hint)
        if case not in known:
            hint = hint_for(case, rows, "cases: " + ", ".join(rows))
            raise FfnbenchError(f"the baseline has no case {case!r}, in {text!r}", hint)
        tolerances[case, metric] = _read_tolerance(size, text, metric)
    return Policy(tolerances=tolerances, names=names)


def _read_tolerance(size: str, text: str, metric: str) -> float:
    """Read the size of a tolerance; messages quote `text`, which is the whole of it."""
    share = percent(f"the tolerance {text!r}", size, "for example 5%") / 100
    if 0 < share < 10 and not size.strip().endswith("%"):
        percents, of_share = f"{100 * share:g}%", f"{10_000 * share:g}%"
        raise FfnbenchError(
            f"the tolerance {text!r}: {size!r} could mean {percents} or {of_share}",
            f"write {percents!r} or {of_share!r}",
        )
    if not 0 <= share < 10 or (metric == LATENCY and share == 0):
        raise FfnbenchError(
            f"the tolerance {text!r} is out of range",
            "give more than 0% and less than 1000%: latency=5%",
        )
    return share


def _finding(label: str, metric: str, evidence: Evidence, **values: Any) -> Finding:
    """The finding on a row that follows from the evidence."""
    status, reason = decide(evidence)
    return Finding(
        case=label,
        metric=metric,
        status=status,
        tolerance=evidence.tolerance,
        reason=reason,
        **values,
    )


def exact_findings(before: Report, now: Report, policy: Policy) -> list[Finding]:
    """The findings on the spec of every case, and on every exact metric that one of the
    two runs knows.
    """
    cases_now = {case.label: case for case in now.plan.shown}
    findings = []
    for case in before.plan.shown:
        case_now = cases_now.pop(case.label, None)
        if case_now is None:
            lost = Evidence(
                tolerance=0.0, is_missing=True, failure="this run has no such case"
            )
            findings.append(_finding(case.label, SPEC, lost))
        else:
            findings += findings_on_case(before, case, now, case_now, policy)
    new = Evidence(tolerance=0.0, is_new=True)
    return findings + [_finding(label, SPEC, new) for label in cases_now]


def findings_on_case(
    before: Report, case: Case, now: Report, case_now: Case, policy: Policy
) -> list[Finding]:
    """The findings on the spec of a case, and on its exact metrics."""
    label = case_now.label
    fed_otherwise = workloads_differ(case.workload.identity, case_now.workload.identity)
    difference = "another network" if case_now.ffn != case.ffn else fed_otherwise
    spec = Evidence(tolerance=0.0, low=0.0, high=0.0, difference=difference)
    findings = [_finding(label, SPEC, spec)]
    has_failed = now.failure(label) and not now.could_not_run(label)
    for metric in EXACT_METRICS:
        old = exact_value(before, case.label, metric)
        new = exact_value(now, label, metric)
        if has_failed and metric.job and not now.estimate(label, metric.name):
            new = None
        if old is None and new is None:
            continue
        change = math.nan if old is None or new is None else _relative(old, new)
        evidence = Evidence(
            tolerance=policy.of(label, metric.name),
            low=change,
            high=change,
            # a smaller value for less work is no gain
            gains=metric.less_is_better and not fed_otherwise,
            is_new=old is None,
            is_missing=new is None,
            failure=_failure_of(now, label),
            stopped=_out_of_budget(now),
        )
        findings.append(_finding(label, metric.name, evidence, before=old, now=new))
    return findings


def _relative(old: float, new: float) -> float:
    """The change of an exact metric. The difference of two integers is exact."""
    if new == old:
        return 0.0
    return (new - old) / abs(old) if old else math.inf


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


def workloads_differ(before: Workload, now: Workload) -> str:
    """In which fields two workloads differ, with both values; empty if they do not."""
    values_now = asdict(now)
    return "; ".join(
        f"{name} {then} then, {values_now[name]} now"
        for name, then in asdict(before).items()
        if then != values_now[name]
    )


def _failure_of(now: Report, *labels: str) -> str:
    """Why the first of these cases that failed did; empty if none has."""
    failures = filter(None, map(now.failure, labels))
    return next((failure.message for failure in failures), "")


def _out_of_budget(now: Report) -> str:
    return now.stopped if now.out_of_budget else ""


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
    now: Report,
    policy: Policy,
    baseline: BaselineTimes | None = None,
    confidence: float = CONFIDENCE,
) -> list[Finding]:
    """The findings on the latency of every row that has a reference.

    Of a check, today's ratio is compared with the mean of the baseline's runs. Without
    a baseline the reference is base, in the same rounds, where nothing moves between
    runs: the change is the ratio itself. `confidence` is the level that this interim
    analysis takes for the stated CONFIDENCE.

    The interval is not corrected for the number of rows: unchanged code lies a whole
    tolerance below its limit, so that even twenty rows are not accused by chance if the
    tolerance is wider than an interval.
    """
    rounds = rounds_of(now)
    before = now if baseline is None else baseline.report
    findings = []
    for case in before.plan.shown:
        label = case.label
        skips = baseline is not None and before.could_not_run(label)
        if not (skips or before.plan.is_reference(label)):
            findings.append(
                _latency_finding(label, now, rounds, policy, baseline, confidence)
            )
    return findings


def _latency_finding(
    label: str,
    now: Report,
    rounds: Rounds,
    policy: Policy,
    baseline: BaselineTimes | None,
    confidence: float,
) -> Finding:
    """The finding on one row. Its interval includes what the reference differs from
    itself by; the change of a row that has no interval is what was seen.
    """
    reference = now.plan.reference_of(label)
    logs = ratio_logs(rounds, label, reference)
    evidence = Evidence(
        tolerance=policy.of(label, LATENCY),
        is_missing=not logs.rounds,
        failure=_failure_of(now, label, reference),
        stopped=_out_of_budget(now),
        incomparable=_why_incomparable(baseline.report, now, label) if baseline else "",
        wrong=mismatch_of_row(now, label),
        busy=busy_text(now) if logs.disturbed else "",
        slack=control_slack(rounds),
    )
    history = baseline.rows.get(label) if baseline else None
    if evidence.incomparable or evidence.wrong or (baseline and not history):
        return _finding(label, LATENCY, evidence)
    mean = logs.mean()
    if mean is None or mean.freedom <= 0:
        seen = ratio_logs(rounds_of(now, disturbed=True), label, reference).mean()
        before = history.mean if history else 0.0
        change = Estimate(value=math.exp(seen.mean - before)) if seen else None
        return _finding(label, LATENCY, evidence, change=change)
    difference = mean.inflated(confidence)
    if history:
        difference = history.change(difference)
    change = difference.inflated(CONFIDENCE, evidence.slack).exp()
    if change.low is not None and change.high is not None:
        evidence = replace(evidence, low=change.low - 1, high=change.high - 1)
    values = _then_and_now(math.exp(mean.mean), history, now, reference)
    return _finding(label, LATENCY, evidence, change=change, **values)


def _then_and_now(
    ratio: float, history: History | None, now: Report, reference: str
) -> dict[str, float]:
    """The ratio to the reference then and now; without a baseline the seconds of base
    and head, where they are known.
    """
    if history:
        return {"before": math.exp(history.mean), "now": ratio}
    seconds = now.value(reference, LATENCY)
    if seconds and now.has_time(reference):
        return {"before": seconds, "now": seconds * ratio}
    return {}


def _why_incomparable(before: Report, now: Report, label: str) -> str:
    """Why the time of a row can't be compared with that of the baseline: the machine,
    or what the row or its reference is fed. Empty if it can.
    """
    if machine_kind(before.environment) != machine_kind(now.environment):
        return "another kind of machine: measure both versions in one job (`ffnbench ab --help`)"
    labels_now = {case.label for case in now.plan.cases}
    references = before.plan.reference_of(label), now.plan.reference_of(label)
    if label in labels_now and references[0] != references[1]:
        return f"compared with {references[0]} then, with {references[1]} now"
    for name in (label, references[0]):
        if name in labels_now:
            then, here = before.plan.case(name).workload, now.plan.case(name).workload
            difference = workloads_differ(then.inputs, here.inputs)
            if difference:
                return difference
    return ""


def machine_kind(environment: Environment | None) -> tuple[object, ...]:
    """What ratios depend on: the processor and the GPU, but not how fast they are at
    the time.
    """
    if environment is None:
        return ()
    return environment.cpu, environment.cpu_capability, environment.gpu


def exit_code(
    findings: Iterable[Finding], *, failed: bool, unclear_fails: bool = False
) -> int:
    """The exit code of a check: that of a regression, else that of a row that failed or
    was not measured, else that of one that can't be told if `unclear_fails`, else 0.
    """
    statuses = {finding.status for finding in findings}
    if Status.REGRESSED in statuses:
        return EXIT_REGRESSED
    if Status.MISSING in statuses or failed:
        return EXIT_UNFINISHED
    if unclear_fails and statuses & {Status.UNCLEAR, Status.INCOMPARABLE}:
        return EXIT_UNCLEAR
    return 0


def output_finding(label: str, agreement: Agreement, *, allowed: bool) -> Finding:
    """The finding on whether head computes what base does: REGRESSED if it does not, or
    OK if that is `allowed`.

    It is UNCLEAR if not only the outputs differ but also the weights, because base's
    could not be copied to head.
    """
    difference, weights = _how_outputs_differ(agreement), agreement.own_weights
    evidence = Evidence(
        tolerance=agreement.tolerance,
        low=0.0,
        high=0.0,
        difference="" if allowed else difference,
        other_weights=weights if difference and not allowed else "",
    )
    status, _ = decide(evidence)
    reasons = [difference, f"its weights are not base's: {weights}" if weights else ""]
    if difference and allowed:
        reasons.append("allowed by --allow-mismatch")
    elif status is Status.REGRESSED:
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

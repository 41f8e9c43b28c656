"""Report x baseline x policy -> findings. Pure, and the only place where the status of a check is decided.

Exact metrics are equal or not. Latency is checked by its in-run ratio to the reference, so that a faster or slower
machine of the same kind cancels: the change is the ratio now over the ratio of the baseline, with an interval over
the workers of both (Welch 1947). Nothing regresses on a point estimate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.spec import FFNSpec
from ffnbench.metrics import LATENCY, METRICS, Metric
from ffnbench.names import hint_for
from ffnbench.plan import Case, Plan
from ffnbench.result import Agreement, Environment, Estimate, Report
from ffnbench.stats.interval import WeightedMean
from ffnbench.stats.noise import busy_text
from ffnbench.stats.rounds import Row as Rounds
from ffnbench.stats.rounds import ratio_row, seconds_row, whole_rounds
from ffnbench.stats.verdict import control_slack, error_rate, holm, level, row_mean

Row = tuple[str, str]  # case, metric
# sd of a log ratio between runs of one machine, beyond what each run's workers show: choices, by what runs showed
# (docs/methodology.md). Forms of the same matrix products feel the machine's state alike, others do not.
SAME_PRODUCTS, OTHER_PRODUCTS = 0.001, 0.003
SECONDS = "seconds"
DEFAULT_LATENCY, DEFAULT_SECONDS = 0.05, 0.10


class Status(Enum):
    """What a check says of one metric of one case."""

    REGRESSED = "REGRESSED"
    UNCLEAR = "UNCLEAR"
    MISSING = "MISSING"
    INCOMPARABLE = "INCOMPARABLE"
    NEW = "NEW"
    IMPROVED = "IMPROVED"
    OK = "OK"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One row of a check: what was, what is, and what follows. `change` is now over before."""

    case: str
    metric: str
    status: Status
    tolerance: float
    before: float | None = None
    now: float | None = None
    change: Estimate | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The answer of a check: what follows for every row, the two reports that it follows from, the second look at
    suspects. `against` is where the baseline stands; for two sides of one run `sides` says what they are.
    """

    findings: tuple[Finding, ...]
    before: Report
    now: Report
    again: Report | None = None
    against: str = ""
    sides: tuple[str, ...] = ()

    @property
    def smallest(self) -> float | None:
        """The smallest change that every latency row could have been caught at."""
        sizes = [
            math.sqrt(f.change.high / f.change.low) * (1 + f.tolerance) - 1
            for f in self.findings
            if f.metric == LATENCY and f.change and f.change.low and f.change.high
        ]
        return max(sizes, default=None)

    @property
    def interrupted(self) -> bool:
        """Whether it was ended by hand."""
        return self.now.interrupted or (self.again is not None and self.again.interrupted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How much a metric may grow: by case and metric, by metric; exact metrics not at all unless it is said."""

    tolerances: tuple[tuple[str, str, float], ...] = ()  # case or "", metric, fraction
    across_machines: bool = False
    absolute: bool = False

    def of(self, case: str, metric: str) -> float:
        """The tolerance of one metric of one case: the most particular one that was given."""
        given = {(c, m): t for c, m, t in self.tolerances}
        default = {LATENCY: DEFAULT_LATENCY, SECONDS: DEFAULT_SECONDS}.get(metric, 0.0)
        return given.get((case, metric), given.get(("", metric), default))


EXACT = tuple(metric for metric in METRICS if metric.checked and metric.exact)
TIMED = (LATENCY, SECONDS)
CHECKED = (*(metric.name for metric in EXACT), *TIMED)


def parse_tolerances(texts: Iterable[str], labels: Iterable[str]) -> tuple[tuple[str, str, float], ...]:
    """`latency=5%`, `swiglu:latency=8%`, `latency=0.05`; raises FfnbenchError for what is neither."""
    known, found = list(labels), []
    for text in texts:
        name, equals, size = text.rpartition("=")
        case, _, metric = name.rpartition(":")
        if not equals:
            raise FfnbenchError(f"cannot read the tolerance {text!r}", "for example latency=5% or swiglu:latency=8%")
        if metric not in CHECKED:
            raise FfnbenchError(
                f"no metric is called {metric!r}, in {text!r}",
                hint_for(metric, CHECKED, "metrics: " + ", ".join(CHECKED)),
            )
        if case and case not in known:
            raise FfnbenchError(
                f"the baseline has no case {case!r}, in {text!r}", hint_for(case, known, "cases: " + ", ".join(known))
            )
        try:
            fraction = float(size.removesuffix("%")) / (100 if size.endswith("%") else 1)
        except ValueError:
            fraction = math.nan
        if not size.endswith("%") and fraction >= 1:
            raise FfnbenchError(f"the tolerance {text!r} is {100 * fraction:g}%", "write 8% or 0.08 for eight percent")
        if not 0 <= fraction < 10 or (metric in TIMED and fraction == 0):
            raise FfnbenchError(f"the tolerance {text!r} is no share above zero", "for example latency=5%")
        found.append((case, metric, fraction))
    return tuple(found)


def exact_value(report: Report, label: str, metric: Metric) -> float | None:
    """What was measured, or the closed form where nothing was and there is one: the tests hold the two equal."""
    estimate = report.estimate(label, metric.name)
    if estimate is None:
        return getattr(report.cost(label), metric.name) if metric.closed_form else None
    return estimate.value


def exact_findings(before: Report, now: Report, policy: Policy) -> list[Finding]:
    """Every exact metric that the baseline knows, and the specs themselves."""
    found = []
    present = {case.label for case in now.plan.shown}
    for case in before.plan.shown:
        if case.label not in present:
            found.append(_finding(case.label, "spec", Status.MISSING, policy, reason="the case is not there any more"))
            continue
        other = _other(case, now.plan.case(case.label))
        status = Status.REGRESSED if other else Status.OK
        found.append(_finding(case.label, "spec", status, policy, reason=other))
        found += [f for metric in EXACT if (f := _exact(before, now, case.label, metric, policy))]
    known = {case.label for case in before.plan.shown}
    found += [_finding(c.label, "spec", Status.NEW, policy) for c in now.plan.shown if c.label not in known]
    return found


def _other(was: Case, now: Case) -> str:
    """What is not the same about a case: its network, or what it is fed."""
    if now.ffn != was.ffn:
        return "another network"
    differs = [
        f"{name} {getattr(was.workload, name)} then, {getattr(now.workload, name)} now"
        for name in ("batch", "seq_len", "dtype", "mode", "backend")
        if getattr(was.workload, name) != getattr(now.workload, name)
    ]
    return "; ".join(differs)


def _exact(before: Report, now: Report, label: str, metric: Metric, policy: Policy) -> Finding | None:
    was, is_ = (exact_value(report, label, metric) for report in (before, now))
    if was is None:
        return None if is_ is None else _finding(label, metric.name, Status.NEW, policy, now=is_)
    failure = now.failure(label)
    if is_ is None or math.isnan(is_):
        reason = failure.message if failure else "it has no value now"
        return _finding(label, metric.name, Status.MISSING, policy, before=was, reason=reason)
    if is_ == was:
        status = Status.OK
    elif metric.less_is_better and is_ < was:
        status = Status.IMPROVED
    else:
        allowed = abs(is_ - was) <= policy.of(label, metric.name) * abs(was)
        status = Status.OK if allowed else Status.REGRESSED
    return _finding(label, metric.name, status, policy, before=was, now=is_)


def _finding(case: str, metric: str, status: Status, policy: Policy, **more: object) -> Finding:
    return Finding(case=case, metric=metric, status=status, tolerance=policy.of(case, metric), **more)  # type: ignore[arg-type]


def kind(environment: Environment | None) -> tuple[object, ...]:
    """What ratios depend on: the processor and the GPU, not their speed of the day."""
    return (environment.cpu, environment.cpu_capability, environment.gpu) if environment else ()


def latency_findings(before: Report, now: Report, policy: Policy) -> list[Finding]:
    """The latency of every row of the baseline against the reference's, then and now; seconds where asked for."""
    if not policy.across_machines and kind(before.environment) != kind(now.environment):
        return incomparable(before, policy, "another kind of machine: measure old and new code in one job")
    rows = _timed_rows(before.plan, policy)
    changes = {row: _change(before, now, *row) for row in rows}
    alpha = error_rate(now.plan.protocol)
    worse = holm({row: c.p_above(policy.of(*row)) for row, c in changes.items() if c}, alpha / 2)
    slack = control_slack(now)
    return [latency_finding(row, changes[row], row in worse, policy, now, slack) for row in rows]


def incomparable(before: Report, policy: Policy, reason: str) -> list[Finding]:
    """Every row whose time would be checked, as one that can't be."""
    rows = _timed_rows(before.plan, policy)
    return [_finding(label, metric, Status.INCOMPARABLE, policy, reason=reason) for label, metric in rows]


def _timed_rows(plan: Plan, policy: Policy) -> list[Row]:
    """Latency of every row that is compared; seconds of every case where asked for."""
    rows = [(case.label, LATENCY) for case in plan.shown if not plan.is_reference(case.label)]
    return rows + [(case.label, SECONDS) for case in plan.shown if policy.absolute]


def latency_finding(
    row: Row, change: Change | None, worse: bool, policy: Policy, now: Report, control: float
) -> Finding:
    """What follows for one row; `worse` is whether it is beyond its tolerance by Holm's correction too, `control` the
    slack (in logs) that the control asks for.
    """
    label, metric = row
    rounds = _rounds_of(now, label, metric)
    if change is None and rounds.every:
        reason = busy_text(now) if rounds.clean_rounds < rounds.rounds else "one worker gives no interval"
        return _finding(label, metric, Status.UNCLEAR, policy, reason=reason)
    if change is None:
        failure = now.failure(label) or now.failure(now.plan.reference)
        reason = failure.message if failure else "it has no samples now"
        return _finding(label, metric, Status.MISSING, policy, reason=reason)
    estimate, slack = change.estimate(level(now.plan.protocol)), control if metric == LATENCY else 0.0
    low, high = (estimate.low or 0.0) * math.exp(-slack), (estimate.high or math.inf) * math.exp(slack)
    status, reason = status_of(low, high, policy.of(label, metric)), ""
    if status is Status.UNCLEAR and rounds.disturbed:
        reason = busy_text(now)
    elif slack and status is Status.UNCLEAR:
        reason = "the reference differs from itself: this machine can't tell now"
    elif status is Status.REGRESSED and not worse:
        status, reason = Status.UNCLEAR, "too little for so many rows (Holm's correction)"
    return _finding(
        label, metric, status, policy, before=math.exp(change.before), now=math.exp(change.now), change=estimate,
        reason=reason,
    )  # fmt: skip


def status_of(low: float, high: float, tolerance: float) -> Status:
    """The status on the interval of a change: beyond the limit, within it, below 1, or on both sides of the limit."""
    if low > 1 + tolerance:
        return Status.REGRESSED
    if high > 1 + tolerance:
        return Status.UNCLEAR
    return Status.IMPROVED if high < 1 else Status.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The log ratio of a row in two runs, and their difference."""

    before: float
    now: float
    difference: WeightedMean

    def estimate(self, confidence: float) -> Estimate:
        """now over before, with a Student interval."""
        low, high = self.difference.interval(confidence) or (-math.inf, math.inf)
        return Estimate(value=math.exp(self.difference.mean), low=math.exp(low), high=math.exp(high))

    def p_above(self, tolerance: float) -> float:
        """One-sided p of "the change is at most the tolerance"."""
        return self.difference.p_above(math.log1p(tolerance))


def _change(before: Report, now: Report, label: str, metric: str) -> Change | None:
    means = [row_of(report, label, metric) for report in (before, now)]
    if any(mean is None or mean.freedom <= 0 for mean in means):
        return None
    was, is_ = (mean for mean in means if mean)
    return change_of(was, is_, between_runs(before.plan, label))


def row_of(report: Report, label: str, metric: str = LATENCY) -> WeightedMean | None:
    """The log of a row's ratio to the reference, or of its seconds, over clean rounds; None where there are none."""
    return row_mean(_rounds_of(report, label, metric))


def _rounds_of(report: Report, label: str, metric: str) -> Rounds:
    rounds = whole_rounds(report.samples, report.plan.protocol)
    own = rounds.get(label, {})
    return ratio_row(own, rounds.get(report.plan.reference_of(label), {})) if metric == LATENCY else seconds_row(own)


def between_runs(plan: Plan, label: str) -> float:
    """How far (sd, in logs) a row's ratio to the reference moves between two runs of unchanged code."""
    forms = [plan.case(name).ffn for name in (label, plan.reference)]
    shapes = [(f.d_model, f.d_ff, f.gate, f.moe) if isinstance(f, FFNSpec) else None for f in forms]
    return SAME_PRODUCTS if shapes[0] and shapes[0] == shapes[1] else OTHER_PRODUCTS


def change_of(before: WeightedMean, now: WeightedMean, between: float) -> Change:
    """The difference of two means (Welch 1947), its degrees of freedom by Satterthwaite (1946).

    `between` is what each run adds of its own.
    """
    parts = [(mean.error**2, mean.freedom) for mean in (before, now)]
    explained = sum(part for part, _ in parts)
    freedom = explained**2 / sum(part**2 / n for part, n in parts) if explained else sum(n for _, n in parts)
    error = math.sqrt(explained + 2 * between**2)
    return Change(before=before.mean, now=now.mean, difference=WeightedMean(now.mean - before.mean, error, freedom))


def confirmed(first: list[Finding], second: list[Finding]) -> list[Finding]:
    """A suspect of the first measurement regresses only if the second, in new workers, says so as well."""
    again = {(f.case, f.metric): f for f in second}
    found = []
    for finding in first:
        other = again.get((finding.case, finding.metric))
        if (
            finding.status is Status.REGRESSED
            and finding.metric in TIMED
            and (other is None or other.status is not Status.REGRESSED)
        ):
            said = other.status.value if other else "not measured"
            reason = f"a suspect; measured again it was {said}"
            finding = replace(other or finding, reason=reason, status=other.status if other else Status.UNCLEAR)
        elif other and finding.status is Status.REGRESSED:
            finding = replace(finding, reason="measured twice: the second time in new workers, in the opposite order")
        found.append(finding)
    return found


def exit_code(findings: list[Finding], *, unclear_fails: bool) -> int:
    """0 nothing regressed, 1 regressed, 3 a row that should be there is not, 4 unclear and told to fail then."""
    statuses = {finding.status for finding in findings}
    if Status.REGRESSED in statuses:
        return 1
    if Status.MISSING in statuses:
        return 3
    return 4 if unclear_fails and statuses & {Status.UNCLEAR, Status.INCOMPARABLE} else 0


OUTPUT = "output"
EXACT_WITHIN = 1e-6  # of two runs in float64: rounding leaves 1e-15, or 1e-7 where a module casts to float32 inside


def paired_findings(run: Report, policy: Policy) -> list[Finding]:
    """The latency of every row against the reference of the same run: old and new code in the same rounds.

    There is no other run to vary from, so the change is the ratio with its own interval.
    """
    reference = run.plan.reference
    rows = [(case.label, LATENCY) for case in run.plan.shown if case.label != reference]
    means = {row: row_of(run, *row) for row in rows}
    changes = {
        row: Change(before=0.0, now=found.mean, difference=found) if found and found.freedom > 0 else None
        for row, found in means.items()
    }
    alpha = error_rate(run.plan.protocol)
    worse = holm({row: c.p_above(policy.of(*row)) for row, c in changes.items() if c}, alpha / 2)
    slack = control_slack(run)
    return [latency_finding(row, changes[row], row in worse, policy, run, slack) for row in rows]


def output_finding(label: str, agreement: Agreement, *, allowed: bool) -> Finding:
    """Whether head computes what base does: REGRESSED where it does not, OK where that is `allowed`.

    UNCLEAR where their outputs differ and so do their weights, which could not be carried over.
    """
    errors = {"": agreement.error, " in float64": agreement.exact_error}
    limits = {"": agreement.tolerance, " in float64": min(agreement.tolerance, EXACT_WITHIN)}
    apart = [f"{error:.1e}{how}" for how, error in errors.items() if error is not None and error > limits[how]]
    if agreement.error is None:
        apart = ["infinitely: it is not finite, or has another shape"]
    own = f"; its weights are its own, of the same seed: {agreement.apart}" if agreement.apart else ""
    told = {"base": agreement.base_error, "head": agreement.head_error}
    rounding = ", ".join(f"{side} {error:.1e}" for side, error in told.items() if error is not None)
    against = f"; against its own run in float64: {rounding}" if rounding else ""
    status, reason = Status.OK, own.removeprefix("; ")
    if apart:
        status = Status.OK if allowed else Status.UNCLEAR if agreement.apart else Status.REGRESSED
        reason = f"head's output differs from base's by {' and '.join(apart)}{against}{own}"
        reason += "; allowed by --allow-mismatch" if allowed else ""
        reason += "; nothing was timed: --allow-mismatch goes on" if status is Status.REGRESSED else ""
    return Finding(
        case=label, metric=OUTPUT, status=status, tolerance=agreement.tolerance, now=agreement.error, reason=reason
    )

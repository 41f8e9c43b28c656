"""Report x baseline x policy -> findings. Pure, and the only place where the status of a check is decided.

Exact metrics are equal or not. Latency is checked by its in-run ratio to the reference, so that a faster or slower
machine of the same kind cancels: the change is the ratio now over the ratio of the baseline's runs, with an interval
that knows of the workers of all of them and of what moves between runs (history.py). Nothing regresses on a point
estimate.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from ffnbench.common.errors import EXIT_REGRESSED, FfnbenchError
from ffnbench.common.names import hint_for
from ffnbench.common.units import read_share
from ffnbench.metrics import LATENCY, METRICS, Metric
from ffnbench.plan import SWEPT, Case, Plan
from ffnbench.result import Agreement, Environment, Estimate, Report
from ffnbench.stats.history import SECONDS, Change, History, history_of, mismatch_of_row, rounds_of_row, row_of
from ffnbench.stats.interval import CONFIDENCE, Mean
from ffnbench.stats.verdict import ONE_WORKER, busy_text, control_slack

Row = tuple[str, str]  # case, metric
DEFAULT_LATENCY, DEFAULT_SECONDS = 0.05, 0.10
# of what a case is fed, and how: what makes it another row
FED = ("batch", "seq_len", "dtype", "mode", "time", "cache", "matmul_precision", "reduced_reductions")
IDENTITY = (*FED, "backend", "compile", "freeze")


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
    """One row of a check: what was, what is, and what follows. `change` is now over before."""

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
        """The change without its interval, of an exact metric too; None from nothing, or to what is not known."""
        if self.change is not None:
            return self.change.value
        return self.now / self.before if self.before and self.now is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The answer of a check: what follows for every row, and the two reports that it follows from. `against` is where
    the baseline stands, `saved` where the run does that was measured before; for two sides of one run `sides` says
    what they are.
    """

    findings: tuple[Finding, ...]
    before: Report
    now: Report
    against: str = ""
    saved: str = ""
    sides: tuple[str, ...] = ()

    @property
    def smallest(self) -> float | None:
        """The smallest slowdown that would have been caught in every latency row that could not be decided."""
        sizes = [
            math.sqrt(f.change.high / f.change.low) * (1 + f.tolerance) - 1
            for f in self.findings
            if f.metric == LATENCY and f.status is Status.UNCLEAR and f.change and f.change.low and f.change.high
        ]
        return max(sizes, default=None)

    @property
    def excluded(self) -> float | None:
        """The slowdown that every latency row excludes which is OK or faster; None where none is."""
        passed = [f for f in self.findings if f.metric == LATENCY and f.status in (Status.OK, Status.IMPROVED)]
        return max((f.tolerance for f in passed), default=None)

    @property
    def interrupted(self) -> bool:
        """Whether it was ended by hand."""
        return self.now.interrupted


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
    """`latency=5%`, `5%` (latency's), `swiglu:latency=8%`; raises FfnbenchError for what is none of these, and for a
    bare number, which could be percent or a share.
    """
    known = list(labels)
    found: list[tuple[str, str, float]] = []
    of_groups: list[tuple[str, str, float]] = []
    for text in texts:
        of_latency = "=" not in text and text.strip()[:1].isdigit()
        name, equals, size = (LATENCY, "=", text) if of_latency else text.rpartition("=")
        case, _, metric = name.rpartition(":")
        if not equals:
            raise FfnbenchError(f"cannot read the tolerance {text!r}", "for example latency=5% or swiglu:latency=8%")
        if metric not in CHECKED:
            raise FfnbenchError(
                f"no metric is called {metric!r}, in {text!r}",
                hint_for(metric, CHECKED, "metrics: " + ", ".join(CHECKED)),
            )
        cases = [case] if not case or case in known else _cases_of(case, known)
        if not cases:
            raise FfnbenchError(
                f"the baseline has no case {case!r}, in {text!r}", hint_for(case, known, "cases: " + ", ".join(known))
            )
        try:
            fraction = read_share(size)
        except FfnbenchError as problem:
            raise FfnbenchError(f"the tolerance {text!r}: {problem.message}", problem.hint) from None
        if not 0 <= fraction < 10 or (metric in TIMED and fraction == 0):
            raise FfnbenchError(f"the tolerance {text!r} must be above zero", "for example latency=5%")
        (found if cases == [case] else of_groups).extend((one, metric, fraction) for one in cases)
    return (*of_groups, *found)  # what is said of one row by its whole label comes last, and counts


def _cases_of(name: str, labels: Iterable[str]) -> list[str]:
    """The rows that a shorter name means: `llama3-8b` is `llama3-8b (swiglu)`, and `swiglu` is it in every group."""
    suffix = re.compile(rf"{re.escape(name)}( \(.*\))?(@({'|'.join(SWEPT)})=[^@]*)*")
    return [label for label in labels if suffix.fullmatch(label)]


def exact_value(report: Report, label: str, metric: Metric) -> float | None:
    """What was measured, or the closed form where nothing was and there is one: the tests hold the two equal. A run
    that ended early has no closed form of what it did not come to.
    """
    if estimate := report.estimate(label, metric.name):
        return estimate.value
    cost = report.cost(label)
    unknown = cost.failed or (metric.job and (report.interrupted or report.stopped))
    return getattr(cost, metric.name) if metric.closed_form and not unknown else None


def exact_findings(before: Report, now: Report, policy: Policy) -> list[Finding]:
    """Every exact metric that the baseline knows, and the specs."""
    present = {case.label for case in now.plan.shown}
    found = []
    for case in before.plan.shown:
        if case.label not in present:
            found.append(_finding(case.label, "spec", Status.MISSING, policy, reason="this run has no such case"))
            continue
        here = now.plan.case(case.label)
        fed = _workloads_differ(case, here, IDENTITY)
        other = "another network" if here.ffn != case.ffn else fed
        status = Status.REGRESSED if other else Status.OK
        found.append(_finding(case.label, "spec", status, policy, reason=other))
        found += [f for metric in EXACT if (f := _exact(before, now, case.label, metric, policy, alike=not fed))]
    known = {case.label for case in before.plan.shown}
    found += [_finding(c.label, "spec", Status.NEW, policy) for c in now.plan.shown if c.label not in known]
    return found


def _workloads_differ(was: Case, now: Case, names: Iterable[str]) -> str:
    differs = [
        f"{name} {getattr(was.workload, name)} then, {getattr(now.workload, name)} now"
        for name in names
        if getattr(was.workload, name) != getattr(now.workload, name)
    ]
    return "; ".join(differs)


def _exact(before: Report, now: Report, label: str, metric: Metric, policy: Policy, *, alike: bool) -> Finding | None:
    """`alike` says that the row is fed as it was: less for less work is no gain."""
    was, is_ = (exact_value(report, label, metric) for report in (before, now))
    if was is None:
        return None if is_ is None else _finding(label, metric.name, Status.NEW, policy, now=is_)
    failure = now.failure(label)
    if is_ is None or math.isnan(is_):
        reason = failure.message if failure else "not measured in this run"
        return _finding(label, metric.name, Status.MISSING, policy, before=was, reason=reason)
    if is_ == was:
        status = Status.OK
    elif metric.less_is_better and is_ < was and alike:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What a baseline says of the rows whose time is checked; None of a row that it can't say anything of."""

    report: Report
    rows: dict[Row, History | None]


def past_of(before: Report, policy: Policy) -> Past:
    """A baseline read once, for all the looks that a check takes."""
    rows: dict[Row, History | None] = {}
    for row in _timed_rows(before.plan, policy):
        known = [mean for run in before.runs if (mean := row_of(run, *row)) and mean.freedom > 0]
        rows[row] = history_of(known) if known else None
    return Past(report=before, rows=rows)


def latency_findings(past: Past, now: Report, policy: Policy, confidence: float = CONFIDENCE) -> list[Finding]:
    """The latency of every row of the baseline against the reference's, then and now; seconds where asked for.

    Today's run is held against the mean of the baseline's runs. `confidence` is the level that this look takes for the
    stated CONFIDENCE.
    """
    before, slack, found = past.report, control_slack(now), []
    if not policy.across_machines and kind(before.environment) != kind(now.environment):
        return incomparable(
            before, policy, "another kind of machine: measure both versions in one job (`ffnbench ab --help`)"
        )
    for row, history in past.rows.items():
        if why := _fed_otherwise(before.plan, now.plan, row[0]):
            found.append(_finding(*row, Status.INCOMPARABLE, policy, reason=why))
            continue
        mean = _known(now, row, confidence)
        change = history.change(mean) if history and mean else None
        found.append(_told(row, change, now, policy, slack))
    return found


def paired_findings(now: Report, policy: Policy, confidence: float = CONFIDENCE) -> list[Finding]:
    """The latency of every row against the reference of the same run: old and new code in the same rounds.

    There is no other run to vary from, so the change is the ratio with its own interval.
    """
    slack, found = control_slack(now), []
    for row in _timed_rows(now.plan, replace(policy, absolute=False)):
        mean = _known(now, row, confidence)
        found.append(_told(row, Change(0.0, mean.mean, mean) if mean else None, now, policy, slack))
    return found


def _known(now: Report, row: Row, confidence: float) -> Mean | None:
    """A row's log with what the looks cost in its error; None without an interval."""
    mean = row_of(now, *row)
    return mean.inflated(confidence) if mean and mean.freedom > 0 else None


def _fed_otherwise(then: Plan, now: Plan, label: str) -> str:
    """What is not the same about what a row, or its reference, is fed; such times say nothing of each other."""
    labels = dict.fromkeys((label, then.reference_of(label)))
    present = {case.label for case in now.cases}
    found = [_workloads_differ(then.case(one), now.case(one), FED) for one in labels if one in present]
    return next(filter(None, found), "")


def _told(row: Row, change: Change | None, now: Report, policy: Policy, slack: float) -> Finding:
    """What follows for one row from its change, where that is known. There is no time of a row that computes something
    else, nor against such a reference. `slack` (in logs) is what the control asks for.
    """
    label, metric = row
    reference, rounds = now.plan.reference_of(label), rounds_of_row(now, label, metric)
    if why := mismatch_of_row(now, *row):
        return _finding(*row, Status.MISSING, policy, reason=why)
    if change is None and rounds.every:
        reason = busy_text(now) if rounds.clean_rounds < rounds.rounds else ONE_WORKER
        return _finding(*row, Status.UNCLEAR, policy, reason=reason)
    if change is None:
        failure = now.failure(label) or now.failure(reference)
        return _finding(*row, Status.MISSING, policy, reason=failure.message if failure else "not measured in this run")
    extra = slack if metric == LATENCY else 0.0  # the slack is of ratios
    status, reason = _status(change, extra, policy.of(*row)), ""
    if status is Status.UNCLEAR and rounds.disturbed:
        reason = busy_text(now)
    elif status is Status.UNCLEAR and extra:
        reason = "the reference differs from itself: the machine is too noisy now"
    return _finding(
        *row, status, policy, before=math.exp(change.before), now=math.exp(change.now), change=change.estimate(),
        reason=reason,
    )  # fmt: skip


def _status(change: Change, extra: float, tolerance: float) -> Status:
    """Not corrected for the number of rows: of unchanged code a row lies a whole tolerance below its limit, so that
    even twenty rows are not accused by chance where the tolerance is wider than an interval.
    """
    low, high = change.difference.interval(CONFIDENCE) or (-math.inf, math.inf)
    return status_of(math.exp(low - extra), math.exp(min(high + extra, 700.0)), tolerance)


def incomparable(before: Report, policy: Policy, reason: str) -> list[Finding]:
    """Every row whose time would be checked, as one that can't be."""
    rows = _timed_rows(before.plan, policy)
    return [_finding(label, metric, Status.INCOMPARABLE, policy, reason=reason) for label, metric in rows]


def _timed_rows(plan: Plan, policy: Policy) -> list[Row]:
    """Latency of every row that is compared; seconds of every case where asked for."""
    rows = [(case.label, LATENCY) for case in plan.shown if not plan.is_reference(case.label)]
    return rows + [(case.label, SECONDS) for case in plan.shown if policy.absolute]


def status_of(low: float, high: float, tolerance: float) -> Status:
    """The status on the interval of a change: beyond the limit, within it, below 1, or on both sides of the limit."""
    if low > 1 + tolerance:
        return Status.REGRESSED
    if high > 1 + tolerance:
        return Status.UNCLEAR
    return Status.IMPROVED if high < 1 else Status.OK


def exit_code(findings: list[Finding], *, unclear_fails: bool) -> int:
    """0 nothing regressed, 1 regressed, 3 a row that should be there is not, 4 unclear and told to fail then."""
    statuses = {finding.status for finding in findings}
    if Status.REGRESSED in statuses:
        return EXIT_REGRESSED
    if Status.MISSING in statuses:
        return 3
    return 4 if unclear_fails and statuses & {Status.UNCLEAR, Status.INCOMPARABLE} else 0


OUTPUT = "output"
EXACT_WITHIN = 1e-6  # of two runs in float64: rounding leaves 1e-15, or 1e-7 where a module casts to float32 inside


def without_gain(findings: Iterable[Finding], output: Finding) -> tuple[Finding, ...]:
    """The findings; where it is not known whether the two sides compute the same, none of them is a gain."""
    why = "faster, but it may compute something else: see the row `output`"
    return tuple(
        replace(found, status=Status.UNCLEAR, reason=why)
        if found.status is Status.IMPROVED and output.status is Status.UNCLEAR
        else found
        for found in findings
    )


def output_finding(label: str, agreement: Agreement, *, allowed: bool) -> Finding:
    """Whether head computes what base does: REGRESSED where it does not, OK where that is `allowed`.

    UNCLEAR where their outputs differ and so do their weights, which could not be carried over.
    """
    errors = {"": agreement.error, " in float64": agreement.exact_error}
    limits = {"": agreement.tolerance, " in float64": min(agreement.tolerance, EXACT_WITHIN)}
    apart = [f"{error:.1e}{how}" for how, error in errors.items() if error is not None and error > limits[how]]
    differs = f"head's output differs from base's by {apart[0] if apart else ''}{', in float64 too' * (len(apart) > 1)}"
    if agreement.error is None:
        apart, differs = [""], "head's output is not finite, or has another shape than base's"
    own = f"; its weights are not base's: {agreement.apart}" if agreement.apart else ""
    status, reason = Status.OK, own.removeprefix("; ")
    if apart:
        status = Status.OK if allowed else Status.UNCLEAR if agreement.apart else Status.REGRESSED
        reason = differs + own
        reason += "; allowed by --allow-mismatch" if allowed else ""
        reason += "; not timed (--allow-mismatch times it anyway)" if status is Status.REGRESSED else ""
    return Finding(
        case=label, metric=OUTPUT, status=status, tolerance=agreement.tolerance, now=agreement.error, reason=reason
    )

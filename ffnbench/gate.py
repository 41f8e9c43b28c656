"""The journey of `check`: a baseline -> its own plan measured again -> findings. Suspects are measured twice."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace

from ffnbench.api import Prepared, ShownReport, load, price_plan
from ffnbench.bench.environment import describe
from ffnbench.bench.group import Launch
from ffnbench.bench.session import Session
from ffnbench.errors import FfnbenchError
from ffnbench.ffn.spec import FFNSpec
from ffnbench.plan import LATENCY, PEAK, SAVED, Case, NoProbe, Plan, cost_of
from ffnbench.planning.effort import LEAST_BUDGET_S, LONG_BUDGET_S
from ffnbench.planning.grammar import parse_variant
from ffnbench.report.store import seal
from ffnbench.request import Request
from ffnbench.result import CaseCost, Environment, Progress, Report
from ffnbench.stats.enough import Answered
from ffnbench.stats.looks import FINEST_PART, blind_row, two_looks
from ffnbench.stats.regression import (
    EXACT,
    TIMED,
    Finding,
    Policy,
    Status,
    exact_findings,
    kind,
    latency_findings,
    parse_tolerances,
)
from ffnbench.units import percent

WORKLOAD_FLAGS = ("seq_len", "batch", "dtype", "mode", "backend", "routing")
Listener = Callable[[Progress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The flags of `check` that measuring and deciding depend on."""

    tolerances: tuple[str, ...] = ()
    budget: float = LONG_BUDGET_S
    exact_only: bool = False
    across_machines: bool = False
    absolute: bool = False
    current: str | None = None  # a saved run, in place of measuring


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The answer: what follows for every row, the two reports that it follows from, and the second look at suspects."""

    findings: tuple[Finding, ...]
    before: Report
    now: Report
    again: Report | None = None
    title: str = ""  # where it is not about a stored baseline

    @property
    def smallest(self) -> float | None:
        """The smallest change that every latency row could have been caught at."""
        sizes = [
            math.sqrt(f.change.high / f.change.low) * (1 + f.tolerance) - 1
            for f in self.findings
            if f.metric == LATENCY and f.change and f.change.low and f.change.high
        ]
        return max(sizes, default=None)


def check(path: str, options: Options, on_progress: Listener = lambda _: None, launch: Launch = Session) -> Gate:
    """Measure a baseline's plan again and decide. Raises FfnbenchError for what is no usable baseline or policy."""
    before, policy = prepare(path, options)
    if options.current is not None:
        return _stored(before, policy, options)
    priced = price_plan(before.plan)
    if options.exact_only or not _timed(before):
        now = _exact(before, priced, on_progress, launch)
        return Gate(findings=tuple(exact_findings(before, now, policy)), before=before, now=now)
    here = _here(launch)
    if options.absolute:
        _same_machine(path, before.environment, here)
    if kind(here) != kind(before.environment) and not options.across_machines:
        now = replace(_exact(before, priced, on_progress, launch), environment=here)
        findings = (*exact_findings(before, now, policy), *latency_findings(before, now, policy))
        return Gate(findings=findings, before=before, now=now)
    return _measured(before, priced, policy, options, on_progress, launch)


def _stored(before: ShownReport, policy: Policy, options: Options) -> Gate:
    """A run that was saved, held against the baseline: nothing is measured, so a suspect can't be measured again."""
    assert options.current is not None
    now = load(options.current)
    if now.plan.reference != before.plan.reference:
        raise FfnbenchError(
            f"{options.current!r} compares with {now.plan.reference!r}, the baseline with {before.plan.reference!r}",
            f"measure it with --reference {shlex.quote(before.plan.reference)}",
        )
    findings = tuple(exact_findings(before, now, policy))
    if _timed(before) and not options.exact_only:
        once = "measured once: a saved run can't be measured again"
        findings += tuple(
            replace(f, reason=once) if f.status is Status.REGRESSED else f
            for f in latency_findings(before, now, policy)
        )
    return Gate(findings=findings, before=before, now=now)


def _measured(
    before: ShownReport, priced: Prepared, policy: Policy, options: Options, on_progress: Listener, launch: Launch
) -> Gate:
    def measure(plan: Plan, answered: Answered) -> Report:
        return Prepared(plan=plan, costs=costs_of(plan, priced)).measure(on_progress, launch, answered)

    looks = two_looks(before, policy, options.budget, measure)
    exact = exact_findings(before, looks.now, policy)
    return Gate(findings=(*exact, *looks.findings), before=before, now=looks.now, again=looks.again)


def costs_of(plan: Plan, priced: Prepared) -> tuple[CaseCost, ...]:
    """The cost of each case of a plan; what was not priced is the control."""
    known = {cost.case: cost for cost in priced.costs}
    return tuple(
        known[case.label] if case.label in known else replace(known[plan.reference], case=case.label)
        for case in plan.cases
    )


def _exact(before: ShownReport, priced: Prepared, on_progress: Listener, launch: Launch) -> ShownReport:
    """The costs as they are now; bytes are measured only where the baseline has some that no closed form predicts."""
    now = priced.priced()
    unknown = [
        metric
        for case in before.plan.shown
        for metric in EXACT
        if metric.name in (PEAK, SAVED)
        and metric.of(before, case.label) is not None
        and metric.of(now, case.label) is None
    ]
    if not unknown:
        return now
    plan = replace(before.plan, metrics=("memory",))
    return Prepared(plan=plan, costs=priced.costs).measure(on_progress, launch)


def _here(launch: Launch) -> Environment:
    worker = launch()
    try:
        return describe(worker.facts())
    finally:
        worker.close()


def _same_machine(path: str, before: Environment | None, here: Environment) -> None:
    """--absolute gates seconds, and they mean nothing on another machine."""
    if before is None or before.fingerprint == here.fingerprint:
        return
    shared = ("cpu", "usable_cpus", "cpu_capability", "torch", "blas", "gpu", "cuda")
    differs = [
        f"{n} {getattr(before, n)} then, {getattr(here, n)} now"
        for n in shared
        if getattr(before, n) != getattr(here, n)
    ]
    raise FfnbenchError(
        f"--absolute needs the machine of {path!r}: {'; '.join(differs) or 'another fingerprint'}",
        "gate ratios (leave --absolute out), or make a baseline here",
    )


def prepare(path: str, options: Options) -> tuple[ShownReport, Policy]:
    """The baseline and the policy, with every mistake found that can be found without measuring."""
    before = load(path)
    _check_baseline(path, before)
    labels = [case.label for case in before.plan.shown]
    policy = Policy(
        tolerances=parse_tolerances(options.tolerances, labels), across_machines=options.across_machines,
        absolute=options.absolute,
    )  # fmt: skip
    if options.exact_only and (timed := next((m for _, m, _ in policy.tolerances if m in TIMED), None)):
        raise FfnbenchError(f"--exact-only gates no {timed}", "leave one of the two out")
    if not LEAST_BUDGET_S <= options.budget < math.inf:
        raise FfnbenchError(f"--budget {options.budget:g} is too short", f"give at least {LEAST_BUDGET_S:g} seconds")
    if _timed(before) and not options.exact_only:
        _check_power(path, before, policy, options.budget)
    return before, policy


def _timed(report: Report) -> bool:
    return "latency" in report.plan.metrics and report.environment is not None


def _check_baseline(path: str, before: Report) -> None:
    if before.seal != seal(before) and _costs_differ(before):
        raise FfnbenchError(f"{path!r} was edited: its specs and its costs disagree", _again(path, before))
    if before.interrupted or before.stopped:
        raise FfnbenchError(f"{path!r} ended early and is no baseline", _again(path, before))
    if _timed(before):
        for case in before.plan.shown:
            if not [s for s in before.samples if s.case == case.label and s.metric == LATENCY]:
                raise FfnbenchError(f"{path!r} has no samples of {case.label!r}", _again(path, before))


def _costs_differ(before: Report) -> bool:
    """Whether a closed form gives something else for a spec than what stands beside it."""
    own = [case for case in before.plan.shown if isinstance(case.ffn, FFNSpec)]
    return any(cost_of(case, NoProbe()).params != before.cost(case.label).params for case in own)


def _check_power(path: str, before: Report, policy: Policy, budget: float) -> None:
    """A tolerance that can't be told apart from noise: a change of twice of it could be missed, or none be decided."""
    blind = blind_row(before, policy, budget)
    if blind is None:
        return
    half, tolerance = percent(blind.half), percent(blind.tolerance)
    if blind.by_baseline:
        raise FfnbenchError(
            f"the baseline knows {blind.case!r} to +-{half} only, the tolerance is {tolerance}",
            _again(path, before, precision=100 * blind.tolerance / FINEST_PART),
        )
    raise FfnbenchError(
        f"{budget:g} s can't resolve a tolerance of {tolerance} for {blind.case!r}: about +-{half} is in reach",
        "give more --budget, or more --tolerance",
    )


def _again(path: str, before: Report, precision: float = 0.5) -> str:
    variants = ",".join(
        case.variant if case.variant == case.label else f"{case.label}={case.variant}" for case in before.plan.shown
    )
    reference, default = before.plan.case(before.plan.reference), Request()
    said = [f"--d-model {reference.ffn.d_model}"]
    said += [
        f"--{name.replace('_', '-')} {value}"
        for name in WORKLOAD_FLAGS
        if (value := _by_flag(before.plan, name)) not in (None, getattr(default, name))
    ]
    said += [f"--match {before.plan.match}"] if before.plan.match != default.match else []
    said += _form_flags(reference, default)
    return (
        f"make a better one: ffnbench compare {' '.join(said)} --variants {shlex.quote(variants)} "
        f"--precision {precision:.2g} -o {shlex.quote(path)}"
    )


def _by_flag(plan: Plan, name: str) -> object:
    """What a flag of the workload said: the value of the cases that have no key of their own for it."""
    cases = [case for case in plan.shown if name not in _keys(case)]
    return next((value for case in cases if (value := getattr(case.workload, name)) is not None), None)


def _keys(case: Case) -> set[str]:
    """The keys that a case has by itself; none of what is no variant, such as the attention of a block."""
    try:
        variant = parse_variant(case.variant)
    except FfnbenchError:
        return set()
    return {*variant.workload_keys, *variant.spec_keys}


def _form_flags(reference: Case, default: Request) -> list[str]:
    """What flags said of the reference's form, and not its own keys; a preset's keys are those of the model."""
    spec, own = reference.ffn, _keys(reference)
    if not isinstance(spec, FFNSpec):
        return []
    said = [f"--d-ff {spec.d_ff}"] if reference.sizing == "given" and "d_ff" not in own else []
    said += ["--bias"] if spec.bias and "bias" not in own else []
    said += [f"--dropout {spec.dropout:g}"] if spec.dropout and "dropout" not in own else []
    return said + ([f"--init {spec.init.value}"] if spec.init.value != default.init and "init" not in own else [])

"""The commands that ask whether it has got slower: `check` against a baseline, `ab` between two sides."""

from __future__ import annotations

import shlex
import tempfile
from dataclasses import replace
from typing import Any

from ffnbench.api import world
from ffnbench.api.measuring import measured_once, tell_wait
from ffnbench.api.preparing import (
    NULL_SINK,
    Prepared,
    asked_as,
    priced,
    refuse_at_once,
    refuse_device,
    start_all,
    with_defaults,
    with_threads,
)
from ffnbench.api.saved import load
from ffnbench.api.world import device_facts
from ffnbench.device.environment import auto_device, describe
from ffnbench.errors import FfnbenchError, Unfinished
from ffnbench.gate.baseline import (
    is_timed,
    of_another_method,
    policy_for,
    policy_of_sides,
    refuse_another_machine,
    refuse_another_plan,
    unpredicted,
)
from ffnbench.gate.checkouts import placed, prober_within
from ffnbench.gate.decision import (
    Checked,
    Finding,
    Policy,
    Status,
    exact_findings,
    incomparable,
    kind,
    latency_findings,
    output_finding,
    paired_findings,
    past_of,
    without_gain,
)
from ffnbench.gate.looks import Look, look, look_back
from ffnbench.gate.shown import check_view
from ffnbench.gate.sides import BASE, plan_sides, sides_asked, variant_of_sides
from ffnbench.gate.trust import refuse_untrusted
from ffnbench.plan import METHOD, Arm, Plan
from ffnbench.planning.variant_text import Variant
from ffnbench.report.output import NullSink
from ffnbench.report.shown_report import ShownReport
from ffnbench.request import CheckRequest, SidesRequest
from ffnbench.result import CaseCost, Environment, Report
from ffnbench.run.prober import Prober
from ffnbench.stats.stopping import Answered
from ffnbench.targets import NO_FILE, NOT_THERE


def check(request: CheckRequest, sink: NullSink = NULL_SINK, *, updates: bool = False) -> Checked:
    """A baseline's own plan measured again, or a saved run, held against it; `updates`: it will be the baseline."""
    before = load(request.baseline)
    if updates and request.exact_only and is_timed(before):
        told = f"{request.baseline!r} has latencies, and a new one by --exact-only would have none"
        raise FfnbenchError(told, "leave --exact-only out: --update measures them again")
    sink.known(before)
    for text in sink.said():
        sink.tell(f"note: {text}")
    if request.current is None:
        refuse_untrusted(before.plan, request.baseline, request.trust)
    policy = policy_for(before, request)
    looks = _look_again(before, policy, request, sink)
    exact = exact_findings(before, looks.now, policy)
    return _decided(
        (*exact, *looks.findings), before, looks, sink, against=request.baseline, saved=request.current or ""
    )


def ab(request: SidesRequest, sink: NullSink = NULL_SINK) -> Checked:
    """Base and head in the same minutes. Raises FfnbenchError where a side can't be had, and leaves nothing behind."""
    variant = variant_of_sides(request)
    policy = policy_of_sides(request, variant.label)
    if request.base_python is None and request.head_python is None:
        refuse_device(request.device)
    with (
        placed(sides_asked(request, variant)) as ((base, base_is), (head, head_is)),
        tempfile.TemporaryDirectory(prefix="ffnbench-") as folder,
    ):
        prepared, output, shared = _prepare_sides(request, variant, (base, head), folder, sink)
        looks = _look_at_sides(request, prepared, output, policy, sink, folder if shared else "")
    before, now = (_one_side(looks.now, side, variant.label) for side in (BASE, variant.label))
    exact = exact_findings(before, now, policy)
    findings = (*without_gain(looks.findings, output), output, *without_gain(exact, output))
    return _decided(findings, before, looks, sink, sides=(base_is, head_is))


def _look_again(before: ShownReport, policy: Policy, request: CheckRequest, sink: NullSink) -> Look:
    """What a check sees: a saved run, exact metrics alone, or latency as well."""
    if request.current is not None:
        return _look_at_saved(before, _saved(request.current), policy, request)
    refuse_at_once(before.plan)
    with world.MACHINE.prober(before.plan.protocol.timeout_s) as prober:
        todays = replace(before.plan.protocol, method=METHOD)
        prepared = priced(replace(before.plan, protocol=todays), prober, lenient=True)
    if request.exact_only or not is_timed(before):
        return Look(findings=(), now=_exact(before, prepared, sink))
    if reason := of_another_method(request.baseline, before):
        return Look(findings=tuple(incomparable(before, policy, reason)), now=_exact(before, prepared, sink))
    here = environment_here(before.plan.cases[0].workload.device)
    if request.absolute:
        refuse_another_machine(request.baseline, before.environment, here)
    if kind(here) != kind(before.environment) and not request.across_machines:
        now = replace(_exact(before, prepared, sink), environment=here)
        return Look(findings=tuple(latency_findings(past_of(before, policy), now, policy)), now=now)

    def measured(plan: Plan, answered: Answered) -> Report:
        return measured_once(replace(prepared, plan=plan), sink, answered=answered)

    tell_wait(sink, prepared.plan, budget=request.budget)
    return look_back(before, policy, request.budget, measured)


def _saved(path: str) -> ShownReport:
    """A run that was saved; one that was interrupted then has stopped: nobody interrupts this command."""
    now = load(path)
    return replace(now, interrupted=False, stopped=f"{path!r} was interrupted") if now.interrupted else now


def _look_at_saved(before: ShownReport, now: ShownReport, policy: Policy, request: CheckRequest) -> Look:
    """A run that was saved: nothing is measured."""
    refuse_another_plan(request, before.plan, now.plan)
    if not is_timed(before) or request.exact_only:
        return Look(findings=(), now=now)
    runs = ((request.baseline, before), (str(request.current), now))
    if reasons := [reason for path, run_ in runs if (reason := of_another_method(path, run_))]:
        return Look(findings=tuple(incomparable(before, policy, "; ".join(reasons))), now=now)
    return Look(findings=tuple(latency_findings(past_of(before, policy), now, policy)), now=now)


def _exact(before: ShownReport, prepared: Prepared, sink: NullSink) -> ShownReport:
    """The costs as they are now; bytes are measured only where the baseline has some that no closed form predicts."""
    now = prepared.priced()
    if not unpredicted(before, now):
        return now
    protocol = replace(prepared.plan.protocol, budget_s=None)  # that was of latency
    return measured_once(replace(prepared, plan=replace(prepared.plan, metrics=("memory",), protocol=protocol)), sink)


def environment_here(device: str) -> Environment:
    """Where a plan for that device would be measured, as far as the device is there."""
    worker = world.MACHINE.launch()
    try:
        told = worker.greeting()
        used = auto_device(told) if device == "auto" else device
        there = used.partition(":")[0] == auto_device(told)
        return describe(told | (device_facts(worker, used) if there else {}))
    finally:
        worker.close()


def _prepare_sides(
    request: SidesRequest, variant: Variant, arms: tuple[Arm, Arm], folder: str, sink: NullSink
) -> tuple[Prepared, Finding, bool]:
    """Both sides looked at where they run: what they are, what they cost, and whether they compute the same.

    The base's weights stay in the folder; the last one tells whether the head can take them over.
    """
    with world.MACHINE.prober(request.timeout) as prober:
        start_all(prober, arms)
        there = prober_within(prober, arms[1], variant)  # first: what head has and base has not is new
        probes = (_base_within(prober, arms[0], variant, request), there)
        plan = asked_as(plan_sides(with_threads(request), arms, probes), request)
        sink.known(plan)
        plan = with_defaults(plan, sink)
        prepared = priced(plan, prober)
        base, head = plan.cases
        probes[0].keep(base, request.seed, folder)
        agreement = probes[1].hold(head, request.seed, folder)
    output = output_finding(variant.label, agreement, allowed=request.allow_mismatch)
    return prepared, output, not agreement.apart


def _base_within(prober: Prober, arm: Arm, variant: Variant, request: SidesRequest) -> Prober:
    try:
        return prober_within(prober, arm, variant)
    except FfnbenchError as problem:
        if problem.hint not in (NOT_THERE, NO_FILE):
            raise
        what = f"{request.base_rev or BASE} has no {variant.target.rpartition(':')[0]}"
        raise Unfinished(
            f"{what}: it is new, and there is nothing to compare with",
            f"`ffnbench cost {shlex.quote(variant.text)}` counts it",
        ) from problem


def _look_at_sides(
    request: SidesRequest, prepared: Prepared, output: Finding, policy: Policy, sink: NullSink, weights: str
) -> Look:
    """The latency, or one worker of each side for the exact metrics alone; none at another function."""

    def measured(plan: Plan, answered: Answered | None = None) -> ShownReport:
        return measured_once(replace(prepared, plan=plan), sink, answered=answered, weights=weights)

    if output.status is Status.REGRESSED:
        return Look(findings=(), now=prepared.priced())
    tell_wait(sink, prepared.plan, budget=None if request.exact_only else request.budget)
    if request.exact_only:
        return Look(findings=(), now=measured(prepared.plan))

    def find(now: Report, confidence: float) -> list[Finding]:
        return paired_findings(now, policy, confidence)

    return look(prepared.plan, find, policy, request.budget, measured)


def _decided(findings: tuple[Finding, ...], before: Report, looks: Look, sink: NullSink, **told: Any) -> Checked:
    checked = Checked(findings=findings, before=before, now=looks.now, **told)
    sink.show(lambda: check_view(checked))
    return checked


def _one_side(found: Report, side: str, label: str) -> Report:
    """One side by itself, under the name of the variant: so that the two can be compared as two runs are."""
    case = replace(found.plan.case(side), label=label)
    return replace(
        found,
        plan=replace(found.plan, cases=(case,), reference=label),
        costs=(CaseCost(case=label, cost=found.cost(side)),),
        measured=tuple(replace(m, case=label) for m in found.measured if m.case == side),
        failures=tuple(replace(f, case=label) for f in found.failures if f.case == side),
        inputs=tuple(replace(i, case=label) for i in found.inputs if i.case == side),
    )

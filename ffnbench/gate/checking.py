"""The commands that ask whether it has got slower: `check` against a baseline, `ab`
between two sides.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import replace

from ffnbench.api.measuring import measure_run, tell_duration
from ffnbench.api.preparing import (
    Prepared,
    refuse_arms_without_torch,
    refuse_at_once,
    refuse_device,
    with_command,
    with_costs,
    with_notes,
    with_threads,
)
from ffnbench.api.saved_runs import load_shown
from ffnbench.common.errors import FfnbenchError, Unfinished
from ffnbench.common.targets import INSTALL_HINT, PATH_HINT
from ffnbench.device.environment import auto_device, environment_of_run
from ffnbench.following import UNFOLLOWED, Following
from ffnbench.gate.baseline import (
    is_timed,
    of_another_method,
    policy_for,
    policy_of_sides,
    refuse_another_machine,
    refuse_another_plan,
    unpredicted,
)
from ffnbench.gate.confirmation import (
    FirstAnswer,
    read_answer,
    refuse_another_question,
)
from ffnbench.gate.decision import (
    Checked,
    Finding,
    Policy,
    Status,
    baseline_times,
    exact_findings,
    incomparable,
    latency_findings,
    machine_kind,
    output_finding,
    without_gain,
)
from ffnbench.gate.interim import UntilDecided, plan_of_check
from ffnbench.gate.sides import (
    BASE,
    checked_out_sides,
    plan_sides,
    prober_within,
    sides_asked,
    variant_of_sides,
)
from ffnbench.gate.trust import refuse_untrusted
from ffnbench.plan import METHOD, Arm, Kind
from ffnbench.planning.variant_text import Variant
from ffnbench.report.shown_report import ShownReport
from ffnbench.request import CheckRequest, SidesRequest, command_line
from ffnbench.result import CaseCost, Environment, Report
from ffnbench.run.prober import Prober
from ffnbench.run.resources import device_facts
from ffnbench.run.world import World


def check(
    request: CheckRequest,
    world: World,
    following: Following = UNFOLLOWED,
    *,
    updates: bool = False,
) -> Checked:
    """A baseline's own plan measured again, or a saved run, held against it; `updates`:
    it will be the baseline.
    """
    before = load_shown(request.baseline)
    if updates and request.exact_only and is_timed(before):
        raise FfnbenchError(
            f"--exact-only --update would remove the latencies of {request.baseline!r}",
            "leave --exact-only out, and the latencies are measured again",
        )
    if request.current is None:
        refuse_untrusted(before.plan, request.baseline, request.trust)
    policy = policy_for(before, request)
    if request.confirm is not None:
        return _confirmed_check(
            request.confirm, before, policy, request, world, following
        )
    if request.current is None:
        now, findings = _measured_again(before, policy, request, world, following)
    else:
        now, findings = _saved_run(request.current, before, policy, request)
    return Checked(
        findings=(*exact_findings(before, now, policy), *findings),
        before=before,
        now=now,
        against=request.baseline,
        saved=request.current or "",
        command=command_line(request, "check"),
    )


def _confirmed_check(
    path: str,
    before: ShownReport,
    policy: Policy,
    request: CheckRequest,
    world: World,
    following: Following,
) -> Checked:
    """The rows that regressed in a saved check, measured again."""
    if request.current is not None:
        raise FfnbenchError(
            f"--confirm measures again, and {request.current!r} is a saved run",
            "leave one of the two out",
        )
    first = read_answer(path, before.plan.kind)
    if not first.regressed:
        return first.nothing_to_confirm(request.baseline)
    refuse_another_question(first, before.plan, policy, exact_only=request.exact_only)
    now, findings = _measured_again(before, policy, request, world, following, first)
    exact = exact_findings(before, now, policy)
    return Checked(
        findings=first.findings_among((*exact, *findings)),
        before=before,
        now=now,
        against=request.baseline,
        confirms=path,
        command=command_line(request, "check"),
    )


def ab(
    request: SidesRequest,
    world: World,
    following: Following = UNFOLLOWED,
    *,
    notes: Sequence[str] = (),
) -> Checked:
    """Base and head in the same minutes. Raises FfnbenchError where a side can't be
    had, and leaves nothing behind.

    `notes` are what a reader should know of how it was asked for.
    """
    variant = variant_of_sides(request)
    policy = policy_of_sides(request, variant.label)
    first = None
    if request.confirm is not None:
        first = read_answer(request.confirm, Kind.SIDES)
        if not first.regressed:
            return first.nothing_to_confirm()
        if not first.timed:
            request = replace(request, exact_only=True)
    if request.base_python is None:
        refuse_device(request.device, world)
    with (
        checked_out_sides(sides_asked(request, variant)) as (
            (base, base_is),
            (head, head_is),
        ),
        tempfile.TemporaryDirectory(prefix="ffnbench-") as folder,
    ):
        prepared, output, shared = _prepare_sides(
            request, variant, (base, head), folder, world, notes
        )
        if first is not None:
            refuse_another_question(
                first, prepared.plan, policy, exact_only=request.exact_only
            )
        weights = folder if shared else ""
        measured, latencies = _measured_sides(
            request, prepared, output, policy, world, following, weights, first
        )
    before, now = (
        _one_side(measured, side, variant.label) for side in (BASE, variant.label)
    )
    exact = exact_findings(before, now, policy)
    findings = (*without_gain(latencies, output), output, *without_gain(exact, output))
    if first is not None:
        findings = first.findings_among(findings)
    return Checked(
        findings=findings,
        before=before,
        now=measured,
        sides=(base_is, head_is),
        command=command_line(request),
        confirms=request.confirm or "",
    )


def _measured_again(
    before: ShownReport,
    policy: Policy,
    request: CheckRequest,
    world: World,
    following: Following,
    first: FirstAnswer | None = None,
) -> tuple[ShownReport, Sequence[Finding]]:
    """What a check measures, and what follows for latencies: exact metrics alone, or
    latency as well. Of a `first` answer it is the rows that regressed in it.
    """
    whole, timed = before, is_timed(before) and not request.exact_only
    earlier = None
    if first is not None:
        timed, earlier = first.timed, first.earlier()
        before = replace(before, plan=first.part_of(before.plan))
    refuse_at_once(before.plan, world)
    with world.prober(before.plan.protocol.timeout_s) as prober:
        protocol = replace(before.plan.protocol, method=METHOD)
        prepared = with_costs(
            replace(before.plan, protocol=protocol), prober, lenient=True
        )
    if not timed:
        return _exact(before, prepared, world, following), ()
    another_method = of_another_method(request.baseline, before)
    if another_method:
        return _exact(before, prepared, world, following), incomparable(
            before, policy, another_method
        )
    here = environment_here(before.plan.cases[0].workload.device, world)
    if request.absolute:
        refuse_another_machine(request.baseline, before.environment, here)
    baseline = baseline_times(whole, policy)
    if (
        machine_kind(here) != machine_kind(before.environment)
        and not request.across_machines
    ):
        now = replace(_exact(before, prepared, world, following), environment=here)
        return now, latency_findings(baseline, now, policy, earlier=earlier)
    tell_duration(prepared.plan, world, following.progress, request.budget)
    return _until_decided(
        prepared,
        UntilDecided(policy, baseline, earlier=earlier),
        request.budget,
        world,
        following,
    )


def _until_decided(
    prepared: Prepared,
    stop: UntilDecided,
    budget_s: float,
    world: World,
    following: Following,
    weights: str = "",
) -> tuple[ShownReport, Sequence[Finding]]:
    """Measure the latency of a plan's rows until each is decided, for at most so many
    seconds.
    """
    until_decided = replace(
        prepared, plan=plan_of_check(prepared.plan, stop.policy, budget_s)
    )
    now = measure_run(until_decided, world, following, stop, weights)
    return now, stop.conclusion(now)


def _saved_run(
    path: str, before: ShownReport, policy: Policy, request: CheckRequest
) -> tuple[ShownReport, Sequence[Finding]]:
    """A run that was saved, and what follows for latencies: nothing is measured."""
    now = load_shown(path)
    if now.interrupted:  # then; nobody interrupts this command
        now = replace(now, interrupted=False, stopped=f"{path!r} was interrupted")
    refuse_another_plan(request, before.plan, now.plan)
    if not is_timed(before) or request.exact_only:
        return now, ()
    reasons = {
        of_another_method(request.baseline, before),
        of_another_method(path, now),
    } - {""}
    if reasons:
        return now, incomparable(before, policy, "; ".join(sorted(reasons)))
    return now, latency_findings(baseline_times(before, policy), now, policy)


def _exact(
    before: ShownReport, prepared: Prepared, world: World, following: Following
) -> ShownReport:
    """The costs as they are now; bytes are measured only where the baseline has some
    that no closed form predicts.
    """
    now = prepared.cost_report()
    if not unpredicted(before, now):
        return now
    protocol = replace(prepared.plan.protocol, budget_s=None)  # that was of latency
    of_memory = replace(
        prepared, plan=replace(prepared.plan, metrics=("memory",), protocol=protocol)
    )
    return measure_run(of_memory, world, following)


def environment_here(device: str, world: World) -> Environment:
    """Where a plan for that device would be measured, as far as the device is there."""
    worker = world.launch()
    try:
        greeting = worker.greeting()
        used = auto_device(greeting) if device == "auto" else device
        there = used.partition(":")[0] == auto_device(greeting)
        return environment_of_run(
            greeting, device_facts(worker, used) if there else None
        )
    finally:
        worker.close()


def _prepare_sides(
    request: SidesRequest,
    variant: Variant,
    arms: tuple[Arm, Arm],
    folder: str,
    world: World,
    notes: Sequence[str],
) -> tuple[Prepared, Finding, bool]:
    """Both sides looked at where they run: what they are, what they cost, and whether
    they compute the same.

    The base's weights stay in the folder; the last one tells whether the head can take
    them over.
    """
    with world.prober(request.timeout) as prober:
        refuse_arms_without_torch(prober, arms)
        there = prober_within(
            prober, arms[1], variant
        )  # first: what head has and base has not is new
        probes = (_base_within(prober, arms[0], variant, request), there)
        plan = with_command(plan_sides(with_threads(request), arms, probes), request)
        prepared = with_costs(with_notes(plan, notes), prober)
        base, head = plan.cases
        probes[0].keep(base, request.seed, folder)
        agreement = probes[1].hold(head, request.seed, folder)
    output = output_finding(variant.label, agreement, allowed=request.allow_mismatch)
    return prepared, output, not agreement.own_weights


def _base_within(
    prober: Prober, arm: Arm, variant: Variant, request: SidesRequest
) -> Prober:
    try:
        return prober_within(prober, arm, variant)
    except FfnbenchError as problem:
        if problem.hint not in (INSTALL_HINT, PATH_HINT):
            raise
        what = f"{request.base_rev or BASE} has no {variant.target.rpartition(':')[0]}"
        raise Unfinished(
            f"{what}: it is new, and there is nothing to compare with",
            f"`ffnbench cost {shlex.quote(variant.text)}` counts it",
        ) from problem


def _measured_sides(
    request: SidesRequest,
    prepared: Prepared,
    output: Finding,
    policy: Policy,
    world: World,
    following: Following,
    weights: str,
    first: FirstAnswer | None,
) -> tuple[ShownReport, Sequence[Finding]]:
    """Both sides measured, and what follows for latency.

    For the exact metrics alone one worker of each is enough; nothing is measured where
    head computes something else. A `first` answer has its part in what follows.
    """
    if output.status is Status.REGRESSED:
        return prepared.cost_report(), ()
    tell_duration(
        prepared.plan,
        world,
        following.progress,
        None if request.exact_only else request.budget,
    )
    if request.exact_only:
        return measure_run(prepared, world, following, weights_folder=weights), ()
    return _until_decided(
        prepared,
        UntilDecided(policy, earlier=first.earlier() if first else None),
        request.budget,
        world,
        following,
        weights,
    )


def _one_side(run: Report, side: str, label: str) -> Report:
    """One side by itself, under the name of the variant: so that the two can be
    compared as two runs are.
    """
    case = replace(run.plan.case(side), label=label)
    return replace(
        run,
        plan=replace(run.plan, cases=(case,), reference=label),
        costs=(CaseCost(case=label, cost=run.cost(side)),),
        measured=tuple(replace(m, case=label) for m in run.measured if m.case == side),
        failures=tuple(replace(f, case=label) for f in run.failures if f.case == side),
        inputs=tuple(replace(i, case=label) for i in run.inputs if i.case == side),
    )

"""The two questions of whether code has got slower: `check` measures against a
baseline, `ab` measures two sides against each other.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

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
    has_latencies,
    has_unpredicted,
    policy_for,
    policy_of_sides,
    refuse_another_plan,
)
from ffnbench.gate.decision import (
    Checked,
    Finding,
    Policy,
    Status,
    baseline_times,
    exact_findings,
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
from ffnbench.plan import Arm
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
    """Compare a baseline with a saved run, or with a new run of its own plan. `updates`
    says that the run will replace the baseline.
    """
    before = load_shown(request.baseline)
    if updates and request.exact_only and has_latencies(before):
        raise FfnbenchError(
            f"--exact-only --update would remove the latencies of {request.baseline!r}",
            "leave --exact-only out, and the latencies are measured again",
        )
    if request.current is None:
        refuse_untrusted(before.plan, request.baseline, request.trust)
    policy = policy_for(before, request)
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


def ab(
    request: SidesRequest,
    world: World,
    following: Following = UNFOLLOWED,
    *,
    notes: Sequence[str] = (),
) -> Checked:
    """Measure base and head in the same minutes. Raises FfnbenchError for a side that
    can't be run; nothing of the sides stays on the disk.

    `notes` say what a reader should know of how this was asked.
    """
    variant = variant_of_sides(request)
    policy = policy_of_sides(request, variant.label)
    if request.base_python is None:
        refuse_device(request.device, world)
    with (
        checked_out_sides(sides_asked(request, variant)) as (
            (base, base_text),
            (head, head_text),
        ),
        tempfile.TemporaryDirectory(prefix="ffnbench-") as folder,
    ):
        prepared, output, shared = _prepare_sides(
            request, variant, (base, head), folder, world, notes
        )
        weights = folder if shared else ""
        measured, latencies = _measured_sides(
            request, prepared, output, policy, world, following, weights
        )
    before, now = (
        _one_side(measured, side, variant.label) for side in (BASE, variant.label)
    )
    exact = exact_findings(before, now, policy)
    return Checked(
        findings=(
            *without_gain(latencies, output),
            output,
            *without_gain(exact, output),
        ),
        before=before,
        now=measured,
        sides=(base_text, head_text),
        command=command_line(request),
    )


def _measured_again(
    before: ShownReport,
    policy: Policy,
    request: CheckRequest,
    world: World,
    following: Following,
) -> tuple[ShownReport, Sequence[Finding]]:
    """Measure the baseline's plan again: its exact metrics, and its latency if the
    baseline has that and --exact-only is not given. Gives the run and the findings on
    latency.
    """
    plan = before.plan
    refuse_at_once(plan, world)
    with world.prober(plan.protocol.timeout_s) as prober:
        prepared = with_costs(plan, prober, lenient=True)
    if request.exact_only or not has_latencies(before):
        return _without_latency(before, prepared, world, following), ()
    here = environment_here(plan.cases[0].workload.device, world)
    baseline = baseline_times(before)
    if machine_kind(here) != machine_kind(before.environment):
        # the findings say that it is another machine, so latency is not measured
        now = _without_latency(before, prepared, world, following)
        now = replace(now, environment=here)
        return now, latency_findings(baseline, now, policy)
    tell_duration(prepared.plan, world, following.progress, request.budget)
    return _until_decided(
        prepared,
        UntilDecided(policy, baseline),
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
    """Measure the latency of a plan's rows until each is decided, for `budget_s`
    seconds at most. Gives the run and the findings on latency.

    `weights` is the folder of the weights that both sides of an A/B use, if they can.
    """
    until_decided = replace(
        prepared, plan=plan_of_check(prepared.plan, stop.policy, budget_s)
    )
    now = measure_run(until_decided, world, following, stop, weights)
    return now, stop.conclusion(now)


def _saved_run(
    path: str, before: ShownReport, policy: Policy, request: CheckRequest
) -> tuple[ShownReport, Sequence[Finding]]:
    """The run of the file `path`, and the findings on its latency; nothing is
    measured.
    """
    now = load_shown(path)
    # the run was interrupted when it was measured; this command was not
    if now.interrupted:
        now = replace(now, interrupted=False, stopped=f"{path!r} was interrupted")
    refuse_another_plan(request, before.plan, now.plan)
    if not has_latencies(before) or request.exact_only:
        return now, ()
    return now, latency_findings(baseline_times(before), now, policy)


def _without_latency(
    before: ShownReport, prepared: Prepared, world: World, following: Following
) -> ShownReport:
    """The exact metrics as they are now. Bytes are measured only if the baseline has
    some that no closed form predicts.
    """
    now = prepared.cost_report()
    if not has_unpredicted(before, now):
        return now
    # the budget of the baseline was for its latencies
    protocol = replace(prepared.plan.protocol, budget_s=None)
    of_memory = replace(
        prepared, plan=replace(prepared.plan, metrics=("memory",), protocol=protocol)
    )
    return measure_run(of_memory, world, following)


def environment_here(device: str, world: World) -> Environment:
    """The environment in which a plan for this device would be measured; without facts
    of the device if this machine has none of its kind.
    """
    worker = world.launch()
    try:
        greeting = worker.greeting()
        used = auto_device(greeting) if device == "auto" else device
        is_there = used.partition(":")[0] == auto_device(greeting)
        return environment_of_run(
            greeting, device_facts(worker, used) if is_there else None
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
    """Ask both sides, where they run, what they are, what they cost, and whether they
    compute the same.

    Gives the plan with its costs, the finding on the outputs, and whether head can use
    the weights of base, which stay in `folder`.
    """
    with world.prober(request.timeout) as prober:
        refuse_arms_without_torch(prober, arms)
        # head before base: a variant that base lacks is new, if head has it
        of_head = prober_within(prober, arms[1], variant)
        of_base = _base_within(prober, arms[0], variant, request)
        plan = plan_sides(with_threads(request), variant, arms, (of_base, of_head))
        plan = with_command(plan, request)
        prepared = with_costs(with_notes(plan, notes), prober)
        base, head = plan.cases
        of_base.save_output(base, request.seed, folder)
        agreement = of_head.compare_output(head, request.seed, folder)
    output = output_finding(variant.label, agreement, allowed=request.allow_mismatch)
    return prepared, output, not agreement.own_weights


def _base_within(
    prober: Prober, arm: Arm, variant: Variant, request: SidesRequest
) -> Prober:
    """The prober of base. Raises Unfinished if base lacks the variant."""
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
) -> tuple[ShownReport, Sequence[Finding]]:
    """Measure both sides. Gives the run and the findings on latency.

    Nothing is measured if head computes something else than base. With --exact-only the
    run has no latency.
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
        UntilDecided(policy),
        request.budget,
        world,
        following,
        weights,
    )


def _one_side(run: Report, side: str, label: str) -> Report:
    """The part of a run that is about one side, under the label of the variant, so that
    the two sides can be compared as two runs are.
    """
    case = replace(run.plan.case(side), label=label)
    return replace(
        run,
        plan=replace(run.plan, cases=(case,), reference=label),
        costs=(CaseCost(case=label, cost=run.cost(side)),),
        measured=_relabelled(run.measured, side, label),
        failures=_relabelled(run.failures, side, label),
        inputs=_relabelled(run.inputs, side, label),
    )


def _relabelled(entries: Iterable[Any], side: str, label: str) -> tuple[Any, ...]:
    """The entries about one side, as entries about the case `label`."""
    return tuple(replace(entry, case=label) for entry in entries if entry.case == side)

"""The two questions of whether code has got slower: `check` measures against a
baseline, `ab` measures two sides against each other.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ffnbench.api.call import Call
from ffnbench.api.measuring import measure_run, tell_duration
from ffnbench.api.preparing import (
    Prepared,
    refuse_arms_without_torch,
    refuse_at_once,
    refuse_device,
    with_costs,
)
from ffnbench.api.saved_runs import load_shown
from ffnbench.common.errors import FfnbenchError, Unfinished
from ffnbench.common.targets import INSTALL_HINT, PATH_HINT
from ffnbench.device.environment import auto_device, environment_of_run
from ffnbench.gate.baseline import (
    has_latencies,
    has_unpredicted,
    policy_for,
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
    parse_tolerances,
    without_gain,
)
from ffnbench.gate.interim import UntilDecided, plan_of_check
from ffnbench.gate.sides import (
    BASE,
    SideFlags,
    checked_out_sides,
    plan_sides,
    prober_within,
    refuse_lists,
    refuse_sides,
)
from ffnbench.gate.trust import refuse_untrusted
from ffnbench.plan.cases import Lists
from ffnbench.plan.plan import Arm, Protocol
from ffnbench.plan.protocol import check_budget
from ffnbench.plan.variants import Typed
from ffnbench.record.progress import Progress
from ffnbench.record.result import CaseCost, Environment, Report
from ffnbench.report.shown_report import ShownReport
from ffnbench.run.prober import Prober
from ffnbench.run.resources import device_facts
from ffnbench.run.world import World


def check(
    baseline: str,
    current: str | None,
    call: Call,
    *,
    tolerance: Sequence[str],
    exact_only: bool,
    budget: float,
    trust: Sequence[str],
) -> Checked:
    """Compare a baseline with a saved run, or with a new run of its own plan."""
    before = load_shown(baseline)
    if call.updates and exact_only and has_latencies(before):
        raise FfnbenchError(
            f"--exact-only --update would remove the latencies of {baseline!r}",
            "leave --exact-only out, and the latencies are measured again",
        )
    if current is None:
        refuse_untrusted(before.plan, baseline, trust)
    policy = policy_for(before, baseline, tolerance, exact_only=exact_only)
    check_budget(budget)
    if current is None:
        now, findings = _measured_again(before, policy, call, budget, exact_only)
    else:
        now = _saved_run(current)
        refuse_another_plan(baseline, current, before.plan, now.plan)
        findings = ()
        if has_latencies(before) and not exact_only:
            findings = latency_findings(baseline_times(before), now, policy)
    return Checked(
        findings=(*exact_findings(before, now, policy), *findings),
        before=before,
        now=now,
        against=baseline,
        saved=current or "",
        command=call.command,
    )


def ab(
    variant: Typed,
    sides: tuple[SideFlags, SideFlags],
    flags: Lists,
    call: Call,
    *,
    tolerance: Sequence[str],
    exact_only: bool,
    budget: float,
    allow_mismatch: bool,
) -> Checked:
    """Measure base and head in the same minutes. Raises FfnbenchError for a side that
    can't be run; nothing of the sides stays on the disk.
    """
    label = variant.row
    refuse_sides(*sides, variant)
    refuse_lists(flags)
    check_budget(budget)
    protocol = Protocol()
    policy = Policy(tolerances=parse_tolerances(tolerance, {label: label}))
    if sides[0].python is None:
        refuse_device((flags.get("device") or ("auto",))[0], call.world)
    with (
        checked_out_sides(*sides) as ((base, base_text), (head, head_text)),
        tempfile.TemporaryDirectory(prefix="ffnbench-") as folder,
    ):
        probe = call.probe(protocol.timeout_s)
        refuse_arms_without_torch(probe, (base, head))
        # head before base: a variant that base lacks is new, if head has it
        of_head = prober_within(probe, head, variant)
        of_base = _base_within(probe, base, variant, sides[0].rev or BASE)
        plan = plan_sides(
            variant,
            flags,
            (base, head),
            (of_base, of_head),
            protocol,
            ("memory",) if exact_only else ("latency", "memory"),
        )
        prepared = with_costs(call.told(plan), probe)
        of_base.save_output(plan.cases[0], protocol.seed, folder)
        agreement = of_head.compare_output(plan.cases[1], protocol.seed, folder)
        output = output_finding(label, agreement, allowed=allow_mismatch)
        # head can use the weights of base
        weights = "" if agreement.own_weights else folder
        measured, latencies = _measured_sides(
            prepared, output, policy, call, None if exact_only else budget, weights
        )
    before, now = (_one_side(measured, side, label) for side in (BASE, label))
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
        command=call.command,
    )


def _measured_again(
    before: ShownReport, policy: Policy, call: Call, budget: float, exact_only: bool
) -> tuple[ShownReport, Sequence[Finding]]:
    """Measure the baseline's plan again: its exact metrics, and its latency if the
    baseline has that and nothing else is asked for. Gives the run and the findings on
    latency.
    """
    plan, world, progress = before.plan, call.world, call.progress
    refuse_at_once(plan, world)
    for note in call.notes:
        progress.tell(f"note: {note}")
    probe = call.probe(plan.protocol.timeout_s)
    prepared = with_costs(plan, probe, lenient=True)
    if exact_only or not has_latencies(before):
        return _without_latency(before, prepared, world, progress), ()
    here = environment_here(plan.cases[0].workload.device, world)
    baseline = baseline_times(before)
    if machine_kind(here) != machine_kind(before.environment):
        # the findings say that it is another machine, so latency is not measured
        now = _without_latency(before, prepared, world, progress)
        now = replace(now, environment=here)
        return now, latency_findings(baseline, now, policy)
    tell_duration(plan, world, progress, budget)
    stop = UntilDecided(policy, baseline)
    return _until_decided(prepared, stop, budget, world, progress)


def _until_decided(
    prepared: Prepared,
    stop: UntilDecided,
    budget_s: float,
    world: World,
    progress: Progress,
    weights: str = "",
) -> tuple[ShownReport, Sequence[Finding]]:
    """Measure the latency of a plan's rows until each is decided, for `budget_s`
    seconds at most. Gives the run and the findings on latency.

    `weights` is the folder of the weights that both sides of an A/B use, if they can.
    """
    until_decided = replace(
        prepared, plan=plan_of_check(prepared.plan, stop.policy, budget_s)
    )
    now = measure_run(until_decided, world, progress, stop=stop, weights_folder=weights)
    return now, stop.conclusion(now)


def _saved_run(path: str) -> ShownReport:
    """The run of the file `path`, to be checked."""
    now = load_shown(path)
    # the run was interrupted when it was measured; this command was not
    if now.interrupted:
        return replace(now, interrupted=False, stopped=f"{path!r} was interrupted")
    return now


def _without_latency(
    before: ShownReport, prepared: Prepared, world: World, progress: Progress
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
    return measure_run(of_memory, world, progress)


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


def _base_within(prober: Prober, arm: Arm, variant: Typed, base: str) -> Prober:
    """The prober of base. Raises Unfinished if base lacks the variant."""
    try:
        return prober_within(prober, arm, variant)
    except FfnbenchError as problem:
        if problem.hint not in (INSTALL_HINT, PATH_HINT):
            raise
        raise Unfinished(
            f"{base} has no {variant.name.rpartition(':')[0]}: it is new, and there is nothing to compare with",
            f"`ffnbench cost {shlex.quote(variant.text)}` counts it",
        ) from problem


def _measured_sides(
    prepared: Prepared,
    output: Finding,
    policy: Policy,
    call: Call,
    budget: float | None,
    weights: str,
) -> tuple[ShownReport, Sequence[Finding]]:
    """Measure both sides. Gives the run and the findings on latency.

    Nothing is measured if head computes something else than base. Without a budget the
    run has no latency.
    """
    world, progress = call.world, call.progress
    if output.status is Status.REGRESSED:
        return prepared.cost_report(), ()
    tell_duration(prepared.plan, world, progress, budget)
    if budget is None:
        return measure_run(prepared, world, progress, weights_folder=weights), ()
    stop = UntilDecided(policy)
    return _until_decided(prepared, stop, budget, world, progress, weights)


def _one_side(run: Report, side: str, label: str) -> Report:
    """The part of a run that is about one side, under the label of the variant, so that
    the two sides can be compared as two runs are.
    """
    case = replace(run.plan.case(side), name=label)
    return replace(
        run,
        plan=replace(run.plan, cases=(case,)),
        costs=(CaseCost(case=label, cost=run.cost(side)),),
        measured=_relabelled(run.measured, side, label),
        failures=_relabelled(run.failures, side, label),
        inputs=_relabelled(run.inputs, side, label),
    )


def _relabelled(entries: Iterable[Any], side: str, label: str) -> tuple[Any, ...]:
    """The entries about one side, as entries about the case `label`."""
    return tuple(replace(entry, case=label) for entry in entries if entry.case == side)

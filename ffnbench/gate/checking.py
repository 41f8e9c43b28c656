"""The two questions of whether code has got slower: `check` measures against a
baseline, `ab` measures two sides against each other. Each is a plan, which is measured
until every row is decided.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ffnbench.api.call import Call
from ffnbench.api.preparing import (
    Prepared,
    refuse_arms_without_torch,
    refuse_device,
    with_costs,
)
from ffnbench.api.saved_runs import load_shown
from ffnbench.common.errors import FfnbenchError, Unfinished
from ffnbench.common.targets import INSTALL_HINT, PATH_HINT
from ffnbench.gate.baseline import (
    has_latencies,
    has_unpredicted,
    refuse_no_baseline,
)
from ffnbench.gate.decision import (
    Status,
    baseline_times,
    exact_findings,
    findings_on_case,
    latency_findings,
    output_finding,
    read_policy,
)
from ffnbench.gate.interim import UntilDecided, plan_of_check
from ffnbench.gate.shown_check import ShownCheck, check_json
from ffnbench.gate.sides import (
    BASE,
    SideFlags,
    arms_of_sides,
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
from ffnbench.record.result import Report
from ffnbench.run.prober import Prober


def check(
    baseline: str,
    current: str | None,
    call: Call,
    *,
    tolerance: Sequence[str],
    exact_only: bool,
    budget: float,
    trust: Sequence[str],
) -> ShownCheck:
    """Compare a baseline with a saved run, or with a new run of its own plan."""
    before = load_shown(baseline)
    if call.updates and exact_only and has_latencies(before):
        raise FfnbenchError(
            f"--exact-only --update would remove the latencies of {baseline!r}",
            "leave --exact-only out, and the latencies are measured again",
        )
    if current is None:
        refuse_untrusted(before.plan, baseline, trust)
    else:
        call.refuse_unread("on saved runs", "budget", "trust")
    if exact_only:
        call.refuse_unread("with --exact-only", "budget")
    refuse_no_baseline(before, baseline, exact_only=exact_only)
    rows = {case.label: case.row for case in before.plan.shown}
    policy = read_policy(tolerance, rows)
    check_budget(budget)
    stop = None
    if has_latencies(before) and not exact_only:
        stop = UntilDecided(policy, baseline_times(before))

    def answer(now: Report) -> ShownCheck:
        findings = exact_findings(before, now, policy)
        if stop is not None and current is not None:
            findings += latency_findings(now, policy, stop.baseline)
        elif stop is not None:
            findings += stop.conclusion(now)
        return ShownCheck(
            findings=tuple(findings),
            before=before,
            now=now,
            against=baseline,
            saved=current or "",
            command=call.command,
            updates=call.updates,
        )

    if current is not None:
        now = load_shown(current)
        if now.interrupted:  # when it was measured; this command was not
            stopped = f"{current!r} was interrupted"
            now = replace(now, interrupted=False, stopped=stopped)
        return answer(now)
    probe = call.probe(before.plan.protocol.timeout_s)
    prepared = with_costs(before.plan, probe, lenient=True)
    if stop is None:
        counted = prepared.cost_report()
        if not has_unpredicted(before, counted):
            return answer(counted)
        # the budget and the runs of the baseline were for its latencies
        protocol = replace(before.plan.protocol, budget_s=None, runs=1)
        plan = replace(before.plan, metrics=("memory",), protocol=protocol)
        prepared = replace(prepared, plan=plan)
    return _measured(prepared, stop, budget, answer, call)


def _measured(
    prepared: Prepared,
    stop: UntilDecided | None,
    budget_s: float,
    answer: Callable[[Report], ShownCheck],
    call: Call,
) -> ShownCheck:
    """Measure a plan, its latencies until `stop` has decided about each of them. What
    is answered so far stands in the file of -o meanwhile.
    """
    if stop is not None:
        plan = plan_of_check(prepared.plan, stop.policy, budget_s)
        prepared = replace(prepared, plan=plan)
    now = call.measure_prepared(
        prepared,
        stop=stop,
        text_of=lambda run: check_json(answer(run)),
    )
    return answer(now)


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
) -> ShownCheck:
    """Measure base and head in the same minutes. Raises FfnbenchError for a side that
    can't be run; nothing of the sides stays on the disk.
    """
    label, protocol = variant.row, Protocol()
    if exact_only:
        call.refuse_unread("with --exact-only", "budget")
    refuse_sides(*sides, variant)
    refuse_lists(flags)
    check_budget(budget)
    policy = read_policy(tolerance, {label: label})
    if sides[0].python is None:
        refuse_device((flags.get("device") or ("auto",))[0], call.world)
    with tempfile.TemporaryDirectory(prefix="ffnbench-ab-") as folder:
        (base, base_text), (head, head_text) = arms_of_sides(*sides, Path(folder))
        probe = call.probe(protocol.timeout_s)
        refuse_arms_without_torch(probe, (base, head))
        # head before base: a variant that base lacks is new, if head has it
        prober_of_head = prober_within(probe, head, variant)
        prober_of_base = _base_within(probe, base, variant, sides[0].rev or BASE)
        metrics = ("memory",) if exact_only else ("latency", "memory")
        probes = prober_of_base, prober_of_head
        plan = plan_sides(variant, flags, (base, head), probes, protocol, metrics)
        prepared = with_costs(call.told(plan), probe)
        prober_of_base.save_output(plan.cases[0], protocol.seed, folder)
        agreement = prober_of_head.compare_output(plan.cases[1], protocol.seed, folder)
        output = output_finding(label, agreement, allowed=allow_mismatch)
        differs = output.status is Status.REGRESSED
        stop = None if exact_only or differs else UntilDecided(policy)

        def answer(now: Report) -> ShownCheck:
            of_base, of_head = now.plan.case(BASE), now.plan.case(label)
            latencies = stop.conclusion(now) if stop else []
            exact = findings_on_case(now, of_base, now, of_head, policy)
            return ShownCheck(
                findings=(*latencies, output, *exact),
                before=now,
                now=now,
                sides=(base_text, head_text),
                command=call.command,
            )

        if differs:
            return answer(prepared.cost_report())
        return _measured(prepared, stop, budget, answer, call)


def _base_within(prober: Prober, arm: Arm, variant: Typed, base: str) -> Prober:
    """The prober of base. Raises Unfinished if base lacks the variant."""
    try:
        return prober_within(prober, arm, variant)
    except FfnbenchError as problem:
        has_file = problem.hint not in (INSTALL_HINT, PATH_HINT)
        lacks_class = problem.message.endswith(
            f"no {variant.name.rpartition(':')[2]!r}"
        )
        if has_file and not lacks_class:
            raise
        raise Unfinished(
            f"{base} has no {variant.name}: it is new, and there is nothing to compare with",
            f"`ffnbench cost {shlex.quote(variant.text)}` counts it",
        ) from problem

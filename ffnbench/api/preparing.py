"""A plan with the cost of each case: every mistake that can be found before measuring
is found here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ffnbench import __version__
from ffnbench.common.errors import FfnbenchError, Unsupported
from ffnbench.ffn.cost import RAISED, cost_unknown
from ffnbench.plan.plan import (
    CONTROL,
    THIS_INTERPRETER,
    Arm,
    Case,
    Note,
    Plan,
    Probe,
    cost_of,
)
from ffnbench.record.result import CaseCost, Failure, FailureKind
from ffnbench.report.shown_report import ShownReport

if TYPE_CHECKING:
    from ffnbench.record.hardware import Hardware
    from ffnbench.run.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A plan with the cost of each case: all that is known before it is measured."""

    plan: Plan
    costs: tuple[CaseCost, ...]

    def cost_report(self, machines: Sequence[Hardware] = ()) -> ShownReport:
        """A report of the costs alone, with the bounds on these machines."""
        failed = []
        for entry in self.costs:
            why = entry.cost.failed
            if entry.cost.counted_how.startswith(RAISED):
                why = entry.cost.counted_how
            if why:
                failed.append(
                    Failure(case=entry.case, kind=FailureKind.CRASH, message=why)
                )
        report = replace(
            new_report(self.plan.with_device("cpu"), self.costs), failures=tuple(failed)
        )
        if not machines:
            return report
        from ffnbench.record.hardware import bounds_of

        bounds = bounds_of(self.plan.shown, self.costs, machines)
        return replace(report, bounds=bounds)

    def costs_of(self, plan: Plan) -> tuple[CaseCost, ...]:
        """The costs of the cases of this plan, or of a part of it.

        They are computed again, since its device may be known by now: dropout's mask is
        smaller on CUDA. Those that were counted by running code stay. A case without
        costs is the control, and has those of its reference.
        """
        by_label = {entry.case: entry for entry in self.costs}
        costs = []
        for case in plan.cases:
            entry = by_label.get(case.label) or by_label[plan.reference]
            if entry.cost.counted:
                costs.append(replace(entry, case=case.label))
            else:
                costs.append(_cost_of_case(case, Probe()))
        return tuple(costs)


def with_costs(plan: Plan, prober: Probe, *, lenient: bool = False) -> Prepared:
    """Count the costs of a plan.

    Raises FfnbenchError for an arm without torch, and where a case can't be counted; if
    `lenient`, such a case is a row that failed, and only a plan without any other case
    raises.
    """
    refuse_arms_without_torch(prober, plan.arms)
    costs, problems = [], []
    for case in plan.cases:
        try:
            costs.append(_cost_of_case(case, prober))
        except Unsupported as problem:
            problems.append(problem)
            if not lenient or len(problems) == len(plan.cases):
                raise
            costs.append(CaseCost(case=case.label, cost=cost_unknown(problem.message)))
    notes = tuple(
        Note(label=counted.case, text=counted.cost.role_note)
        for counted in costs
        if counted.cost.role_note
    )
    return Prepared(plan=replace(plan, notes=(*plan.notes, *notes)), costs=tuple(costs))


def refuse_arms_without_torch(prober: Probe, arms: Iterable[Arm]) -> None:
    """Raise FfnbenchError for an arm of its own interpreter, folder or environment that
    has no torch. All are started before the first one is waited for.
    """
    probers = [
        prober.within(arm)
        for arm in arms
        if (arm.python or arm.source or arm.env) and arm.name != CONTROL
    ]
    for of_arm in probers:
        of_arm.start()
    for of_arm in probers:
        of_arm.refuse_without_torch()


def _cost_of_case(case: Case, probe: Probe) -> CaseCost:
    return CaseCost(case=case.label, cost=cost_of(case, probe))


def refuse_at_once(plan: Plan, world: World) -> None:
    """Raise FfnbenchError where a case needs a GPU that this machine has not, as far as
    that is known without torch.
    """
    for case in plan.cases:
        if case.arm == THIS_INTERPRETER:
            refuse_device(case.workload.device, world)


def refuse_device(device: str, world: World) -> None:
    """Raise FfnbenchError for a GPU where it is known that there is none."""
    if device in ("auto", "cpu"):
        return
    why = world.no_gpu()
    if why:
        hint = "use --device cpu, or a CUDA build of torch on a machine with a GPU"
        raise FfnbenchError(f"device {device!r} was asked for, but {why}", hint)


def new_report(plan: Plan, costs: tuple[CaseCost, ...]) -> ShownReport:
    """A report of these costs, with nothing measured yet."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return ShownReport(plan=plan, costs=costs, created=now, version=__version__)

"""A sweep: each of its cells is a run of its own, and all of them are one report. Pure.

A cell is a group of the plan: one point of the axes, with all of its variants. It is visited once; what time is left
then goes to the cells that are not decided. `verdict.py` pays for that second look.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from itertools import zip_longest
from typing import Any, TypeVar

from ffnbench.common.errors import FfnbenchError
from ffnbench.plan import CONTROL, Kind, Plan
from ffnbench.result import FailureKind, Report, Verdict
from ffnbench.stats.rounds import table_of

LOOKS = 2  # after which a cell may be decided: the cells that the first visit leaves undecided have another
FIRST_VISITS = 0.6  # of the budget; what they leave goes to the cells that are not decided
R = TypeVar("R", bound=Report)


def cells_of(plan: Plan) -> tuple[Plan, ...]:
    """A plan of each group, the control in that of its reference; one that has a single group stands for itself."""
    if not plan.is_sweep:
        return (plan,)
    control = {plan.reference: tuple(case for case in plan.cases if case.label == CONTROL)}
    return tuple(
        replace(plan, cases=(*group.cases, *control.get(group.reference, ())), reference=group.reference, notes=())
        for group in plan.groups
    )


def whole(found: R, cells: Sequence[Plan]) -> R:
    """A part of these cells without those of which something that has not failed was not measured by enough workers, or
    has no sample of the metric that it ends with, and without those that were lost.
    """
    there = {case.label for case in found.plan.cases}
    sampled = {one.case for one in found.samples}
    alive, rounds = there - {failure.case for failure in found.failures}, table_of(found).rounds
    lost = {failure.case for failure in found.failures if failure.kind is FailureKind.LOST}

    def is_whole(cell: Plan) -> bool:
        here = {case.label for case in cell.cases} & alive
        if last := cell.cases[0].ends_with:
            return cell.reference in there - lost and here <= {s.case for s in found.samples if s.metric == last}
        timed = "latency" not in cell.metrics or all(
            len(rounds.get(label, ())) >= cell.protocol.workers for label in here
        )
        return cell.reference in there - lost and here <= sampled and timed

    kept = {case.label for cell in cells if is_whole(cell) for case in cell.cases}
    plan = replace(found.plan, cases=tuple(case for case in found.plan.cases if case.label in kept))
    return replace(restricted(found, plan), interrupted=False, stopped="")


def restricted(found: R, plan: Plan) -> R:
    """A report of this part of its plan, and what was found of that."""
    others = {case.label for case in found.plan.cases} - {case.label for case in plan.cases}
    lists = {one.name: value for one in fields(found) if isinstance(value := getattr(found, one.name), tuple)}
    kept: dict[str, Any] = {
        name: tuple(one for one in of if getattr(one, "case", getattr(one, "label", "")) not in others)
        for name, of in lists.items()
    }
    return replace(found, plan=plan, **kept)


def undecided(found: Report, cells: Sequence[Plan]) -> list[Plan]:
    """The cells with a row that can't be told, the widest first."""
    wide: list[tuple[float, int]] = []
    for number, cell in enumerate(cells):
        rows = [one for case in cell.cases if (one := found.comparison(case.label))]
        unclear = [one for one in rows if one.verdict in (Verdict.UNCLEAR, Verdict.BUSY)]
        if unclear and cell.protocol.precision is not None:
            wide.append((max(one.resolution or 1.0 for one in unclear), number))
    return [cells[number] for _, number in sorted(wide, reverse=True)]


def joined(parts: Sequence[R], plan: Plan | None = None) -> R:
    """One report of the runs of a plan's cells, of one kind of machine. Two runs of one cell are one with the workers
    of both.

    Workers and starters are numbered anew, for no two runs have one in common. Without a `plan` its cases stand in the
    order in which they come.
    """
    first = parts[0]
    if len(parts) == 1 and plan is None:
        return first
    if plan is None:
        known = {case.label: case for part in parts for case in part.plan.cases}
        plan = replace(first.plan, cases=tuple(known.values()))
    apart = list(_renumbered(parts))
    cases = {case.label: case for part in apart for case in part.plan.cases}
    costs = {cost.case: cost for part in apart for cost in part.costs}
    notes = dict.fromkeys((*plan.notes, *(note for part in apart for note in part.plan.notes)))
    return replace(
        first,
        plan=replace(plan, cases=tuple(cases.get(case.label, case) for case in plan.cases), notes=tuple(notes)),
        costs=tuple(costs[case.label] for case in plan.cases if case.label in costs),
        samples=_all(apart, "samples"),
        failures=tuple({one.case: one for one in _all(apart, "failures")}.values()),
        warnings=tuple(dict.fromkeys(_all(apart, "warnings"))),
        roofs=tuple({roof.name: roof for roof in _all(apart, "roofs")}.values()),
        inputs=tuple({one.case: one for one in _all(apart, "inputs")}.values()),
        devices=_all(apart, "devices"),
        environment=next((part.environment for part in parts if part.environment), None),
        timer=next((part.timer for part in parts if part.timer), None),
        around=max(filter(None, (part.around for part in parts)), key=lambda one: one.others_cpus or 0.0, default=None),
        interrupted=any(part.interrupted for part in parts),
        stopped=next((part.stopped for part in parts if part.stopped), ""),
        limit=parts[-1].limit if len({part.limit for part in parts}) == 1 else "budget",
        wall_s=sum(part.wall_s or 0.0 for part in parts),
        created=min(part.created for part in parts),
        measured=(), comparisons=(), shares=(),
    )  # fmt: skip


def _all(parts: Iterable[Report], name: str) -> tuple[Any, ...]:
    return tuple(one for part in parts for one in getattr(part, name))


def _renumbered(parts: Iterable[R]) -> Iterable[R]:
    workers = starters = 0
    for part in parts:
        samples = [
            replace(one, worker=one.worker + workers, starter=None if one.starter is None else one.starter + starters)
            for one in part.samples
        ]
        devices = tuple(replace(one, worker=one.worker + workers) for one in part.devices)
        yield replace(part, samples=tuple(samples), devices=devices)
        workers = max((one.worker + 1 for one in samples), default=workers)
        starters = max((one.starter + 1 for one in samples if one.starter is not None), default=starters)


def of_shards(parts: Sequence[R]) -> R:
    """One report of all shards of a sweep, its cells in the order of the whole. Raises FfnbenchError where they are not
    the shards of one sweep.
    """
    by_shard = {part.plan.shard: part for part in parts}
    of = int(parts[0].plan.shard.partition("/")[2])
    if len({part.plan.command for part in parts}) > 1:
        raise FfnbenchError("these files are shards of different sweeps", "join those of one command")
    if missing := [text for number in range(1, of + 1) if (text := f"{number}/{of}") not in by_shard]:
        raise FfnbenchError(f"the shard {missing[0]} is missing", f"measure it: --shard {missing[0]}")
    if len(parts) > of:
        raise FfnbenchError(f"{len(parts)} files, and the sweep has {of} shards", "name each of them once")
    if len({part.environment.fingerprint for part in parts if part.environment}) > 1:
        told = "these shards were measured on several kinds of machine, and rows are compared on one"
        raise FfnbenchError(told, "`ffnbench report FILE` shows each of them by itself")
    ordered = [by_shard[f"{number}/{of}"] for number in range(1, of + 1)]
    cells = [cell for turn in zip_longest(*(cells_of(part.plan) for part in ordered)) for cell in turn if cell]
    cases = tuple(case for cell in cells for case in cell.cases)
    first = ordered[0].plan
    protocol = replace(first.protocol, looks=max(part.plan.protocol.looks for part in ordered))
    whole = replace(first, cases=cases, reference=cells[0].reference, shard="", protocol=protocol)
    return joined(ordered, whole)


def shard(plan: Plan, number: int, of: int) -> Plan:
    """Every so many-th cell of a plan, beginning with the number-th."""
    kept = cells_of(plan)[number - 1 :: of]
    labels = {case.label for cell in kept for case in cell.cases}
    return replace(
        plan,
        shard=f"{number}/{of}",
        cases=tuple(case for case in plan.cases if case.label in labels),
        reference=kept[0].reference,
        notes=tuple(note for note in plan.notes if not note.label or note.label in labels),
    )


def is_part(found: Report, plan: Plan) -> bool:
    """Whether a saved report is of cells of this plan alone, measured in the same way."""
    by_label = {case.label: case for case in plan.cases}
    there = {case.label for case in found.plan.cases}
    cells = ({case.label for case in cell.cases} for cell in cells_of(plan))
    if plan.kind != Kind.BLOCK and any(0 < len(cell & there) < len(cell) for cell in cells):
        return False  # a block's textbook forms may be left out
    for known in found.plan.cases:
        case = by_label.get(known.label)
        if case is None or replace(case, workload=case.workload.on(known.workload.device)) != known:
            return False
    ours = plan.protocol
    return (
        not found.repeats
        and replace(found.plan.protocol, budget_s=ours.budget_s, bound=ours.bound, looks=ours.looks) == ours
    )

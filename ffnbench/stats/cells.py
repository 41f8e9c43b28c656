"""A sweep: each of its cells is a run of its own, and all of them are one report. Pure.

A cell is a group of the plan: one point of the axes, with all of its variants. It is
visited once; what time is left then goes to the cells that are not decided.
`verdict.py` pays for that second interim analysis by Bonferroni's correction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from ffnbench.plan import CONTROL, Kind, Plan
from ffnbench.result import FailureKind, Report, Verdict
from ffnbench.stats.rounds import table_of

# after which a cell may be decided: the cells that the first visit leaves undecided
# have another
ANALYSES = 2
# of the budget; what they leave goes to the cells that are not decided
FIRST_VISITS = 0.6
R = TypeVar("R", bound=Report)


def cells_of_plan(plan: Plan) -> tuple[Plan, ...]:
    """A plan of each group, the control in that of its reference; one that has a single
    group stands for itself.
    """
    if not plan.is_sweep:
        return (plan,)
    cells = []
    for group in plan.groups:
        cases = list(group.cases)
        if group.reference == plan.reference:
            cases += [case for case in plan.cases if case.label == CONTROL]
        cells.append(
            replace(plan, cases=tuple(cases), reference=group.reference, notes=())
        )
    return tuple(cells)


def complete_cells(report: R, cells: Sequence[Plan]) -> R:
    """A report without the cells that are not complete.

    Such a cell was lost, or something in it that has not failed was not measured by
    enough workers, or has no sample of the metric that its cases end with.
    """
    planned = {case.label for case in report.plan.cases}
    failed = {failure.case for failure in report.failures}
    lost = {
        failure.case for failure in report.failures if failure.kind is FailureKind.LOST
    }
    sampled = {sample.case for sample in report.samples}
    rounds = table_of(report).rounds

    def is_complete(cell: Plan) -> bool:
        if cell.reference not in planned - lost:
            return False
        alive = {case.label for case in cell.cases} & (planned - failed)
        last_metric = cell.cases[0].last_metric
        if last_metric:
            return alive <= {
                sample.case for sample in report.samples if sample.metric == last_metric
            }
        if "latency" in cell.metrics:
            fewest_workers = min(
                (len(rounds.get(label, ())) for label in alive),
                default=cell.protocol.workers,
            )
            if fewest_workers < cell.protocol.workers:
                return False
        return alive <= sampled

    complete = {
        case.label for cell in cells if is_complete(cell) for case in cell.cases
    }
    plan = replace(
        report.plan,
        cases=tuple(case for case in report.plan.cases if case.label in complete),
    )
    return replace(restricted(report, plan), interrupted=False, stopped="")


def restricted(report: R, plan: Plan) -> R:
    """A report of this part of its plan: of all that is of a case, what is of these."""
    others = {case.label for case in report.plan.cases} - {
        case.label for case in plan.cases
    }
    of_part: dict[str, Any] = {}
    for field in fields(report):
        entries = getattr(report, field.name)
        if isinstance(entries, tuple):
            of_part[field.name] = tuple(
                entry for entry in entries if _label_of(entry) not in others
            )
    return replace(report, plan=plan, **of_part)


def _label_of(entry: Any) -> str:
    """The label of the case that an entry of a report is about; "" for none."""
    label: str = getattr(entry, "case", "") or getattr(entry, "label", "")
    return label


def undecided(report: Report, cells: Sequence[Plan]) -> list[Plan]:
    """The cells with a row that can't be decided, the one that is known worst first."""
    worst: list[tuple[float, int]] = []
    for number, cell in enumerate(cells):
        resolutions = []
        for case in cell.cases:
            row = report.comparison(case.label)
            if row and row.verdict in (Verdict.UNCLEAR, Verdict.BUSY):
                resolutions.append(row.resolution or 1.0)
        if resolutions and cell.protocol.precision is not None:
            worst.append((max(resolutions), number))
    return [cells[number] for _, number in sorted(worst, reverse=True)]


def join_runs(reports: Sequence[R], plan: Plan | None = None) -> R:
    """One report of the runs of a plan's cells, of one kind of machine; of two runs of
    one cell, with all workers.

    Workers and starters are numbered anew, for no two runs have one in common. Without
    a `plan` its cases stand in the order in which they come.
    """
    if len(reports) == 1 and plan is None:
        return reports[0]
    parts = _renumbered(reports)
    first = parts[0]
    plan = _joined_plan(parts, plan)
    costs = {cost.case: cost for cost in _entries_of_all(parts, "costs")}
    surroundings = [part.around for part in parts if part.around]
    return replace(
        first,
        plan=plan,
        costs=tuple(costs[case.label] for case in plan.cases if case.label in costs),
        samples=_entries_of_all(parts, "samples"),
        failures=_last_by("case", _entries_of_all(parts, "failures")),
        warnings=tuple(dict.fromkeys(_entries_of_all(parts, "warnings"))),
        roofs=_last_by("name", _entries_of_all(parts, "roofs")),
        inputs=_last_by("case", _entries_of_all(parts, "inputs")),
        devices=_entries_of_all(parts, "devices"),
        environment=_first_known(parts, "environment"),
        timer=_first_known(parts, "timer"),
        around=max(
            surroundings, key=lambda around: around.others_cpus or 0.0, default=None
        ),
        interrupted=any(part.interrupted for part in parts),
        stopped=_first_known(parts, "stopped") or "",
        limit=parts[-1].limit if len({part.limit for part in parts}) == 1 else "budget",
        wall_s=sum(part.wall_s or 0.0 for part in parts),
        created=min(part.created for part in parts),
        measured=(),
        comparisons=(),
        shares=(),
    )


def _joined_plan(parts: Sequence[Report], plan: Plan | None) -> Plan:
    """The plan of all parts: its cases as they were measured, with the notes of all."""
    cases = {case.label: case for part in parts for case in part.plan.cases}
    if plan is None:
        plan = replace(parts[0].plan, cases=tuple(cases.values()))
    notes = dict.fromkeys(plan.notes)
    for part in parts:
        notes |= dict.fromkeys(part.plan.notes)
    return replace(
        plan,
        cases=tuple(cases.get(case.label, case) for case in plan.cases),
        notes=tuple(notes),
    )


def _entries_of_all(parts: Iterable[Report], name: str) -> tuple[Any, ...]:
    return tuple(entry for part in parts for entry in getattr(part, name))


def _last_by(key: str, entries: Iterable[Any]) -> tuple[Any, ...]:
    """Of the entries with one value of an attribute the last."""
    return tuple({getattr(entry, key): entry for entry in entries}.values())


def _first_known(parts: Iterable[Report], name: str) -> Any:
    """The first that is known, or None."""
    for part in parts:
        if getattr(part, name):
            return getattr(part, name)
    return None


def _renumbered(parts: Iterable[R]) -> list[R]:
    renumbered = []
    workers = starters = 0  # of the parts before
    for part in parts:
        samples = []
        for sample in part.samples:
            starter = sample.starter
            if starter is not None:
                starter += starters
            samples.append(
                replace(sample, worker=workers + sample.worker, starter=starter)
            )
        devices = tuple(
            replace(device, worker=device.worker + workers) for device in part.devices
        )
        renumbered.append(replace(part, samples=tuple(samples), devices=devices))
        for sample in samples:
            workers = max(workers, sample.worker + 1)
            if sample.starter is not None:
                starters = max(starters, sample.starter + 1)
    return renumbered


def is_part(report: Report, plan: Plan) -> bool:
    """Whether a saved report is of cells of this plan alone, measured in the same
    way.
    """
    saved = {case.label for case in report.plan.cases}
    for cell in cells_of_plan(plan):
        labels = {case.label for case in cell.cases}
        # a block's textbook forms may be left out
        if plan.kind != Kind.BLOCK and labels & saved and not labels <= saved:
            return False
    planned = {case.label: case for case in plan.cases}
    for case in report.plan.cases:
        here = planned.get(case.label)
        if (
            here is None
            or replace(here, workload=here.workload.on(case.workload.device)) != case
        ):
            return False
    ours = plan.protocol
    theirs = replace(
        report.plan.protocol, budget_s=ours.budget_s, bound=ours.bound, looks=ours.looks
    )
    return not report.repeats and theirs == ours

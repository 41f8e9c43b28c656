"""A sweep: each of its cells is a run of its own, and all of them are one report. Pure.

A cell is a group of the plan: one point of the axes, with all of its variants. It is
visited once; what time is left then goes to the cells that are not decided.
`rounds.py` pays for that second interim analysis by Bonferroni's correction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ffnbench.ffn.spec import StackSpec
from ffnbench.plan.metrics import LATENCY
from ffnbench.plan.plan import CONTROL, Plan
from ffnbench.record.result import FailureKind, Report, Verdict
from ffnbench.stats.rounds import rounds_of

# how often a cell may be decided: after its first visit, and after the second one that
# an undecided cell gets
ANALYSES = 2
# of the budget of a sweep, for the first visits of all cells; the rest of the time goes
# to the cells that they leave undecided
FIRST_VISITS_SHARE = 0.6
R = TypeVar("R", bound=Report)


def cells_of_plan(plan: Plan) -> tuple[Plan, ...]:
    """A plan for each group of a sweep; the control belongs to the group of the plan's
    reference. A plan of a single group is its only cell.
    """
    if not plan.is_sweep:
        return (plan,)
    cells = []
    for group in plan.groups:
        cases = list(group.cases)
        if group.reference == plan.reference:
            cases += [case for case in plan.cases if case.label == CONTROL]
        cells.append(replace(plan, cases=tuple(cases), notes=()))
    return tuple(cells)


def complete_cells(report: R, cells: Sequence[Plan]) -> R:
    """The report without the cells that are not complete, and without the reason why
    it stopped.

    A cell is not complete if its reference was lost, if a case that has not failed was
    not measured by enough workers, or if such a case lacks the metric that the cases of
    its kind end with.
    """
    planned = {case.label for case in report.plan.cases}
    failed = {failure.case for failure in report.failures}
    lost = {
        failure.case for failure in report.failures if failure.kind is FailureKind.LOST
    }
    sampled = {sample.case for sample in report.samples}
    seconds = rounds_of(report).seconds

    def is_complete(cell: Plan) -> bool:
        if cell.reference not in planned - lost:
            return False
        alive = {case.label for case in cell.cases} & (planned - failed)
        if LATENCY in cell.metrics:
            fewest_workers = min(
                (len(seconds.get(label, ())) for label in alive),
                default=cell.protocol.workers,
            )
            if fewest_workers < cell.protocol.workers:
                return False
        return alive <= sampled

    complete = {
        case.label for cell in cells if is_complete(cell) for case in cell.cases
    }
    cases = tuple(case for case in report.plan.cases if case.label in complete)

    def kept(entries: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(entry for entry in entries if entry.case in complete)

    notes = (note for note in report.warnings if note.label in complete | {""})
    return replace(
        report,
        plan=replace(report.plan, cases=cases),
        costs=kept(report.costs),
        samples=kept(report.samples),
        failures=kept(report.failures),
        measured=kept(report.measured),
        comparisons=kept(report.comparisons),
        warnings=tuple(notes),
        interrupted=False,
        stopped="",
    )


def undecided(report: Report, cells: Sequence[Plan]) -> list[Plan]:
    """The cells with a row that can't be decided, the one with the widest interval
    first; none where the plan asks for no precision.
    """
    by_half_width: list[tuple[float, int]] = []
    for number, cell in enumerate(cells):
        half_widths = []
        for case in cell.cases:
            row = report.comparison(case.label)
            if row and row.verdict in (Verdict.UNCLEAR, Verdict.BUSY):
                half_width = row.ratio.half_width if row.ratio else None
                # a row without one, such as a busy row, counts as 100 %
                half_widths.append(half_width or 1.0)
        if half_widths and cell.protocol.precision is not None:
            by_half_width.append((max(half_widths), number))
    return [cells[number] for _, number in sorted(by_half_width, reverse=True)]


def join_runs(reports: Sequence[R], plan: Plan | None = None) -> R:
    """Join the runs of a plan's cells, made on one kind of machine, to one report. Two
    runs of the same cell become one with the workers of both.

    Workers and starters are numbered anew, for no two runs have one in common. Where
    parts disagree on a failure or an input, the last one counts. Without a
    `plan` the cases stand in the order in which they come.
    """
    if len(reports) == 1 and plan is None:
        return reports[0]
    parts = _renumbered(reports)
    first, plan = parts[0], _joined_plan(reports, plan)
    costs = {cost.case: cost for part in parts for cost in part.costs}
    failures = {failure.case: failure for part in parts for failure in part.failures}
    notes = dict.fromkeys(note for part in parts for note in part.warnings)
    return replace(
        first,
        plan=plan,
        costs=tuple(costs[case.label] for case in plan.cases if case.label in costs),
        samples=tuple(sample for part in parts for sample in part.samples),
        failures=tuple(failures.values()),
        warnings=tuple(notes),
        environment=next(
            (part.environment for part in parts if part.environment), None
        ),
        timer=next((part.timer for part in parts if part.timer), None),
        interrupted=any(part.interrupted for part in parts),
        stopped=next((part.stopped for part in parts if part.stopped), ""),
        limit=first.limit if len({part.limit for part in parts}) == 1 else "budget",
        wall_s=sum(part.wall_s or 0.0 for part in parts),
        created=min(part.created for part in parts),
        measured=(),
        comparisons=(),
    )


def _joined_plan(parts: Sequence[Report], plan: Plan | None) -> Plan:
    """The plan of all parts: its cases as they were measured, with the notes of every
    part.
    """
    cases = {case.label: case for part in parts for case in part.plan.cases}
    plan = plan or replace(parts[0].plan, cases=tuple(cases.values()))
    notes = [note for part in parts for note in part.plan.notes]
    return replace(
        plan,
        cases=tuple(cases.get(case.label, case) for case in plan.cases),
        notes=tuple(dict.fromkeys((*plan.notes, *notes))),
    )


def _renumbered(parts: Iterable[R]) -> list[R]:
    """The parts, with the workers and starters of each numbered on from those of the
    part before.
    """
    renumbered = []
    workers = starters = 0  # how many the parts before have
    for part in parts:
        samples = []
        for sample in part.samples:
            starter = sample.starter
            if starter is not None:
                starter += starters
            samples.append(
                replace(sample, worker=workers + sample.worker, starter=starter)
            )
        renumbered.append(replace(part, samples=tuple(samples)))
        for sample in samples:
            workers = max(workers, sample.worker + 1)
            if sample.starter is not None:
                starters = max(starters, sample.starter + 1)
    return renumbered


def is_part(report: Report, plan: Plan) -> bool:
    """Whether a saved report has whole cells of this plan and nothing else, measured in
    the same way: such a sweep can be resumed.

    The budget may be another one, and so may the device where the plan says `auto`.
    """
    saved = {case.label for case in report.plan.cases}
    for cell in cells_of_plan(plan):
        labels = {case.label for case in cell.cases}
        if labels & saved and not labels <= saved:
            return False
    planned = {case.label: case for case in plan.cases}
    for case in report.plan.cases:
        here = planned.get(case.label)
        if here is None:
            return False
        if isinstance(here.ffn, StackSpec) and isinstance(case.ffn, StackSpec):
            # memory may have held fewer layers
            layers = min(here.ffn.layers, case.ffn.layers)
            here = replace(here, ffn=here.ffn.with_layers(layers))
        on_its_device = here.workload.on(case.workload.device)
        if replace(here, workload=on_its_device) != case:
            return False
    ours = plan.protocol
    theirs = replace(
        report.plan.protocol, budget_s=ours.budget_s, bound=ours.bound, looks=ours.looks
    )
    return not report.repeats and theirs == ours

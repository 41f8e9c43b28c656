"""Whether what stands in a saved report belongs together: what every reader of a report relies on, and no more.

Types are right by then. Values that would only show as nonsense are not looked for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import chain

from ffnbench.features import function_of
from ffnbench.ffn.spec import ActivationSpec, AttentionSpec, FFNSpec, ImportedSpec
from ffnbench.metrics import ROOF
from ffnbench.plan import AddedSpec, Kind, Plan, added_kind, metrics_of
from ffnbench.result import Report

NETWORKS = (FFNSpec, ImportedSpec)
MEASURES = {
    Kind.COMPARE: NETWORKS,
    Kind.SIDES: NETWORKS,
    Kind.ACTIVATIONS: (ActivationSpec,),
    Kind.BLOCK: (*NETWORKS, AttentionSpec),
}
PROBLEMS: dict[str, str] = {
    Kind.BLOCK: "block.plan:problems"
}  # what else its plan may lack: functions (plan) -> texts, as `file:name`
SHORTEST_S, MOST = 1e-15, 1e18  # of a sample


def refuse_incoherent(report: Report) -> None:
    """Raise ValueError for the first thing that belongs to nothing else in the report, or is of no run."""
    for problem in chain(_of_plan(report.plan), _of_answer(report)):
        raise ValueError(problem)


def _of_plan(plan: Plan) -> Iterator[str]:
    labels = {case.label for case in plan.cases}
    if not plan.shown:
        raise ValueError("its plan has no cases")
    if len(labels) < len(plan.cases):
        yield "two cases have one label"
    yield from _strangers("the reference", (plan.reference, *(c.against for c in plan.cases if c.against)), labels)
    kinds = (AddedSpec,) if added_kind(plan.kind) else MEASURES[Kind(plan.kind)]
    yield from (f"{c.label!r} is nothing that {plan.kind} measures" for c in plan.cases if not isinstance(c.ffn, kinds))
    if plan.kind in PROBLEMS:
        yield from function_of(PROBLEMS[plan.kind])(plan)


def _of_answer(report: Report) -> Iterator[str]:
    labels = {case.label for case in report.plan.cases}
    roofs = {roof.name for roof in report.roofs}
    costed = {cost.case for cost in report.costs}
    yield from _strangers("the cost of", (case.label for case in report.plan.shown), costed)
    if any(side < 1 for roof in report.roofs for side in roof.shape):
        yield "a ceiling has an empty side"
    least = {metric.name: SHORTEST_S if metric.unit == "s" else 0.0 for metric in metrics_of(report.plan.kind)}
    least["workspace_bytes"] = 0.0  # of older files
    for number, run in enumerate(report.runs, start=1):
        yield from _strangers("the metric of a sample", {sample.metric for sample in run.samples}, least.keys())
        for sample in run.samples:
            if sample.case not in (roofs if sample.metric == ROOF else labels):
                yield f"the case of a sample {sample.case!r} is unknown there"
            if not least[sample.metric] <= sample.value <= MOST:
                yield f"a {sample.metric}{f' of run {number}' * (number > 1)} of {sample.value:g} is none"
        if run.samples and run.environment is None:
            yield "it has samples, and no environment that they were made in"
    if report.environment is None and (report.measured or report.comparisons):
        yield "it has figures, and no environment that they were made in"


def _strangers(what: str, named: Iterable[str], members: Collection[str]) -> Iterator[str]:
    """What is named, and not known."""
    yield from (f"{what} {name!r} is unknown there" for name in named if name not in members)

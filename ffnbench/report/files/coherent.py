"""Whether what stands in a saved report belongs together. Types are right by then; values that no run can have and
that would only show as nonsense are not looked for.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain

from ffnbench.ffn.attention import AttentionSpec
from ffnbench.ffn.dtypes import DTYPES
from ffnbench.ffn.spec import ActivationSpec, FFNSpec, ImportedSpec
from ffnbench.metrics import METRIC_GROUPS, METRICS, ROOF
from ffnbench.plan import Kind, Plan
from ffnbench.planning.block import lengths_of
from ffnbench.result import Bound, Report

NETWORKS = (FFNSpec, ImportedSpec)
MEASURES = {
    Kind.COMPARE: NETWORKS,
    Kind.SIDES: NETWORKS,
    Kind.ACTIVATIONS: (ActivationSpec,),
    Kind.BLOCK: (*NETWORKS, AttentionSpec),
}
SHORTEST_S, LONGEST_S = 1e-15, 1e9  # of a call
FINEST = 1e-5  # of a precision


def refuse_incoherent(report: Report) -> None:
    """Raise ValueError for the first thing that belongs to nothing else in the report, or is of no run."""
    for problem in chain(_of_plan(report.plan), _of_answer(report)):
        raise ValueError(problem)


def _of_plan(plan: Plan) -> Iterator[str]:
    labels = [case.label for case in plan.cases]
    if not plan.shown:
        raise ValueError("its plan has no cases")
    yield from (f"two cases have the label {label!r}" for label, times in Counter(labels).items() if times > 1)
    yield from _strangers("the reference", (plan.reference,), labels)
    yield from _strangers("what a case is compared with", (case.against for case in plan.cases if case.against), labels)
    yield from _strangers("the metric", plan.metrics, METRIC_GROUPS)
    if plan.protocol.precision is not None and not FINEST <= plan.protocol.precision <= 1:
        yield f"a precision of {plan.protocol.precision:g} is none"
    kinds = MEASURES[Kind(plan.kind)]
    yield from (f"{c.label!r} is nothing that {plan.kind} measures" for c in plan.cases if not isinstance(c.ffn, kinds))
    if plan.kind == Kind.BLOCK.value:
        if any(plan.is_reference(case.label) != isinstance(case.ffn, NETWORKS) for case in plan.shown):
            raise ValueError("a case is not held against an FFN")
        try:
            list(lengths_of(plan))
        except KeyError:
            yield "a length has no attention"


def _of_answer(report: Report) -> Iterator[str]:
    labels, roofs = {case.label for case in report.plan.cases}, {roof.name for roof in report.roofs}
    units = {metric.name: metric.unit for metric in METRICS}
    costs = {found.case: found.cost for found in report.costs}
    for case in report.plan.shown:
        if case.label not in costs:
            yield f"{case.label!r} has no cost"
        elif isinstance(case.ffn, AttentionSpec) and not costs[case.label].params:
            yield f"{case.label!r} has no parameters"
    if len(roofs) < len(report.roofs) or roofs & labels:
        yield "two roofs have one name, or a roof and a case"
    for roof in report.roofs:
        if roof.bound is Bound.PRODUCTS and (len(roof.shape) != 3 or min(roof.shape) < 1):
            yield f"the roof {roof.name!r} is no product"
        if roof.dtype not in DTYPES.names():
            yield f"nobody knows what the roof {roof.name!r} is"
    yield from _strangers("the case of a share", (share.case for share in report.shares), labels)
    yield from _strangers("the roof of a share", (share.roof for share in report.shares), roofs)
    for number, run in enumerate(report.runs, start=1):
        for sample in run.samples:
            if sample.metric not in units:
                yield f"a sample is of the metric {sample.metric!r}, which nobody knows"
            if sample.case not in (roofs if sample.metric == ROOF else labels):
                yield f"the case of a sample {sample.case!r} is unknown there"
            least, most = (SHORTEST_S, LONGEST_S) if units.get(sample.metric) == "s" else (0.0, math.inf)
            if not least <= sample.value <= most:
                said = f"of {sample.value:g} is none" if sample.value > 0 else "is not positive"
                yield f"a {sample.metric}{f' of run {number}' * (number > 1)} {said}"
        yield from _strangers("the case of a failure", (failure.case for failure in run.failures), labels)
        yield from _strangers("the judged case", (judged.case for judged in run.judged), labels)
        if any(one.error is not None and (one.error < 0 or not one.outputs) for one in run.judged):
            yield "an error is that of no output"
        yield from _strangers("the case of inputs", (inputs.case for inputs in run.inputs), labels)
        if run.samples and run.environment is None:
            yield "it has samples, and no environment that they were made in"
    if report.environment is None and (report.measured or report.comparisons):
        yield "it has figures, and no environment that they were made in"
    if len({tuple(name for name, _ in side.differing) for side in report.sides}) > 1:
        yield "its sides do not differ in the same things"


def _strangers(what: str, named: Iterable[str], known: Iterable[str]) -> Iterator[str]:
    """What is named, and not known."""
    there = set(known)
    yield from (f"{what} {name!r} is unknown there" for name in named if name not in there)

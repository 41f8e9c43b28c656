"""Whether what stands in a saved report belongs together, and can have come from a run. Types are right by then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain

from ffnbench.ffn.attention import AttentionSpec
from ffnbench.ffn.dtypes import DTYPES
from ffnbench.ffn.spec import ActivationSpec, FFNSpec, ImportedSpec
from ffnbench.ffn.width_rules import Match
from ffnbench.metrics import (
    COMPILE,
    DEVICE_TIME,
    ERROR,
    HELD,
    HOST_TIME,
    LATENCY,
    METRIC_GROUPS,
    METRICS,
    PACK,
    ROOF,
)
from ffnbench.plan import Kind, Plan, Protocol, values_of
from ffnbench.planning.block import lengths_of
from ffnbench.result import Bound, Report, Roof, Sample
from ffnbench.stats.ceilings import MEMORY

NETWORKS = (FFNSpec, ImportedSpec)
MEASURES = {
    Kind.COMPARE: NETWORKS,
    Kind.SIDES: NETWORKS,
    Kind.ACTIVATIONS: (ActivationSpec,),
    Kind.BLOCK: (*NETWORKS, AttentionSpec),
}
LEVELS = {"", "L1", "L2", "L3", "L4", MEMORY}
SHORTEST_S, LONGEST_S = 1e-15, 1e9  # of a call, and of a run
FINEST = 1e-5  # of a precision


def refuse_incoherent(report: Report) -> None:
    """Raise ValueError for the first thing that belongs to nothing else in the report, or is of no run."""
    for problem in chain(_of_plan(report.plan), _of_answer(report)):
        raise ValueError(problem)


def _of_plan(plan: Plan) -> Iterator[str]:
    labels = [case.label for case in plan.cases]
    if not plan.shown:
        yield "its plan has no cases"
        return
    yield from (f"two cases have the label {label!r}" for label, times in Counter(labels).items() if times > 1)
    yield from _strangers("the reference", (plan.reference,), labels)
    yield from _strangers("what a case is compared with", (case.against for case in plan.cases if case.against), labels)
    yield from _strangers("the metric", plan.metrics, METRIC_GROUPS)
    yield from _strangers("the match", (plan.match,), values_of(Match))
    yield from _of_protocol(plan.protocol)
    kinds = MEASURES[Kind(plan.kind)]
    yield from (f"{c.label!r} is nothing that {plan.kind} measures" for c in plan.cases if not isinstance(c.ffn, kinds))
    if plan.kind == Kind.BLOCK.value:
        yield from _of_block(plan)


def _of_protocol(protocol: Protocol) -> Iterator[str]:
    if protocol.precision is not None and not FINEST <= protocol.precision <= 1:
        yield f"a precision of {protocol.precision:g} is none"


def _of_block(plan: Plan) -> Iterator[str]:
    """An FFN at each length, with the attention beside it."""
    for case in plan.shown:
        if plan.is_reference(case.label) != isinstance(case.ffn, NETWORKS):
            yield f"{case.label!r} is not held against an FFN"
            return
    try:
        list(lengths_of(plan))
    except KeyError:
        yield "a length has no attention"


def _of_answer(report: Report) -> Iterator[str]:
    labels = {case.label for case in report.plan.cases}
    known = {found.case: found.cost for found in report.costs}
    for case in report.plan.shown:
        if case.label not in known:
            yield f"{case.label!r} has no cost"
        elif isinstance(case.ffn, AttentionSpec) and not known[case.label].params:
            yield f"{case.label!r} has no parameters"
    yield from _of_roofs(report.roofs, labels)
    roofs = {roof.name for roof in report.roofs}
    yield from _strangers("the case of a share", (share.case for share in report.shares), labels)
    yield from _strangers("the roof of a share", (share.roof for share in report.shares), roofs)
    for run in report.runs:
        timed = [(sample.case, sample.metric == ROOF) for sample in run.samples]
        yield from _strangers("the case of a sample", (case for case, of_roof in timed if not of_roof), labels)
        yield from _strangers("the roof of a sample", (name for name, of_roof in timed if of_roof), roofs)
        yield from _strangers("the case of a failure", (failure.case for failure in run.failures), labels)
        yield from _of_samples(run.samples)
        yield from _of_judging(run, labels)
        if run.samples and run.environment is None:
            yield "it has samples, and no environment that they were made in"
        if not 0 <= (run.wall_s or 0.0) <= LONGEST_S:
            yield "it took longer than any run"
    if report.environment is None and (report.measured or report.comparisons):
        yield "it has figures, and no environment that they were made in"
    if len({tuple(name for name, _ in side.differing) for side in report.sides}) > 1:
        yield "its sides do not differ in the same things"


def _of_judging(run: Report, labels: set[str]) -> Iterator[str]:
    """What was found of the outputs of timed calls, and of the inputs that they had."""
    for what, told in (("judged case", run.judged), ("case of inputs", run.inputs)):
        named = [one.case for one in told]
        yield from _strangers(f"the {what}", named, labels)
        yield from (f"the {what} {name!r} is there twice" for name, times in Counter(named).items() if times > 1)
    for judged in run.judged:
        if judged.gradients > judged.outputs:
            yield f"of {judged.case!r} more gradients were judged than outputs"
        if judged.error is not None and (judged.error < 0 or not judged.outputs):
            yield f"the error of {judged.case!r} is that of no output"
    for inputs in run.inputs:
        if unknown := {inputs.level, inputs.one_level} - LEVELS:
            yield f"nobody knows the cache {min(unknown)!r}"
    if not 0 <= run.judging_s <= LONGEST_S:
        yield "it judged for longer than any run"


def _of_roofs(roofs: Iterable[Roof], labels: set[str]) -> Iterator[str]:
    names = [roof.name for roof in roofs]
    yield from (f"two roofs have the name {name!r}" for name, times in Counter(names).items() if times > 1)
    yield from (f"{name!r} is a roof and a case" for name in names if name in labels)
    for roof in roofs:
        if roof.bound is Bound.PRODUCTS and len(roof.shape) != 3:
            yield f"the roof {roof.name!r} is no product"
        if any(side < 1 for side in roof.shape) or roof.dtype not in DTYPES.names():
            yield f"nobody knows what the roof {roof.name!r} is"


def _of_samples(samples: Iterable[Sample]) -> Iterator[str]:
    known = {metric.name for metric in METRICS}
    for sample in samples:
        if sample.metric not in known:
            yield f"a sample is of the metric {sample.metric!r}, which nobody knows"
        elif sample.metric in (COMPILE, PACK, ROOF, DEVICE_TIME, HOST_TIME) and not sample.value > 0:
            yield f"a {sample.metric} is not positive"
        elif sample.metric in (HELD, ERROR) and not sample.value >= 0:
            yield f"a {sample.metric} is negative"
        elif (
            sample.metric in (COMPILE, PACK, LATENCY, ROOF, DEVICE_TIME, HOST_TIME)
            and sample.value > 0
            and not SHORTEST_S <= sample.value <= LONGEST_S
        ):
            yield f"a {sample.metric} of {sample.value:g} s is none"


def _strangers(what: str, named: Iterable[str], known: Iterable[str]) -> Iterator[str]:
    """What is named, and not known."""
    there = set(known)
    yield from (f"{what} {name!r} is unknown there" for name in named if name not in there)

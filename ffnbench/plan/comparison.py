"""The plan of a comparison of variants: `compare`, and `cost`, which counts it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ffnbench.common.choices import Match
from ffnbench.common.errors import FfnbenchError
from ffnbench.ffn.width_rules import DEFAULT_MULTIPLE
from ffnbench.plan.cases import (
    Lists,
    cases_of,
    models_of,
    refuse_if_none_can_run,
    with_model,
)
from ffnbench.plan.metrics import RATE
from ffnbench.plan.plan import Case, Plan, Probe, Protocol
from ffnbench.plan.protocol import with_budget
from ffnbench.plan.variants import typed_variants


def plan_variants(
    variants: str,
    flags: Lists,
    *,
    probe: Probe,
    protocol: Protocol,
    preset: str | None = None,
    match: Match = Match.PARAMS,
    bias: bool | None = None,
    metrics: Sequence[str] = ("latency", "memory"),
    layer: int | None = None,
) -> Plan:
    """The plan of a comparison, whose `flags` have lists of values. With `layer` the
    weights are those of that layer in the folder `preset`.

    Raises FfnbenchError, with a hint, for whatever is wrong.
    """
    models = models_of(preset)
    cases, notes = cases_of(
        typed_variants(with_model(variants, models), models),
        flags,
        match=match,
        bias=bias,
        models=models,
        probe=probe,
    )
    refuse_if_none_can_run(cases)
    folder = ""
    if layer is not None:
        from ffnbench.models.published import folder_of_weights

        folder = folder_of_weights(preset, {case.label: case.ffn for case in cases})
    return Plan(
        cases=cases,
        protocol=with_budget(protocol, len(cases)),
        metrics=_metric_groups(metrics, cases),
        match=match,
        model=folder,
        layer=layer,
        multiple_of=DEFAULT_MULTIPLE,
        notes=notes,
    )


def _metric_groups(names: Sequence[str], cases: Iterable[Case]) -> tuple[str, ...]:
    """The groups of metrics that are asked for, and routing wherever there are experts.
    Raises FfnbenchError for a group that can't be measured.
    """
    if RATE in names and "latency" not in names:
        raise FfnbenchError(
            "rate needs latency, which is not measured",
            "add it: --metrics latency",
        )
    experts = any(case.workload.routing for case in cases)
    if not experts and "routing" in names:
        raise FfnbenchError(
            "the metric routing needs experts, and no variant has any",
            "for example swiglu@moe=8x2",
        )
    if experts and "routing" not in names:
        return (*names, "routing")
    return tuple(names)

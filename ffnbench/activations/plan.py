"""Which activations, over which range, and how they are timed: the text of flags ->
specs, a range, a plan. Pure.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from ffnbench.choices import Mode
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.names import hint_for
from ffnbench.ffn.activations import ACTIVATIONS
from ffnbench.ffn.spec import GATED, ActivationSpec, Gate
from ffnbench.plan import GIVEN, Case, Kind, Plan, Point, Probe, group_suffix
from ffnbench.planning.axes import listed_variants, requests_of_cells
from ffnbench.planning.compare import as_compare, identify
from ffnbench.planning.effort import protocol_of
from ffnbench.planning.fields import cut
from ffnbench.planning.variant_text import Variant, parse_variant
from ffnbench.planning.workload import workload_of
from ffnbench.request import TimingRequest

# what people choose between for an FFN: drawn where no activations are given
USUAL_CHOICES = "relu,relu2,gelu,silu,mish"
REFERENCE = "relu"
# axes of a sweep: those whose value every label has, and those that it has if they are
# swept
AXES_IN_LABEL = ("dtype", "elements")
TIMING_AXES = (*AXES_IN_LABEL, "device", "threads")
LARGEST_X = 1e12  # |x| of a picture
# of the range of a picture: its width, or its width over the largest |x|
NARROWEST = 1e-9
# an operation is short, and one run holds many of them
TIMING_ROUNDS, TIMING_WARMUP_S = 15, 0.05


def every_activation() -> str:
    """All built-in activations, as the text of a flag."""
    return ",".join(row.name for row in ACTIVATIONS)


def select(text: str, probe: Probe) -> dict[str, ActivationSpec]:
    """Label -> spec of a comma separated list."""
    chosen: dict[str, ActivationSpec] = {}
    for part in cut("", text, "relu,gelu,silu"):
        variant = _variant_of_activation(part, probe)
        if variant.label in chosen:
            raise FfnbenchError(
                f"the activation {variant.label!r} is given twice",
                "name one of them: other=" + part,
            )
        beta = variant.spec_keys.get("beta")
        chosen[variant.label] = ActivationSpec(
            activation=variant.activation,
            beta=None if beta is None else float(beta),
            own=variant.own,
        )
    return chosen


def _variant_of_activation(text: str, probe: Probe) -> Variant:
    """The variant of one entry of the list; raises FfnbenchError where that is not an
    activation, or has other keys than beta.
    """
    name = text.split("@")[0].rpartition("=")[2]
    if (
        ":" not in name
        and name not in ACTIVATIONS
        and name not in GATED
        and not name.endswith("_glu")
    ):
        raise FfnbenchError(
            f"unknown activation {name!r}",
            hint_for(name, ACTIVATIONS.spellings(), ACTIVATIONS.where),
        )
    variant = identify(parse_variant(text), probe)
    if variant.target:
        raise FfnbenchError(
            f"{variant.target} is not a function of one tensor",
            "for example def act(x): ...",
        )
    if variant.gate is not Gate.NONE:
        raise FfnbenchError(
            f"{variant.text!r} is a gated form, not an activation",
            f"its activation is {variant.activation}",
        )
    keys = variant.spec_keys.keys() | variant.workload_keys.keys()
    refused = sorted(keys - {"beta"})
    if refused:
        raise FfnbenchError(
            f"an activation has no {refused[0]!r}, in {text!r}",
            "the only key of an activation is beta",
        )
    return variant


def parse_range(text: str) -> tuple[float, float]:
    """The bounds of a text LO:HI. Raises FfnbenchError unless both are finite and LO is
    below HI by so much that float64 tells the points between them apart.
    """
    low, _, high = text.partition(":")
    try:
        bounds = float(low), float(high)
    except ValueError:
        raise FfnbenchError(
            f"cannot read the range {text!r}",
            "a range is LO:HI, for example --range=-4:4",
        ) from None
    size, width = max(map(abs, bounds)), bounds[1] - bounds[0]
    if not (size <= LARGEST_X and width >= NARROWEST * max(size, 1)):
        raise FfnbenchError(
            f"the range {text!r} is empty, or beyond what a picture can show",
            f"LO must be below HI, and both within +-{LARGEST_X:g}: --range=-4:4",
        )
    return bounds


def plan_timing(request: TimingRequest, probe: Probe | None = None) -> Plan:
    """The plan that times activations: a group for each dtype, number of elements and
    direction. Its reference is relu, which is added where it was not asked for.
    """
    listed = listed_variants(
        request.activations or every_activation().removeprefix("identity,")
    )
    cases: list[Case] = []
    for cell, mode in product(
        requests_of_cells(request, TIMING_AXES, listed.axes),
        (Mode.FORWARD, Mode.BACKWARD),
    ):
        specs = select(",".join(listed.texts(cell.keys, named=True)), probe or Probe())
        if REFERENCE not in specs:
            specs = {REFERENCE: ActivationSpec(activation=REFERENCE), **specs}
        if specs[REFERENCE].activation != REFERENCE:
            raise FfnbenchError(
                f"{REFERENCE!r} is the label of the reference, and can't be that of another activation",
                "for example mine=...",
            )
        elements = int(cell.request.elements)
        work = workload_of(
            as_compare(cell.request, seq_len=1, mode=mode.value),
            parse_variant(REFERENCE),
        )
        suffix = group_suffix(
            {name: value for name, value in cell.point if name not in AXES_IN_LABEL}
        )
        group_label = f"{work.dtype} {elements} {mode}{suffix}"
        point: Point = ()
        if cell.point:
            point = (*cell.point, ("mode", mode.value))
        for name, spec in specs.items():
            case = Case(
                label=f"{name} {group_label}",
                variant=name,
                ffn=replace(spec, elements=elements),
                workload=work,
                sizing=GIVEN,
                against=f"{REFERENCE} {group_label}",
                point=point,
            )
            cases.append(case)
    rounds = request.rounds
    if rounds is None and not request.quick:
        rounds = TIMING_ROUNDS
    return Plan(
        kind=Kind.ACTIVATIONS,
        cases=tuple(cases),
        reference=cases[0].against or cases[0].label,
        protocol=replace(
            protocol_of(1, replace(request, rounds=rounds)), warmup_s=TIMING_WARMUP_S
        ),
        metrics=("latency",),
    )

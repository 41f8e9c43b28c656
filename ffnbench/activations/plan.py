"""Which activations, over which range, and how they are timed: the text of flags ->
specs, a range, a plan. Pure.
"""

from __future__ import annotations

from dataclasses import replace

from ffnbench.common.choices import Mode
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.names import hint_for
from ffnbench.ffn.activations import ACTIVATIONS
from ffnbench.ffn.spec import PARAMETERS, ActivationSpec, FFNSpec, Gate
from ffnbench.plan.cases import Lists, points_of, workload_of
from ffnbench.plan.plan import GIVEN, Case, Kind, Plan, Probe, Protocol
from ffnbench.plan.protocol import with_budget
from ffnbench.plan.variants import Typed, Values, Variant, typed_variants

# what people choose between for an FFN: drawn where no activations are given
USUAL_CHOICES = "relu,relu2,gelu,silu,mish"
REFERENCE = "relu"
TIMING_AXES = ("dtype", "elements", "device", "threads")
LARGEST_X = 1e12  # |x| of a picture
# of the range of a picture: its width, or its width over the largest |x|
NARROWEST = 1e-9
Specs = dict[str, ActivationSpec]
# an operation is short, and one run holds many of them
TIMING_ROUNDS, TIMING_WARMUP_S = 15, 0.05


def every_activation() -> str:
    """All built-in activations, as the text of a flag."""
    return ",".join(row.name for row in ACTIVATIONS)


def select(names: str, probe: Probe, point: Values | None = None) -> Specs:
    """Label -> spec of a comma separated list, whose keys with lists have one value at
    a `point`.
    """
    chosen: Specs = {}
    for typed in typed_variants(names):
        variant = typed.at(point or {}, probe)
        form = _form_of(typed, variant)
        if variant.label in chosen:
            raise FfnbenchError(
                f"the activation {variant.label!r} is given twice",
                f"name one of them: other={variant.text}",
            )
        chosen[variant.label] = form.act
    return chosen


def _form_of(typed: Typed, variant: Variant) -> FFNSpec:
    """The classic form around an activation; raises FfnbenchError where the variant is
    not one, or has other keys than parameters.
    """
    if typed.model is not None:
        raise FfnbenchError(
            f"unknown activation {typed.name!r}",
            hint_for(typed.name, ACTIVATIONS.spellings(), ACTIVATIONS.where),
        )
    form = variant.form
    if form is None:
        raise FfnbenchError(
            f"{variant.target} is not a function of one tensor",
            "for example def act(x): ...",
        )
    if form.gate is not Gate.NONE:
        raise FfnbenchError(
            f"{variant.text!r} is a gated form, not an activation",
            f"its activation is {form.activation}",
        )
    for key in sorted(variant.keys.keys() - {*PARAMETERS}):
        raise FfnbenchError(
            f"an activation has no {key!r}, in {variant.text!r}",
            f"its keys are those of parameters: {', '.join(PARAMETERS)}",
        )
    return form


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


def plan_timing(
    names: str | None, flags: Lists, *, probe: Probe, protocol: Protocol
) -> Plan:
    """The plan that times activations: a group for each dtype, number of elements and
    direction. Its reference is relu, which is added where it was not asked for.
    """
    names = names or every_activation().removeprefix("identity,")
    lists = {name: of for name in TIMING_AXES if (of := flags.get(name))}
    for typed in typed_variants(names):
        lists |= {f"@{name}": of for name, of in typed.lists.items()}
    axes = {**lists, "mode": (Mode.FORWARD, Mode.BACKWARD)}
    cases: list[Case] = []
    for values, point in points_of(axes):
        specs = select(names, probe, values)
        if REFERENCE not in specs:
            specs = {REFERENCE: ActivationSpec(activation=REFERENCE), **specs}
        if specs[REFERENCE].activation != REFERENCE:
            raise FfnbenchError(
                f"{REFERENCE!r} is the label of the reference, and can't be that of another activation",
                "for example mine=...",
            )
        of_call = {"batch": 1, "seq_len": 1} | values
        reference = Variant(label=REFERENCE, text=REFERENCE)
        cases += [
            Case(
                name=name,
                variant=name,
                ffn=replace(spec, elements=values["elements"]),
                workload=workload_of(of_call, reference),
                sizing=GIVEN,
                point=point,
            )
            for name, spec in {REFERENCE: specs[REFERENCE], **specs}.items()
        ]
    return Plan(
        kind=Kind.ACTIVATIONS,
        cases=tuple(cases),
        protocol=replace(with_budget(protocol, 1), warmup_s=TIMING_WARMUP_S),
        metrics=("latency",),
    )

"""Which activations, over which range: the text of flags -> specs, a range. Pure."""

from __future__ import annotations

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.names import hint_for
from ffnbench.ffn.activations import ACTIVATIONS
from ffnbench.ffn.spec import PARAMETERS, ActivationSpec, FFNSpec, Gate
from ffnbench.plan.plan import Probe
from ffnbench.plan.variants import Typed, Variant, typed_variants

# what people choose between for an FFN: drawn where no activations are given
USUAL_CHOICES = "relu,relu2,gelu,silu,mish"
LARGEST_X = 1e12  # |x| of a picture
# the least width of the range of a picture, and the least over its largest |x|
NARROWEST = 1e-9
Specs = dict[str, ActivationSpec]


def select(names: str, probe: Probe) -> Specs:
    """Label -> spec of a comma separated list."""
    chosen: Specs = {}
    for typed in typed_variants(names):
        for key in typed.lists:
            raise FfnbenchError(
                f"an activation has one {key}, and {typed.text!r} has a list",
                "give each value its own: swish@beta=0.5,swish@beta=2",
            )
        variant = typed.at({}, probe)
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

"""`--preset` and `--config`: the model whose FFN the others are compared with, and the width that all of them share."""

from __future__ import annotations

from collections.abc import Mapping

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.configs import read_config
from ffnbench.ffn.grammar import Variant
from ffnbench.ffn.model import ModelSpec
from ffnbench.ffn.presets import PRESETS

DEFAULT_D_MODEL = 768
Chosen = Mapping[str, ModelSpec]  # at most one model, under the name that stands for it among the variants


def chosen_model(preset: str | None, config: str | None) -> Chosen:
    """The model of the flags, called `preset` or `config`; raises FfnbenchError for both, and for what is none."""
    if preset is not None and config is not None:
        raise FfnbenchError("--preset and --config each name a model", "give one of the two")
    if preset is not None:
        return {"preset": PRESETS.get(preset)}
    return {} if config is None else {"config": read_config(config)}


def with_model(variants: str, chosen: Chosen) -> str:
    """The list of variants; the model's own FFN stands first where it is not among them."""
    for name in chosen:
        if name not in (part.strip().partition("@")[0].rpartition("=")[2] for part in variants.split(",")):
            return f"{name},{variants}"
    return variants


def biased(given: bool, chosen: Chosen) -> bool:
    """Whether the forms beside the model's have biases: where it has some, and where they were asked for."""
    return given or any(model.main.ffn.bias for model in chosen.values())


def shared_width(given: int | None, chosen: Chosen, variants: list[Variant]) -> int:
    """d_model of the comparison: the flag's, the models', or the default; raises FfnbenchError where they differ."""
    named = {name: model.main.ffn.d_model for name, model in chosen.items()}
    named |= {variant.label: variant.d_model for variant in variants if variant.d_model}
    widths = sorted(set(named.values()))
    if len(widths) > 1:
        shown = ", ".join(f"{name} {width:,}" for name, width in named.items())
        raise FfnbenchError(f"these models have different d_model: {shown}", "compare models of one width")
    if given is not None and widths and widths != [given]:
        name = next(iter(named))
        raise FfnbenchError(
            f"--d-model {given:,} is not the width of {name}, {widths[0]:,}", "leave --d-model out: the model sets it"
        )
    return given if given is not None else widths[0] if widths else DEFAULT_D_MODEL

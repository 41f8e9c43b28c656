"""From a request to a Plan of variants: every mistake is found here.

Pure: text in, Plan out, before a process is spawned or a file opened. The one thing that a pure function can't
know is what code of the user's is and costs; `plan_compare` is handed a `probe` for that, and never asks it about
ffnbench's own forms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.spec import HF
from ffnbench.metrics import METRIC_GROUPS
from ffnbench.models.model import ModelSpec
from ffnbench.models.presets import model_of
from ffnbench.names import hint_for
from ffnbench.plan import Case, NoProbe, Note, Plan, Probe, control_of
from ffnbench.planning.effort import protocol_of
from ffnbench.planning.grammar import Variant, as_activation_variant, as_model_variant, parse_variants
from ffnbench.planning.widths import Sizer
from ffnbench.request import CompareRequest


def plan_compare(request: CompareRequest, probe: Probe | None = None) -> Plan:
    """Parse, check and size everything; raises FfnbenchError with a hint for whatever is wrong."""
    probe = probe or NoProbe()
    chosen = chosen_model(request.preset, request.config)
    parsed = parse_variants(with_model(request.variants, chosen), chosen)
    variants = [identify(variant, probe) for variant in parsed]
    asked = replace(request, d_model=shared_width(request.d_model, chosen, variants), bias=biased(request.bias, chosen))
    reference = _reference(request.reference, variants)
    sizer = Sizer(asked, reference, probe)
    cases = tuple(sizer.case(variant) for variant in variants)
    metrics = _metrics(request, cases)
    return Plan(
        cases=(*cases, *_control(request, metrics, cases, reference.label)),
        reference=reference.label,
        protocol=protocol_of(len(cases), request),
        metrics=metrics,
        match=sizer.match.value,
        multiple_of=sizer.multiple_of,
        notes=tuple(Note(label=variant.label, text=text) for variant in variants for text in variant.notes),
        request=request,
    )


def identify(variant: Variant, probe: Probe) -> Variant:
    """A target is a module, an activation or a model of transformers; which of these shows when it is loaded."""
    probe = probe.within(variant.arm)
    if variant.target.startswith(HF):
        return as_model_variant(variant, probe.own_mlp(variant.target))
    own = probe.describe(variant.target) if variant.target else None
    return as_activation_variant(variant, own) if own else variant


def _reference(label: str | None, variants: list[Variant]) -> Variant:
    labels = [variant.label for variant in variants]
    if label is None:
        return variants[0]
    if label not in labels:
        raise FfnbenchError(
            f"no variant has the label {label!r}", hint_for(label, labels, "labels: " + ", ".join(labels))
        )
    return variants[labels.index(label)]


def _control(
    request: CompareRequest, metrics: tuple[str, ...], cases: tuple[Case, ...], reference: str
) -> tuple[Case, ...]:
    """The reference a second time, where that was asked for."""
    if not request.control:
        return ()
    if "latency" not in metrics:
        raise FfnbenchError("--control is about latency, and latency is not measured", "add it: --metrics latency")
    return (control_of(cases, reference),)


def _metrics(request: CompareRequest, cases: tuple[Case, ...]) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(part.strip() for part in request.metrics.split(",") if part.strip()))
    for name in names:
        if name not in METRIC_GROUPS:
            raise FfnbenchError(
                f"unknown metric {name!r}", hint_for(name, METRIC_GROUPS, "metrics: " + ", ".join(METRIC_GROUPS))
            )
    if not names:
        raise FfnbenchError("no metric given", "metrics: " + ", ".join(METRIC_GROUPS))
    experts = any(case.workload.routing for case in cases)
    if not experts and (request.routing is not None or "routing" in names):
        raise FfnbenchError("routing is about experts, and no variant has any", "for example swiglu@moe=8x2")
    return (*names, "routing") if experts and "routing" not in names else names


DEFAULT_D_MODEL = 768
Chosen = Mapping[str, ModelSpec]  # at most one model, under the name that stands for it among the variants


def named_model(preset: str | None, config: str | None) -> str | None:
    """What --preset or --config names, either of them a preset or a file; raises FfnbenchError for both."""
    if preset is not None and config is not None:
        raise FfnbenchError("--preset and --config each name a model", "give one of the two")
    return config if preset is None else preset


def chosen_model(preset: str | None, config: str | None) -> Chosen:
    """The model of the flags, called `preset` or `config`; raises FfnbenchError for both, and for what is none."""
    name = named_model(preset, config)
    return {} if name is None else {"config" if preset is None else "preset": model_of(name)}


def with_model(variants: str, chosen: Chosen) -> str:
    """The list of variants; the model's own FFN stands first where it is not among them."""
    for name in chosen:
        if name not in (part.strip().partition("@")[0].rpartition("=")[2] for part in variants.split(",")):
            return f"{name},{variants}"
    return variants


def biased(given: bool | None, chosen: Chosen) -> bool:
    """Whether the forms beside the model's have biases: as was asked for, else where the model has some."""
    return any(model.main.ffn.bias for model in chosen.values()) if given is None else given


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

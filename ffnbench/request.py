"""From flags to a Plan: every default stands here once, and every mistake is found here.

Pure: text in, Plan out, before a process is spawned or a file opened. The one thing that a pure function can't
know is what code of the user's is and costs; `build` is handed a `probe` for that, and never asks it about
ffnbench's own forms.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ffnbench.arm import Arm
from ffnbench.errors import FfnbenchError
from ffnbench.ffn.cost import cost
from ffnbench.ffn.grammar import (
    MOE_KEYS,
    Variant,
    as_activation_variant,
    as_model_variant,
    choose,
    module_spec,
    parse_variants,
)
from ffnbench.ffn.keys import check_grouped, flag, limit_of, moe_of, number
from ffnbench.ffn.sizing import DEFAULT_MULTIPLE, DEFAULT_RATIO, RULES, Match, round_nearest, width_by_rule, width_for
from ffnbench.ffn.spec import HF, FFNSpec, Gate, ImportedSpec, Init, NetworkSpec, require_positive
from ffnbench.modelflags import biased, chosen_model, shared_width, with_model
from ffnbench.plan import METRIC_GROUPS, Backend, Case, Mode, NoProbe, Note, Plan, Probe, Workload, control_of
from ffnbench.protocol import protocol_of
from ffnbench.registry import hint_for
from ffnbench.units import signed_percent
from ffnbench.workload import FLAGS, workload_of

SIZING_KEYS = {"rule", "ratio", "multiple_of", "ffn_dim_multiplier"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The flags of a command as they were given: the one place where their defaults stand.

    `threads` None becomes 1 here; whoever knows the machine (api.py) fills in what it may use.
    """

    variants: str = "relu,gelu,swiglu"
    preset: str | None = None
    config: str | None = None
    d_model: int | None = None  # that of the model that is named, else 768
    d_ff: int | None = None
    match: str = Match.PARAMS.value
    multiple_of: int | None = None
    rule: str | None = None
    ratio: float | None = None
    ffn_dim_multiplier: float | None = None
    bias: bool = False
    dropout: float = 0.0
    init: str = Init.TORCH.value
    batch: int = 1
    seq_len: int = 512
    dtype: str = "float32"
    device: str = "auto"
    mode: str = Mode.FORWARD.value
    threads: int | None = None
    backend: str = Backend.EAGER.value
    routing: str | None = None
    reference: str | None = None
    workers: int | None = None
    rounds: int | None = None
    quick: bool = False
    precision: float | None = None  # percent
    budget: float | None = None  # seconds
    control: bool = False
    seed: int = 0
    timeout: float = 300.0
    metrics: str = "latency,memory"


def build(request: Request, probe: Probe | None = None) -> Plan:
    """Parse, check and size everything; raises FfnbenchError with a hint for whatever is wrong."""
    probe = probe or NoProbe()
    chosen = chosen_model(request.preset, request.config)
    parsed = parse_variants(with_model(request.variants, chosen), chosen)
    variants = [identify(variant, probe) for variant in parsed]
    request = replace(
        request, d_model=shared_width(request.d_model, chosen, variants), bias=biased(request.bias, chosen)
    )
    reference = _reference(request.reference, variants)
    sizer = _Sizer(request, reference, probe)
    cases = tuple(sizer.case(variant) for variant in variants)
    metrics = _metrics(request, cases)
    return Plan(
        cases=(*cases, *_control(request, metrics, cases, reference.label)),
        reference=reference.label,
        protocol=protocol_of(
            len(cases),
            workers=request.workers,
            rounds=request.rounds,
            quick=request.quick,
            precision=request.precision,
            budget=request.budget,
            seed=request.seed,
            timeout=request.timeout,
        ),
        metrics=metrics,
        match=choose(Match, "match", request.match).value,
        multiple_of=sizer.multiple_of,
        notes=tuple(_notes(variants, cases, reference.label, sizer.match)),
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


def _control(request: Request, metrics: tuple[str, ...], cases: tuple[Case, ...], reference: str) -> tuple[Case, ...]:
    """The reference a second time, where that was asked for."""
    if not request.control:
        return ()
    if "latency" not in metrics:
        raise FfnbenchError("--control is about latency, and latency is not measured", "add it: --metrics latency")
    return (control_of(cases, reference),)


def _metrics(request: Request, cases: tuple[Case, ...]) -> tuple[str, ...]:
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


@dataclass(slots=True)
class _Sizer:
    """Turns variants into cases: final widths, found by rule, by hand or by matching the reference."""

    request: Request
    reference: Variant
    probe: Probe
    match: Match = field(init=False)
    multiple_of: int = field(init=False)
    d_model: int = field(init=False)
    _target: int | None = field(init=False, default=None)
    _reference_width: int | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.match = choose(Match, "match", self.request.match)
        self.multiple_of = DEFAULT_MULTIPLE if self.request.multiple_of is None else self.request.multiple_of
        self.d_model = require_positive("d_model", self.request.d_model)
        require_positive("multiple_of", self.multiple_of)
        self._check_flags()

    def _check_flags(self) -> None:
        """A flag that would be ignored is a mistake."""
        request = self.request
        if request.rule is not None:
            RULES.get(request.rule)
            if request.d_ff is not None:
                raise FfnbenchError("--rule computes d_ff and --d-ff sets it", "give one of the two")
        if request.ffn_dim_multiplier is not None and request.rule is None:
            raise FfnbenchError("--ffn-dim-multiplier needs a width rule that reads it", "for example --rule llama")
        own = sorted({"d_ff", "rule", "ratio"} & self.reference.spec_keys.keys())
        if request.d_ff is not None and own and self.match is not Match.NONE:
            raise FfnbenchError(
                f"--d-ff sets the width of the reference, and {self.reference.text!r} has its own",
                "give one of the two, or another --reference",
            )

    def case(self, variant: Variant) -> Case:
        """The sized case of a variant, with its residual against the reference."""
        workload = self._workload(variant)
        width, sizing = self._width(variant, workload)
        spec = self._spec(variant, width)
        if isinstance(spec, FFNSpec):
            check_grouped(spec, workload.dtype, variant.text)
        residual = None
        if self.match is not Match.NONE and variant.label != self.reference.label:
            residual = self._matched_cost(spec, workload, variant.arm) / self._reference_cost() - 1
        return Case(
            label=variant.label, variant=variant.text, ffn=spec, workload=workload, sizing=sizing, residual=residual,
            arm=variant.arm,
        )  # fmt: skip

    def _workload(self, variant: Variant) -> Workload:
        return workload_of({key: getattr(self.request, key) for key in FLAGS}, variant)

    def _width(self, variant: Variant, workload: Workload) -> tuple[int, str]:
        """d_ff and where it comes from. Order: the variant's own keys, the flags, the match."""
        keys, request = variant.spec_keys, self.request
        if "d_ff" in keys:
            if beside := sorted(SIZING_KEYS & keys.keys()):
                raise FfnbenchError(f"{variant.text!r} gives d_ff and also {beside[0]}", "d_ff is final; give one")
            return require_positive("d_ff", keys["d_ff"]), "given"
        if "ffn_dim_multiplier" in keys and "rule" not in keys and request.rule is None:
            raise FfnbenchError(f"ffn_dim_multiplier in {variant.text!r} needs a rule", "for example @rule=llama")
        if {"rule", "ratio"} & keys.keys():
            return self._by_rule(str(keys.get("rule", "classic")), variant)
        is_reference = variant.label == self.reference.label
        if request.d_ff is not None and (is_reference or self.match is Match.NONE):
            return require_positive("d_ff", request.d_ff), "given"
        gated, experts = variant.gate is not Gate.NONE, variant.spec_keys.get("moe") is not None
        if request.rule is not None and (gated or request.rule in ("classic", "palm")):
            return self._by_rule(request.rule, variant)
        if self.match is Match.NONE or (is_reference and not gated and not experts):
            return self._by_rule("classic", variant)
        target = self._classic_cost(variant, workload) if is_reference else self._reference_cost()
        multiple = require_positive("multiple_of", keys.get("multiple_of", self.multiple_of))
        if variant.target:
            return self._imported_width(variant, workload, target, multiple)
        experts = experts or self.reference.spec_keys.get("moe") is not None
        what = "active params" if experts and self.match is Match.PARAMS else self.match.value
        return self._own_width(variant, workload, target, multiple), f"matched on {what}"

    def _by_rule(self, rule: str, variant: Variant) -> tuple[int, str]:
        def number(key: str, default: float | None) -> float | None:
            value = variant.spec_keys.get(key, default)
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e6
            ):
                raise FfnbenchError(f"{key} must be a positive number, not {value!r}", "for example 4")
            return value

        explicit = rule != "classic"  # the flags of a rule are not meant for the classic form beside it
        ratio = number("ratio", self.request.ratio)
        multiple = variant.spec_keys.get("multiple_of", self.request.multiple_of)
        width = width_by_rule(
            rule,
            self.d_model,
            ratio=ratio,
            multiple_of=None if multiple is None else require_positive("multiple_of", multiple),
            multiplier=number("ffn_dim_multiplier", self.request.ffn_dim_multiplier if explicit else None),
        )
        if explicit:
            return width, f"rule {rule}"
        rounded = f", up to a multiple of {multiple}" if multiple else ""
        return width, f"{ratio or DEFAULT_RATIO:g} * d_model{rounded}"

    def _own_width(self, variant: Variant, workload: Workload, target: int, multiple: int) -> int:
        def at(width: int) -> int:
            return self._matched_cost(self._spec(variant, width), workload, variant.arm)

        if self._reference_width is not None and at(self._reference_width) == target:
            return self._reference_width  # the same form: no rounding may come between
        if at(1) >= target:
            raise FfnbenchError(
                f"{variant.label} is larger than {self.reference.label} at any d_ff", "use --match none"
            )
        return width_for(at, target, multiple)

    def _imported_width(self, variant: Variant, workload: Workload, target: int, multiple: int) -> tuple[int, str]:
        # user code may refuse odd widths, so the line is drawn through two ordinary ones
        wide = round_nearest((self.request.ratio or DEFAULT_RATIO) * self.d_model, multiple)
        half = round_nearest(wide / 2, multiple)
        low, high = (self._matched_cost(self._spec(variant, width), workload, variant.arm) for width in (half, wide))
        if low == high:
            return wide, "given, and not read by the module"
        width = round_nearest(half + (target - low) * (wide - half) / (high - low), multiple)
        return width, f"matched on {self.match.value}"

    def _reference_cost(self) -> int:
        """What the others are matched to: the reference at its own width."""
        if self._target is None:
            workload = self._workload(self.reference)
            width, _ = self._width(self.reference, workload)
            self._reference_width = width
            self._target = self._matched_cost(self._spec(self.reference, width), workload, self.reference.arm)
        return self._target

    def _classic_cost(self, variant: Variant, workload: Workload) -> int:
        """What a reference without a width is matched to, gated or of experts: the classic form with its keys."""
        plain = {k: v for k, v in variant.spec_keys.items() if k not in (*MOE_KEYS, "limit", "offset")}
        classic = replace(variant, gate=Gate.NONE, spec_keys=plain)
        width, _ = self._by_rule("classic", classic)
        return self._matched_cost(self._spec(classic, width), workload, variant.arm)

    def _matched_cost(self, spec: NetworkSpec, workload: Workload, arm: Arm) -> int:
        if isinstance(spec, ImportedSpec):
            counted = self.probe.within(arm).count(spec, workload)
        else:
            counted = cost(spec, tokens=1, dtype="float32", train=False, device="cpu")
        value = counted.params_active if self.match is Match.PARAMS else counted.flops_forward
        if not value:
            name = spec.target if isinstance(spec, ImportedSpec) else spec.name
            raise FfnbenchError(f"{name} has no {self.match.value} that can be counted to match", "use --match none")
        return value

    def _spec(self, variant: Variant, width: int) -> NetworkSpec:
        d_model, keys, request = self.d_model, variant.spec_keys, self.request
        if variant.target:
            return module_spec(variant, d_model, width)
        beta = keys.get("beta")
        return FFNSpec(
            d_model=d_model,
            d_ff=width,
            activation=variant.activation,
            gate=variant.gate,
            bias=flag(keys, "bias", request.bias),
            beta=None if beta is None else float(beta),
            dropout=number(keys, "dropout", request.dropout, "it is a probability, e.g. 0.1"),
            init=choose(Init, "init", keys.get("init", request.init)),
            own=variant.own,
            moe=moe_of(keys, variant.text),
            limit=limit_of(keys),
            up_offset=number(keys, "offset", 0.0, "gpt-oss has swiglu_oai@offset=1"),
        )


def _notes(variants: list[Variant], cases: tuple[Case, ...], reference: str, match: Match) -> list[Note]:
    notes = [Note(label=v.label, text=text) for v in variants for text in v.notes]
    for case in cases:
        if case.residual:
            what = "active params" if "active" in case.sizing else match.value
            change = f"{signed_percent(case.residual)} {what} against {reference}"
            notes.append(Note(label=case.label, text=f"d_ff {case.ffn.d_ff:,} ({case.sizing}) gives {change}"))
        if case.workload.slowdown:
            text = f"slowed down on purpose: each call spins for {case.workload.slowdown:g} of its own time"
            notes.append(Note(label=case.label, text=text))
    return notes

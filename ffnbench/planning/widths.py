"""The widths of a comparison's variants: given, by a published rule, or found by matching the reference."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import cache, cached_property

from ffnbench.common.errors import FfnbenchError, Unsupported
from ffnbench.common.names import choose
from ffnbench.ffn.cost import flops_forward, params_active
from ffnbench.ffn.spec import FFNSpec, Gate, ImportedSpec, Init, NetworkSpec, read_positive
from ffnbench.ffn.width_rules import (
    DEFAULT_MULTIPLE,
    DEFAULT_RATIO,
    RULES,
    Match,
    round_nearest,
    width_by_rule,
    width_for,
)
from ffnbench.plan import ACTIVE_PARAMS, GIVEN, Arm, Case, Probe, Sizing, Workload
from ffnbench.planning.keys import MOE_KEYS
from ffnbench.planning.variant_text import Variant, flag, limit_of, module_spec, moe_of, number
from ffnbench.planning.workload import workload_of
from ffnbench.request import CompareRequest

SIZING_KEYS = {"rule", "ratio", "multiple_of", "ffn_dim_multiplier"}


class Sizer:
    """Turns variants into cases: final widths, found by rule, by hand or by matching the reference."""

    def __init__(self, request: CompareRequest, reference: Variant, probe: Probe) -> None:
        self.request, self.reference, self.probe = request, reference, probe
        self.match = choose(Match, "match", request.match)
        multiple = DEFAULT_MULTIPLE if request.multiple_of is None else request.multiple_of
        self.multiple_of = read_positive("multiple_of", multiple)
        self.d_model = read_positive("d_model", request.d_model)
        self.ratio, self.dropout = (None if one is None else float(one) for one in (request.ratio, request.dropout))  # type: ignore[arg-type]
        self._sized: dict[str, Case] = {}
        self._check_flags()

    def _check_flags(self) -> None:
        """A flag that would be ignored is a mistake."""
        request = self.request
        if request.rule is not None:
            RULES.get(request.rule)
            if request.d_ff is not None:
                raise FfnbenchError("--rule computes d_ff and --d-ff sets it", "give one of the two")
        if request.ratio is not None and request.d_ff is not None:
            raise FfnbenchError("--ratio and --d-ff both say how wide the reference is", "give one of the two")
        if request.ffn_dim_multiplier is not None and request.rule is None:
            raise FfnbenchError("--ffn-dim-multiplier needs a width rule that reads it", "for example --rule llama")
        own = sorted({"d_ff", "rule", "ratio"} & self.reference.spec_keys.keys())
        if request.d_ff is not None and own and self.match is not Match.NONE:
            raise FfnbenchError(
                f"--d-ff sets the width of the reference, and {self.reference.text!r} has its own",
                "give one of the two, or another --reference",
            )

    def case(self, variant: Variant, workload: Workload) -> Case:
        """The sized case of a variant, with its residual against the reference: the same however it is fed."""
        if variant.label not in self._sized:
            self._sized[variant.label] = self._case(variant, workload)
        return self._sized[variant.label]

    def _case(self, variant: Variant, workload: Workload) -> Case:
        width, sizing = self._width(variant, workload)
        spec = self._spec(variant, width)
        residual = None
        if self.match is not Match.NONE and variant.label != self.reference.label:
            _, target = self._matched
            with suppress(Unsupported):  # it can't be counted: its row will say so
                residual = self._matched_cost(spec, workload, variant.arm) / target - 1
        return Case(
            label=variant.label, variant=variant.text, ffn=spec, workload=workload, sizing=sizing, residual=residual,
            arm=variant.arm,
        )  # fmt: skip

    def _width(self, variant: Variant, workload: Workload) -> tuple[int, Sizing]:
        """d_ff and where it comes from. Order: the variant's own keys, the flags, the match."""
        keys, request = variant.spec_keys, self.request
        if "d_ff" in keys:
            if beside := sorted(SIZING_KEYS & keys.keys()):
                raise FfnbenchError(f"{variant.text!r} gives d_ff and also {beside[0]}", "d_ff is final; give one")
            return read_positive("d_ff", keys["d_ff"]), GIVEN
        if "ffn_dim_multiplier" in keys and "rule" not in keys and request.rule is None:
            raise FfnbenchError(f"ffn_dim_multiplier in {variant.text!r} needs a rule", "for example @rule=llama")
        if {"rule", "ratio"} & keys.keys():
            return self._by_rule(str(keys.get("rule", "classic")), variant)
        is_reference = variant.label == self.reference.label
        if request.d_ff is not None and (is_reference or self.match is Match.NONE):
            return read_positive("d_ff", request.d_ff), GIVEN
        gated, experts = variant.gate is not Gate.NONE, variant.spec_keys.get("moe") is not None
        if request.rule is not None and (gated or request.rule in ("classic", "palm")):
            return self._by_rule(request.rule, variant)
        if self.match is Match.NONE or (is_reference and not gated and not experts):
            return self._by_rule("classic", variant)
        target = self._classic_cost(variant, workload) if is_reference else self._matched[1]
        multiple = read_positive("multiple_of", keys.get("multiple_of", self.multiple_of))
        if variant.target:
            return self._imported_width(variant, workload, target, multiple)
        experts = experts or self.reference.spec_keys.get("moe") is not None
        what = ACTIVE_PARAMS if experts and self.match is Match.PARAMS else self.match.value
        return self._own_width(variant, workload, target, multiple), Sizing(how="matched", what=what)

    def _by_rule(self, rule: str, variant: Variant) -> tuple[int, Sizing]:
        def given(key: str, default: float | None) -> float | None:
            value = variant.spec_keys.get(key, default)
            if value is not None and not 0 < number({key: value}, key, 0, "for example 4") < 1e6:
                raise FfnbenchError(f"{key} must be a positive number, not {value!r}", "for example 4")
            return value if value is None else float(value)

        explicit = rule != "classic"  # the flags of a rule are not meant for the classic form beside it
        ratio = given("ratio", self.ratio)
        multiple = variant.spec_keys.get("multiple_of", self.request.multiple_of)
        width = width_by_rule(
            rule,
            self.d_model,
            ratio=ratio,
            multiple_of=None if multiple is None else read_positive("multiple_of", multiple),
            multiplier=given("ffn_dim_multiplier", self.request.ffn_dim_multiplier if explicit else None),
        )
        if explicit:
            return width, Sizing(how="rule", what=rule)
        up_to = read_positive("multiple_of", multiple) if multiple else None
        return width, Sizing(how="ratio", ratio=float(ratio or DEFAULT_RATIO), multiple_of=up_to)

    def _own_width(self, variant: Variant, workload: Workload, target: int, multiple: int) -> int:
        @cache
        def at(width: int) -> int:
            return self._matched_cost(self._spec(variant, width), workload, variant.arm)

        if variant.label != self.reference.label and at(self._matched[0]) == target:
            return self._matched[0]  # the same form: no rounding may come between
        if at(1) >= target:
            raise FfnbenchError(
                f"{variant.label} is larger than {self.reference.label} at any d_ff", "use --match none"
            )
        return width_for(at, target, multiple)

    def _imported_width(self, variant: Variant, workload: Workload, target: int, multiple: int) -> tuple[int, Sizing]:
        # user code may refuse odd widths, so the line is drawn through two ordinary ones
        wide = round_nearest((self.ratio or DEFAULT_RATIO) * self.d_model, multiple)
        half = round_nearest(wide / 2, multiple)
        try:
            low, high = (
                self._matched_cost(self._spec(variant, width), workload, variant.arm) for width in (half, wide)
            )
        except Unsupported:
            return self._by_rule("classic", variant)
        if low == high:
            return wide, Sizing(how="unread")
        width = round_nearest(half + (target - low) * (wide - half) / (high - low), multiple)
        return width, Sizing(how="matched", what=self.match.value)

    @cached_property
    def _matched(self) -> tuple[int, int]:
        """What the others are matched to: the reference's own width, and its cost at that."""
        workload = workload_of(self.request, self.reference)
        width, _ = self._width(self.reference, workload)
        return width, self._matched_cost(self._spec(self.reference, width), workload, self.reference.arm)

    def _classic_cost(self, variant: Variant, workload: Workload) -> int:
        """What a reference without a width is matched to, gated or of experts: the classic form with its keys."""
        plain = {k: v for k, v in variant.spec_keys.items() if k not in (*MOE_KEYS, "limit", "offset")}
        classic = replace(variant, gate=Gate.NONE, spec_keys=plain)
        width, _ = self._by_rule("classic", classic)
        return self._matched_cost(self._spec(classic, width), workload, variant.arm)

    def _matched_cost(self, spec: NetworkSpec, workload: Workload, arm: Arm) -> int:
        if isinstance(spec, ImportedSpec):
            counted = self.probe.within(arm).count(spec, workload)
            value = counted.params_active if self.match is Match.PARAMS else counted.flops_forward
        else:
            value = params_active(spec) if self.match is Match.PARAMS else flops_forward(spec)
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
            bias=flag(keys, "bias", bool(request.bias)),
            beta=None if beta is None else float(beta),
            dropout=number(keys, "dropout", self.dropout or 0.0, "it is a probability, e.g. 0.1"),
            init=choose(Init, "init", keys.get("init", request.init)),
            own=variant.own,
            moe=moe_of(keys, variant.text),
            limit=limit_of(keys),
            up_offset=number(keys, "offset", 0.0, "gpt-oss has swiglu_oai@offset=1"),
        )

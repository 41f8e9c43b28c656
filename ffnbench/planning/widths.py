"""The widths of a comparison's variants: given, by a published rule, or found by
matching the reference.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import cache, cached_property

from ffnbench.choices import Init, Match
from ffnbench.common.errors import FfnbenchError, Unsupported
from ffnbench.common.names import choose
from ffnbench.ffn.cost import flops_forward, params_active
from ffnbench.ffn.spec import (
    FFNSpec,
    Gate,
    ImportedSpec,
    NetworkSpec,
    Scalar,
    read_positive,
)
from ffnbench.ffn.width_rules import (
    DEFAULT_MULTIPLE,
    DEFAULT_RATIO,
    round_nearest,
    width_by_rule,
    width_for,
)
from ffnbench.plan import ACTIVE_PARAMS, GIVEN, Arm, Case, Probe, Sizing, Workload
from ffnbench.planning.variant_text import (
    Variant,
    boolean,
    limit_of,
    module_spec,
    moe_of,
    number,
    offset_of,
)
from ffnbench.planning.workload import workload_of
from ffnbench.request import CompareRequest

SIZING_KEYS = ("ffn_dim_multiplier", "multiple_of", "ratio", "rule")


class Sizer:
    """Finds the final widths of variants, and makes cases of them."""

    def __init__(
        self, request: CompareRequest, reference: Variant, probe: Probe
    ) -> None:
        self.request = request
        self.reference = reference
        self.probe = probe
        self.match = request.match
        self.d_model = read_positive("d_model", request.d_model)
        sized = {"d_ff", "rule", "ratio"} & self.reference.spec_keys.keys()
        if request.d_ff is not None and sized and self.match != Match.NONE:
            raise FfnbenchError(
                f"--d-ff sets the width of the reference, and {self.reference.text!r} has its own",
                "give one of the two, or put another variant first",
            )

    def case(self, variant: Variant, workload: Workload) -> Case:
        """The case of a variant with its width, and with how far the matched cost is
        from that of the reference.
        """
        width, sizing = self._width(variant, workload)
        spec = self._spec(variant, width)
        residual = None
        if self.match != Match.NONE and variant.label != self.reference.label:
            target = self._reference_cost
            with suppress(Unsupported):  # its row will say that it can't be counted
                residual = self._matched_cost(spec, workload, variant.arm) / target - 1
        return Case(
            label=variant.label,
            variant=variant.text,
            ffn=spec,
            workload=workload,
            sizing=sizing,
            residual=residual,
            arm=variant.arm,
        )

    def _width(self, variant: Variant, workload: Workload) -> tuple[int, Sizing]:
        """d_ff, and where it comes from: the keys of the variant, else the flags, else
        the match.
        """
        keys, request = variant.spec_keys, self.request
        if "d_ff" in keys:
            for key in SIZING_KEYS:
                if key in keys:
                    raise FfnbenchError(
                        f"{variant.text!r} gives d_ff and also {key}",
                        "give one of the two: d_ff is the final width",
                    )
            return read_positive("d_ff", keys["d_ff"]), GIVEN
        if "ffn_dim_multiplier" in keys and "rule" not in keys:
            raise FfnbenchError(
                f"ffn_dim_multiplier in {variant.text!r} needs a rule",
                "for example @rule=llama",
            )
        if "rule" in keys or "ratio" in keys:
            return self._by_rule(str(keys.get("rule", "classic")), variant)

        is_reference = variant.label == self.reference.label
        if request.d_ff is not None and (is_reference or self.match == Match.NONE):
            if "multiple_of" in keys:
                raise FfnbenchError(
                    f"nothing reads @multiple_of in {variant.text!r}: --d-ff is its final width",
                    "leave one of the two out",
                )
            return read_positive("d_ff", request.d_ff), GIVEN
        if self.match == Match.NONE:
            return self._by_rule("classic", variant)
        if is_reference and variant.like is not None:
            form = replace(variant.like, label=variant.label)
            return self._width(form, workload)

        experts = variant.spec_keys.get("moe") is not None
        if not is_reference:
            target = self._reference_cost
        elif variant.gate is not Gate.NONE or experts:
            target = self._classic_cost(variant, workload)
        else:
            return self._by_rule("classic", variant)
        multiple = read_positive(
            "multiple_of", keys.get("multiple_of", DEFAULT_MULTIPLE)
        )
        if variant.target:
            return self._imported_width(variant, workload, target, multiple)
        what: str = self.match
        if self.match == Match.PARAMS and (
            experts or self.reference.spec_keys.get("moe") is not None
        ):
            what = ACTIVE_PARAMS
        return self._own_width(variant, workload, target, multiple), Sizing(
            how="matched", what=what
        )

    def _by_rule(self, rule: str, variant: Variant) -> tuple[int, Sizing]:
        """d_ff by a rule, whose arguments are the keys of the variant, and where it
        comes from.
        """
        keys = variant.spec_keys
        multiple = keys.get("multiple_of")
        if multiple is not None:
            multiple = read_positive("multiple_of", multiple)
        ratio = _positive("ratio", keys.get("ratio"))
        multiplier = _positive("ffn_dim_multiplier", keys.get("ffn_dim_multiplier"))
        width = width_by_rule(
            rule, self.d_model, ratio=ratio, multiple_of=multiple, multiplier=multiplier
        )
        if rule != "classic":
            return width, Sizing(how="rule", what=rule)
        return width, Sizing(
            how="ratio", ratio=ratio or DEFAULT_RATIO, multiple_of=multiple
        )

    def _own_width(
        self, variant: Variant, workload: Workload, target: int, multiple: int
    ) -> int:
        """The d_ff, a multiple of `multiple`, at which the cost of one of ffnbench's
        forms is nearest to `target`.
        """

        @cache
        def cost_at(width: int) -> int:
            return self._matched_cost(self._spec(variant, width), workload, variant.arm)

        is_free = "multiple_of" not in variant.spec_keys
        if is_free and variant.label != self.reference.label:
            width = self._reference_width
            if cost_at(width) == target:
                return width  # the form of the reference has its width, unrounded
        if cost_at(1) >= target:
            raise FfnbenchError(
                f"{variant.label} is larger than {self.reference.label} at any d_ff",
                "use --match none",
            )
        return width_for(cost_at, target, multiple)

    def _imported_width(
        self, variant: Variant, workload: Workload, target: int, multiple: int
    ) -> tuple[int, Sizing]:
        """The d_ff at which code of the user's costs about `target`, and where it comes
        from. The code may refuse odd widths, so its cost is counted at two ordinary
        ones, and a line is drawn through these.
        """
        wide = round_nearest(DEFAULT_RATIO * self.d_model, multiple)
        half = round_nearest(wide / 2, multiple)
        try:
            low = self._matched_cost(self._spec(variant, half), workload, variant.arm)
            high = self._matched_cost(self._spec(variant, wide), workload, variant.arm)
        except Unsupported:
            return self._by_rule("classic", variant)
        if low == high:
            return wide, Sizing(how="unread")
        width = round_nearest(
            half + (target - low) * (wide - half) / (high - low), multiple
        )
        return width, Sizing(how="matched", what=self.match)

    @cached_property
    def _reference_width(self) -> int:
        """The d_ff of the reference."""
        workload = workload_of(self.request, self.reference)
        width, _ = self._width(self.reference, workload)
        return width

    @cached_property
    def _reference_cost(self) -> int:
        """The cost of the reference, to which the others are matched."""
        spec = self._spec(self.reference, self._reference_width)
        workload = workload_of(self.request, self.reference)
        return self._matched_cost(spec, workload, self.reference.arm)

    def _classic_cost(self, variant: Variant, workload: Workload) -> int:
        """The cost to which a gated reference, or one of experts, is matched where it
        has no width itself: that of the classic form with its other keys.
        """
        classic = replace(variant, gate=Gate.NONE)
        if variant.spec_keys:
            from ffnbench.planning.keys import MOE_KEYS

            others = (*MOE_KEYS, "limit", "offset")
            keys = {
                key: value
                for key, value in variant.spec_keys.items()
                if key not in others
            }
            classic = replace(classic, spec_keys=keys)
        width, _ = self._by_rule("classic", classic)
        return self._matched_cost(self._spec(classic, width), workload, variant.arm)

    def _matched_cost(self, spec: NetworkSpec, workload: Workload, arm: Arm) -> int:
        """The cost of a network that is matched: the parameters that a token meets, or
        the FLOPs of a forward. Raises FfnbenchError where it is not known.
        """
        on_params = self.match == Match.PARAMS
        if isinstance(spec, ImportedSpec):
            name = spec.target
            counted = self.probe.within(arm).count(spec, workload)
            value = counted.params_active if on_params else counted.flops_forward
        else:
            name = spec.name
            value = params_active(spec) if on_params else flops_forward(spec)
        if not value:
            raise FfnbenchError(
                f"{name} has no {self.match} that can be counted to match",
                "use --match none",
            )
        return value

    def _spec(self, variant: Variant, width: int) -> NetworkSpec:
        """The network of a variant at a width."""
        if variant.target:
            return module_spec(variant, self.d_model, width)
        keys = variant.spec_keys
        beta = keys.get("beta")
        return FFNSpec(
            d_model=self.d_model,
            d_ff=width,
            activation=variant.activation,
            gate=variant.gate,
            bias=boolean(keys, "bias", bool(self.request.bias)),
            beta=None if beta is None else float(beta),
            dropout=number(keys, "dropout", 0.0, "it is a probability, e.g. 0.1"),
            init=choose(Init, "init", keys.get("init", Init.TORCH)),
            own=variant.own,
            moe=moe_of(keys, variant.text),
            limit=limit_of(keys),
            up_offset=offset_of(keys),
        )


def _positive(key: str, value: Scalar) -> float | None:
    """The value of a key of a rule, None where it is not given; raises FfnbenchError
    for what is no positive number.
    """
    if value is None:
        return None
    size = number({key: value}, key, 0, "for example 4")
    if not 0 < size < 1e6:
        raise FfnbenchError(
            f"{key} must be a positive number, not {value!r}", "for example 4"
        )
    return size

"""The widths of a group's variants: given, by a published rule, or found by matching
the reference.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

from ffnbench.common.choices import Match
from ffnbench.common.errors import FfnbenchError, Unsupported
from ffnbench.ffn.cost import flops_forward, params_active
from ffnbench.ffn.spec import FFNSpec, Gate, ImportedSpec, NetworkSpec
from ffnbench.ffn.width_rules import (
    DEFAULT_MULTIPLE,
    DEFAULT_RATIO,
    round_nearest,
    width_by_rule,
)
from ffnbench.plan.plan import ACTIVE_PARAMS, GIVEN, Probe, SizedBy, Sizing, Workload
from ffnbench.plan.variants import Variant

SIZING_KEYS = ("ffn_dim_multiplier", "multiple_of", "ratio", "rule")


@dataclass(frozen=True, slots=True)
class Sized:
    """A variant with its width: where that comes from, and how far its cost is from
    that of the reference, where the two are matched; 0.002 is 0.2 % above.
    """

    ffn: NetworkSpec
    sizing: Sizing
    residual: float | None = None


@dataclass(frozen=True, kw_only=True)
class Sizer:
    """Finds the widths of the variants of one group.

    `d_ff` is the width that --d-ff gives, and `bias` whether linear layers have biases
    where a variant does not say so: as the model beside it. `work` is the workload of
    the reference.
    """

    d_model: int
    d_ff: int | None
    bias: bool
    match: Match
    reference: Variant
    work: Workload
    probe: Probe

    def sized(self, variant: Variant, work: Workload) -> Sized:
        """A variant with its width."""
        width, sizing = self._width(variant, work)
        spec = self._spec(variant, width)
        if self.match is Match.NONE or variant.label == self.reference.label:
            return Sized(spec, sizing)
        with suppress(Unsupported):  # its row will say that it can't be counted
            residual = self._cost(variant, width, work) / self._reference_cost - 1
            return Sized(spec, sizing, residual)
        return Sized(spec, sizing)

    def _width(self, variant: Variant, work: Workload) -> tuple[int, Sizing]:
        """d_ff, and where it comes from: the keys of the variant, else the flags, else
        the match.
        """
        keys = variant.keys
        is_reference = variant.label == self.reference.label
        for key in SIZING_KEYS:
            if key in keys and "d_ff" in keys:
                raise FfnbenchError(
                    f"{variant.text!r} gives d_ff and also {key}",
                    "give one of the two: d_ff is the final width",
                )
        own_width = {"d_ff", "rule", "ratio"} & keys.keys()
        if is_reference and own_width and self.d_ff and self.match is not Match.NONE:
            raise FfnbenchError(
                f"--d-ff sets the width of the reference, and {variant.text!r} has its own",
                "give one of the two, or put another variant first",
            )
        if "d_ff" in keys:
            return keys["d_ff"], GIVEN
        if "rule" in keys or "ratio" in keys:
            return self._by_rule(keys.get("rule", "classic"), variant)
        if "ffn_dim_multiplier" in keys:
            raise FfnbenchError(
                f"ffn_dim_multiplier in {variant.text!r} needs a rule",
                "for example @rule=llama",
            )
        if self.d_ff is not None and (is_reference or self.match is Match.NONE):
            if "multiple_of" in keys:
                raise FfnbenchError(
                    f"nothing reads @multiple_of in {variant.text!r}: --d-ff is its final width",
                    "leave one of the two out",
                )
            return self.d_ff, GIVEN
        if self.match is Match.NONE:
            return self._by_rule("classic", variant)
        if not is_reference:
            return self._matched(variant, work, self._reference_cost)
        form = variant.form or variant.like
        if form is None or (form.gate is Gate.NONE and form.moe is None):
            return self._by_rule("classic", variant)
        variant = replace(variant, form=form)
        return self._matched(variant, work, self._classic_cost(variant, form, work))

    def _by_rule(self, rule: str, variant: Variant) -> tuple[int, Sizing]:
        """d_ff by a rule, whose arguments are the keys of the variant."""
        keys = variant.keys
        width = width_by_rule(
            rule,
            self.d_model,
            ratio=keys.get("ratio"),
            multiple_of=keys.get("multiple_of"),
            multiplier=keys.get("ffn_dim_multiplier"),
        )
        if rule != "classic":
            return width, Sizing(how=SizedBy.RULE, what=rule)
        return width, Sizing(
            how=SizedBy.RATIO,
            ratio=keys.get("ratio", DEFAULT_RATIO),
            multiple_of=keys.get("multiple_of"),
        )

    def _matched(
        self, variant: Variant, work: Workload, target: int
    ) -> tuple[int, Sizing]:
        """The d_ff at which a variant costs about `target`. Its cost is a line in d_ff,
        which two ordinary widths fix: code of the user's may refuse odd ones.
        """
        is_free = "multiple_of" not in variant.keys
        multiple = variant.keys.get("multiple_of", DEFAULT_MULTIPLE)
        wide = round_nearest(DEFAULT_RATIO * self.d_model, multiple)
        half = round_nearest(wide / 2, multiple)
        if half == wide:
            half = wide + multiple
        try:
            low = self._cost(variant, half, work)
            slope = (self._cost(variant, wide, work) - low) / (wide - half)
        except Unsupported:
            return self._by_rule("classic", variant)
        if not slope:
            return wide, Sizing(how=SizedBy.UNREAD)
        exact = half + (target - low) / slope
        if exact <= 0:
            raise FfnbenchError(
                f"{variant.label} is larger than {self.reference.label} at any d_ff",
                "use --match none",
            )
        width = round_nearest(exact, multiple)
        if is_free and variant.label != self.reference.label:
            same = self._reference_width
            if not variant.target and self._cost(variant, same, work) == target:
                width = same  # that of the reference, unrounded
        what: str = self.match
        if self.match is Match.PARAMS and (variant.moe or self.reference.moe):
            what = ACTIVE_PARAMS
        return width, Sizing(how=SizedBy.MATCHED, what=what)

    @cached_property
    def _reference_width(self) -> int:
        return self._width(self.reference, self.work)[0]

    @cached_property
    def _reference_cost(self) -> int:
        return self._cost(self.reference, self._reference_width, self.work)

    def _classic_cost(self, variant: Variant, form: FFNSpec, work: Workload) -> int:
        """The cost to which a gated reference, or one of experts, is matched where it
        has no width itself: that of the classic form with its other keys.
        """
        form = replace(form, gate=Gate.NONE, moe=None, up=None, subnorm=None)
        classic = replace(variant, form=form)
        width, _ = self._by_rule("classic", classic)
        return self._cost(classic, width, work)

    def _cost(self, variant: Variant, width: int, work: Workload) -> int:
        """What is matched of a variant at a width: the parameters that a token meets,
        or the FLOPs of a forward. Raises FfnbenchError where it is not known.
        """
        spec = self._spec(variant, width)
        on_params = self.match is Match.PARAMS
        if isinstance(spec, ImportedSpec):
            name = spec.target
            counted = self.probe.count(spec, work)
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
        d_model, form, like = self.d_model, variant.form, variant.like
        if form is not None:
            bias = variant.keys.get("bias", self.bias)
            return replace(form, d_model=d_model, d_ff=width, bias=bias)
        if like is not None:
            like = replace(like, d_model=d_model, d_ff=width)
        return ImportedSpec(
            target=variant.target,
            d_model=d_model,
            d_ff=width,
            arguments=variant.arguments,
            like=like,
        )

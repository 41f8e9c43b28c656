"""Two sides of one variant: the flags of `ab` -> what each side is, and one plan with a case of each. Pure.

Base and head are two cases of one plan, each in a process of its own, so that they are measured in the same rounds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ffnbench.common.errors import FfnbenchError
from ffnbench.ffn.width_rules import Match
from ffnbench.plan import CONTROL, OWN, Arm, Kind, Plan, Probe, Protocol
from ffnbench.planning.compare import as_compare, plan_compare
from ffnbench.planning.effort import check_seed, check_timeout
from ffnbench.planning.variant_text import Variant, parse_variants
from ffnbench.request import SidesRequest

BASE, HEAD = "base", "head"


@dataclass(frozen=True, slots=True, kw_only=True)
class SideFlags:
    """One side as its flags say; None is as this process has it, and for head's code the working tree."""

    rev: str | None = None
    source: str | None = None
    python: str | None = None
    env: tuple[str, ...] = ()

    @property
    def of_code(self) -> bool:
        """Whether it says where the code is."""
        return self.rev is not None or self.source is not None


def sides_asked(request: SidesRequest, variant: Variant) -> dict[str, SideFlags]:
    """What was asked of base and of head; raises FfnbenchError where they are the same, or contradict themselves."""
    asked = {
        BASE: SideFlags(
            rev=request.base_rev, source=request.base_source, python=request.base_python, env=request.base_env
        ),
        HEAD: SideFlags(rev=request.head_rev),
    }
    if asked[BASE] == asked[HEAD]:
        raise FfnbenchError("base and head are the same", "say what base is: --base-rev REV, --base-python PATH, ...")
    if request.base_rev is not None and request.base_source is not None:
        raise FfnbenchError("--base-rev and --base-source both say where the code is", "give one of the two")
    for side in asked.values():
        if side.of_code and not variant.target:
            raise FfnbenchError(
                f"{variant.text!r} is ffnbench's own and in no revision of yours",
                "name your code: package.module:Attr or path/to/file.py:Attr",
            )
    return asked


def variant_of_sides(request: SidesRequest) -> Variant:
    """The one variant that both sides are of."""
    variants = parse_variants(request.variant)
    if len(variants) > 1:
        raise FfnbenchError(f"ab measures one variant, not {len(variants)}", "`ffnbench compare` measures several")
    variant = variants[0]
    if variant.arm != OWN:
        raise FfnbenchError(f"the two sides are not told by {variant.arm}", "use --base-python, --base-env, ...")
    if variant.label in (BASE, CONTROL):
        raise FfnbenchError(f"{variant.label!r} is what the other side is called", "give the variant another label")
    check_timeout(request.timeout)
    check_seed(request.seed)
    plan_compare(as_compare(request, variants="swiglu", metrics="latency", budget=None))  # mistakes in flags, first
    return variant


def plan_sides(request: SidesRequest, arms: tuple[Arm, Arm], probes: tuple[Probe, Probe]) -> Plan:
    """A case of base and one of head, of the same width, each on its arm and looked at there by its probe."""
    variant = variant_of_sides(request)
    metrics = "memory" if request.exact_only else "latency,memory"
    asked = as_compare(request, variants=variant.text, metrics=metrics, budget=None)
    base = replace(plan_compare(asked, probes[0]).cases[0], label=BASE, arm=arms[0])
    of_head = replace(asked, d_ff=base.ffn.d_ff, match=Match.NONE)
    head = replace(base, label=variant.label, ffn=plan_compare(of_head, probes[1]).cases[0].ffn, arm=arms[1])
    return Plan(
        kind=Kind.SIDES,
        cases=(base, head),
        reference=BASE,
        protocol=Protocol(seed=request.seed, timeout_s=request.timeout),
        metrics=tuple(metrics.split(",")),
    )

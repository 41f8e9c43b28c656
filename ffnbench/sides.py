"""What is known of the arms of a run: where they differ, and whether they compute the same function. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ffnbench.arm import Arm

NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One arm of a run: its cases, and those facts (name, value) that not all arms share."""

    name: str
    cases: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Outputs of base and head on one input with the base's weights: relative errors (Frobenius), unknown is None.

    `error` is head against base in the case's dtype, `exact_error` the same with both run in float64, `base_error` and
    `head_error` each against its own run in float64. `apart` says why the weights could not be carried over, and then
    each side has its own of the same seed. `tolerance` is what rounding explains.
    """

    error: float | None
    tolerance: float
    exact_error: float | None = None
    base_error: float | None = None
    head_error: float | None = None
    apart: str = ""


def sides_of(told: Sequence[tuple[Arm, tuple[str, ...], dict[str, str]]]) -> tuple[Side, ...]:
    """Of each arm its cases and what its worker told: kept is what differs."""
    facts = [_own(arm) | said for arm, _, said in told]
    names = dict.fromkeys(name for found in facts for name in found)
    differ = [name for name in names if len({found.get(name, NONE) for found in facts}) > 1]
    return tuple(
        Side(
            name=arm.name or ", ".join(cases),
            cases=cases,
            facts=tuple((name, found.get(name, NONE)) for name in differ),
        )
        for (arm, cases, _), found in zip(told, facts, strict=True)
    )


def _own(arm: Arm) -> dict[str, str]:
    """What the arm itself says; a name tells its source better than a path."""
    source = {"source": arm.source} if arm.source and not arm.name else {}
    return {"interpreter": arm.python or "ffnbench's own"} | source | dict(arm.env)

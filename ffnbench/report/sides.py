"""Where the arms of a run differ, in words: one line a fact."""

from __future__ import annotations

from collections.abc import Sequence

from ffnbench.sides import Side

LONGEST = 44


def side_lines(sides: Sequence[Side]) -> list[str]:
    """`torch: 2.12.0+cpu (base), 2.13.0+cpu (head)` for everything that is not the same on all sides."""
    facts = [(name, [dict(side.facts)[name] for side in sides]) for name, _ in (sides[0].facts if sides else ())]
    return [f"{name}: {_told(sides, values)}" for name, values in facts]


def _told(sides: Sequence[Side], values: list[str]) -> str:
    """Each value with the sides that have it; long ones are told to differ, not how."""
    if max(map(len, values)) > LONGEST:
        values = [_cut(value, values) for value in values]
    groups: dict[str, list[str]] = {}
    for side, value in zip(sides, values, strict=True):
        groups.setdefault(value, []).append(side.name)
    return ", ".join(f"{value} ({', '.join(names)})" for value, names in groups.items())


def _cut(value: str, others: list[str]) -> str:
    """The part of a long value where it leaves the others."""
    same = next(i for i in range(len(value) + 1) if len({other[: i + 1] for other in others}) > 1)
    start = max(0, same - LONGEST // 4)
    part = value[start : start + LONGEST]
    return "…" * bool(start) + part + "…" * (start + LONGEST < len(value))

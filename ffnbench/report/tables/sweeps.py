"""What the times of a sweep say along its axis, in one sentence: where variants cross."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ffnbench.plan import Group
from ffnbench.report.tables.groups import heading
from ffnbench.report.tables.words import interval_text, listed
from ffnbench.result import Crossing, Crossings, Report

TEN = 10.0  # from here on places have no decimals
MOST = 3  # parts of the sentence
EXACTLY = 2  # places that are told each with its interval


def sweep_line(report: Report) -> list[str]:
    """`swiglu becomes slower than relu at seq_len 37 [30, 45]`; nothing where no crossing was found."""
    crossings = report.figures.crossings
    if crossings is None or not crossings.places:
        return []
    alike: dict[tuple[str, str, bool], list[Crossing]] = {}
    for crossing in crossings.places:
        alike.setdefault((crossing.variant, crossing.than, crossing.slower), []).append(crossing)
    parts = []
    for (variant, than, slower), places in alike.items():
        change = "slower" if slower else "faster"
        parts.append(f"{variant} becomes {change} than {than} at {_at(crossings, places)}")
    if len(parts) > MOST:
        parts[MOST:] = [f"{len(parts) - MOST} more in the picture"]
    return ["; ".join(parts)]


def _at(crossings: Crossings, places: Sequence[Crossing]) -> str:
    """`seq_len 37 [30, 45]`; of many the span, and for how many values of the other axes."""
    axis = crossings.axis.name
    if len(places) <= EXACTLY:
        return f"{axis} " + listed(interval_text(place.at) + _held(place.within) for place in places)
    ends = [end for place in places for end in (place.at.low, place.at.high) if end]
    span = " to ".join(f"{end:,.{0 if end >= TEN else 1}f}" for end in (min(ends), max(ends)))
    return f"{axis} {span}, for {len(places)} of {crossings.lines} values of {listed(places[0].within)}"


def _held(within: Mapping[str, Any]) -> str:
    """` (d_model 512)`; empty where there is no other axis."""
    return f" ({heading(Group(reference='', cases=(), values=within))})" if within else ""

"""What the times of a sweep say along its axis, in one sentence: crossings, cliffs, the end of the flat part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeVar

from ffnbench.plan import Group
from ffnbench.report.tables.groups import heading
from ffnbench.report.tables.words import interval_text, listed
from ffnbench.result import Report
from ffnbench.stats.curves import Cliff, Crossing, Findings, Knee, findings
from ffnbench.units import digits

TEN = 10.0  # from here on places have no decimals
MOST = 3  # parts of the sentence
EXACTLY = 2  # places that are told each with its interval
F = TypeVar("F", Crossing, Cliff, Knee)


def sweep_line(report: Report) -> list[str]:
    """`swiglu becomes slower than relu at seq_len 37 [30, 45]`; nothing where nothing of the kind was found."""
    found = findings(report)
    if found is None:
        return []
    told = [
        f"{of[0].variant} becomes {'slower' if of[0].slower else 'faster'} than {of[0].than} at {_at(found, of)}"
        for of in _alike(found.crossings, "variant", "than", "slower")
    ]
    told += [_cliffs(found.axis.name, of) for of in _alike(found.cliffs, "variant")]
    told += [
        f"the time of {of[0].variant}{_flat(found, of)} begins to rise at {_at(found, of)}"
        for of in _alike(found.knees, "variant")
    ]
    more = [f"{len(told) - MOST} more in the picture"] * (len(told) > MOST)
    return ["; ".join([*told[:MOST], *more])] if told else []


def _alike(places: Sequence[F], *names: str) -> Iterable[list[F]]:
    """What has the same in these attributes, together."""
    found: dict[Any, list[F]] = {}
    for place in places:
        found.setdefault(attrgetter(*names)(place), []).append(place)
    return found.values()


def _at(found: Findings, places: Sequence[Crossing | Knee]) -> str:
    """`seq_len 37 [30, 45]`; of many the span, and for how many values of the other axes."""
    if len(places) <= EXACTLY:
        return f"{found.axis.name} " + listed(interval_text(one.at) + _held(one.within) for one in places)
    ends = [end for one in places for end in (one.at.low, one.at.high) if end]
    span = " to ".join(f"{end:,.{0 if end >= TEN else 1}f}" for end in (min(ends), max(ends)))
    return f"{found.axis.name} {span}, for {len(places)} of {found.lines} values of {listed(places[0].within)}"


def _held(within: Mapping[str, Any]) -> str:
    """` (d_model 512)`; empty where there is no other axis."""
    return f" ({heading(Group(reference='', cases=(), values=within))})" if within else ""


def _flat(found: Findings, knees: Sequence[Knee]) -> str:
    """`, flat from seq_len 2 on,`; empty where it is from the axis's start."""
    since = max(knee.since for knee in knees)
    return f", flat from {found.axis.name} {since:,.0f} on," * (since > found.axis.values[0] * 1.001)


def divided(cliffs: Sequence[Cliff], axis: str) -> str:
    """`8 does not divide d_ff`."""
    how = (f"{one.multiple:,} {'divides' if one.divides else 'does not divide'}" for one in cliffs)
    return f"{listed(dict.fromkeys(how))} {axis}"


def _cliffs(axis: str, cliffs: Sequence[Cliff]) -> str:
    """`takes 1.05 [1.03, 1.07] times as long per FLOP where 8 does not divide d_ff`; of many the span."""
    ends = [end for cliff in cliffs for end in (cliff.times.low, cliff.times.high) if end]
    times = interval_text(cliffs[0].times) if len(cliffs) == 1 else f"{digits(min(ends))} to {digits(max(ends))}"
    held = _held(cliffs[0].within) * (len(cliffs) == 1)
    return f"{cliffs[0].variant} takes {times} times as long per FLOP where {divided(cliffs, axis)}{held}"

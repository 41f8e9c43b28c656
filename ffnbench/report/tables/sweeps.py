"""What the times of a sweep say along its axis, in one sentence: crossings, cliffs, the end of the flat part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ffnbench.plan import Group
from ffnbench.report.tables.groups import heading
from ffnbench.report.tables.words import interval_text, listed
from ffnbench.result import Report
from ffnbench.stats.curves import Cliff, Crossing, Findings, Knee, findings
from ffnbench.units import digits

TEN = 10.0  # from here on places have no decimals
MOST = 3  # parts of the sentence, and values of a part
EXACTLY = 2  # places that are told each with its interval


def sweep_line(report: Report) -> list[str]:
    """`swiglu becomes slower than relu at seq_len 37 [30, 45]`; nothing where nothing of the kind was found."""
    found = findings(report)
    if found is None:
        return []
    crossings: dict[tuple[str, str], list[Crossing]] = {}
    knees: dict[str, list[Knee]] = {}
    cliffs: dict[str, list[Cliff]] = {}
    for crossing in found.crossings:
        how = f"becomes {'slower' if crossing.slower else 'faster'} than {crossing.than}"
        crossings.setdefault((crossing.variant, how), []).append(crossing)
    for knee in found.knees:
        knees.setdefault(knee.variant, []).append(knee)
    for cliff in found.cliffs:
        cliffs.setdefault(cliff.variant, []).append(cliff)
    told = [f"{variant} {how} at {_at(found, of)}" for (variant, how), of in crossings.items()]
    told += [_cliffs(found.axis.name, variant, of) for variant, of in cliffs.items()]
    told += [f"the time of {variant} begins to rise at {_at(found, of)}" for variant, of in knees.items()]
    more = [f"{len(told) - MOST} more in the picture"] * (len(told) > MOST)
    return ["; ".join([*told[:MOST], *more])] if told else []


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


def _cliffs(axis: str, variant: str, cliffs: list[Cliff]) -> str:
    values = list(dict.fromkeys(f"{value:,g}" for cliff in cliffs for value in cliff.values))
    ends = [end for cliff in cliffs for end in (cliff.times.low, cliff.times.high) if end]
    times = " to ".join(dict.fromkeys((digits(min(ends)), digits(max(ends)))))
    shown = listed([*values[:MOST], f"{len(values) - MOST} more"] if len(values) > MOST + 1 else values)
    return f"{variant} takes {times} times as long per FLOP at {axis} {shown} as on both sides"

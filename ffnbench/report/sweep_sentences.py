"""Sentences on several groups of rows: where curves cross, and which rows are fast for
their error.
"""

from __future__ import annotations

from collections.abc import Sequence

from ffnbench.common.units import digits
from ffnbench.plan.metrics import ERROR
from ffnbench.record.result import Crossing, Crossings, Report, TradeOff
from ffnbench.report.header import heading_of
from ffnbench.report.words import error_text, interval_text, join_words, way_text

MOST_CROSSINGS = 3  # pairs of variants whose crossings are told
MOST_INTERVALS = 2  # places of a crossing that are told each with its interval


def sweep_line(report: Report) -> list[str]:
    """`swiglu becomes slower than relu at seq_len 37 [30, 45]`; no line where no
    crossing was found.
    """
    crossings = report.figures.crossings
    if crossings is None or not crossings.places:
        return []
    places_of: dict[str, list[Crossing]] = {}
    for crossing in crossings.places:
        change = "slower" if crossing.slower else "faster"
        clause = f"{crossing.variant} becomes {change} than {crossing.than}"
        places_of.setdefault(clause, []).append(crossing)
    parts = [
        f"{clause} at {_place_text(crossings, places)}"
        for clause, places in places_of.items()
    ]
    more = len(parts) - MOST_CROSSINGS
    if more > 0:
        parts[MOST_CROSSINGS:] = [f"{more} more in the picture"]
    return ["; ".join(parts)]


def _place_text(crossings: Crossings, places: Sequence[Crossing]) -> str:
    """Where two variants cross: `seq_len 37 [30, 45]`; of many places the span, and for
    how many values of the other axes.
    """
    axis = crossings.axis.name
    if len(places) <= MOST_INTERVALS:
        return f"{axis} {join_words(map(_one_place_text, places))}"
    values = [place.at.value for place in places]
    span = f"{axis} {digits(min(values))} to {digits(max(values))}"
    others = join_words(places[0].within)
    return f"{span}, for {len(places)} of {crossings.lines} values of {others}"


def _one_place_text(place: Crossing) -> str:
    """`37 [30, 45]`; `37 [30, 45] (d_model 512)` where there is another axis."""
    text = interval_text(place.at)
    return f"{text} ({heading_of(place.within)})" if place.within else text


def trade_off_line(report: Report) -> list[str]:
    """`at seq_len 1 int4 by ort is 4.1 [3.9, 4.3] times as fast as eager, with an error
    of 0.12, and int8 by eager 3.1 [3.0, 3.2] times with one of 0.007`, for each group.
    """
    texts = [
        _trade_off_text(report, trade_off) for trade_off in report.figures.trade_offs
    ]
    return ["; ".join(texts)] if texts else []


def _trade_off_text(report: Report, trade_off: TradeOff) -> str:
    point = report.plan.case(trade_off.reference).point
    where = f"at {heading_of(dict(point))} " if point else ""
    fastest, exact = trade_off.fastest, trade_off.fastest_of_small_error
    if fastest == trade_off.reference:
        return f"{where}no row is clearly faster than {_way_text(report, fastest)}"
    text = f"{where}{_way_text(report, fastest)} is {_speed_text(report, fastest)} times as fast as "
    text += f"{_way_text(report, trade_off.reference)}, with an error of {_error_text(report, fastest)}"
    if exact is None or exact in (fastest, trade_off.reference):
        return text
    other = f"{_way_text(report, exact)} {_speed_text(report, exact)} times"
    return f"{text}, and {other} with one of {_error_text(report, exact)}"


def _way_text(report: Report, label: str) -> str:
    """How a case is run; with the name of its variant before it where rows are of
    several variants.
    """
    case = report.plan.case(label)
    text = way_text(case.workload)
    variants = {other.variant.partition("@")[0] for other in report.plan.shown}
    if len(variants) == 1:
        return text
    return f"{case.variant.partition('@')[0]} {text}"


def _speed_text(report: Report, label: str) -> str:
    """How many times as fast as its reference a case is: `4.1 [3.9, 4.3]`."""
    comparison = report.comparison(label)
    if comparison is None or comparison.ratio is None:
        return "?"
    return interval_text(comparison.ratio.inverse())


def _error_text(report: Report, label: str) -> str:
    return error_text(report.value(label, ERROR) or 0.0)

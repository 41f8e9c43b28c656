"""How data reads: an estimate with the digits that its interval supports, the origin of
a width, how sides differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ffnbench.common.choices import DEFAULT_MODE, Weights
from ffnbench.common.units import decimals, digits, percent, supported
from ffnbench.plan.plan import Workload
from ffnbench.record.result import (
    CONFIDENCE,
    SAME_WITHIN,
    Estimate,
    FailureKind,
    Verdict,
)

WITHIN = f"{100 * SAME_WITHIN:g}%"
CERTAIN = f"[{100 * CONFIDENCE:g}%]"  # the unit of a column with intervals
INTERVALS = f"[ ] and ± are {100 * CONFIDENCE:g}% intervals over processes"
VERDICTS = {verdict: str(verdict) for verdict in Verdict} | {
    Verdict.UNCLEAR: "can't tell"
}
FAILED = {FailureKind.OOM: "out of memory", FailureKind.TIMEOUT: "timed out"}
BUSY_WORD = VERDICTS[Verdict.BUSY]
VERDICT_STYLES = {
    "slower": "red",
    "faster": "green",
    "unclear": "yellow",
    "busy": "yellow",
}
SEEN = "~"  # marks a value that was seen, and has no interval
# the relative half-width above which an interval is written in two digits
WIDEST_INTERVAL = 1.0
TENFOLD = 10.0
SMALLEST_OF_TWO_DIGITS = 1e-3  # of an error


def verdict_word(row: Mapping[str, Any]) -> str | None:
    """The verdict of a row in words; of a row that failed, why; None where there is
    neither.
    """
    if failure := row["failure"]:
        kind = FailureKind(failure.partition(":")[0])
        return FAILED.get(kind, kind)
    verdict = row["verdict"]
    return None if verdict is None else VERDICTS[Verdict(verdict)]


def verdict_style(row: Mapping[str, Any]) -> str:
    """The colour of a verdict; a failure is red."""
    if row["failure"]:
        return "red"
    return VERDICT_STYLES.get(row["verdict"] or "", "")


def seconds_text(estimate: Estimate) -> str:
    """`24.5` in the digits that its interval supports, but at least three: the ratio
    beside it is known better than the seconds are. `~24` where it has no interval.
    """
    value, spread = estimate.value, estimate.half_width
    if spread is None:
        return f"{SEEN}{digits(float(f'{value:.1e}'), 2)}"
    return supported(value, spread * value, least=3, most=4)


def interval_text(ratio: Estimate) -> str:
    """`1.12 [1.10, 1.14]`, in more decimals where these would read as another verdict;
    `~1.12` where it has no interval.
    """
    if ratio.low is None or ratio.high is None:
        return f"{SEEN}{digits(ratio.value)}"
    ends = ratio.value, ratio.low, ratio.high
    if (ratio.half_width or 0.0) > WIDEST_INTERVAL:
        value, low, high = (digits(end, 2) for end in ends)
        return f"{value} [{low}, {high}]"
    half = (ratio.high - ratio.low) / 2
    value, low, high = (supported(end, half, most=4) for end in ends)
    position = _position(ratio.low, ratio.high)
    for places in range(2, 7):
        shown_low, shown_high = (float(end.replace(",", "")) for end in (low, high))
        if _position(shown_low, shown_high) == position:
            break
        low, high = f"{ratio.low:.{places}f}", f"{ratio.high:.{places}f}"
    return f"{value} [{low}, {high}]"


def _position(low: float, high: float) -> tuple[bool, bool, bool]:
    """Whether an interval lies above 1, below 1, and within SAME_WITHIN of 1."""
    return low > 1, high < 1, low >= 1 - SAME_WITHIN and high <= 1 + SAME_WITHIN


def share_text(share: Estimate) -> str:
    """`87.3 [86.1, 88.4]`, in percent; `~87` where it has no interval."""
    if share.low is None or share.high is None:
        return f"{SEEN}{100 * share.value:.0f}"
    value, low, high = _in_percent(share.value, share.low, share.high)
    return f"{value} [{low}, {high}]"


def percents_text(ratio: Estimate) -> str:
    """How far a ratio is from 1, without a sign: `10% [9.8, 11]`."""
    if ratio.low is None or ratio.high is None:
        return percent(ratio.value - 1)
    value, *ends = _in_percent(ratio.value - 1, ratio.low - 1, ratio.high - 1)
    return f"{value}% [{', '.join(sorted(ends, key=float))}]"


def _in_percent(value: float, low: float, high: float) -> list[str]:
    """A value and the ends of its interval in percent, without signs, with the decimals
    that the interval supports.
    """
    places = min(2, decimals(50 * (high - low)))
    return [f"{100 * abs(end):.{places}f}" for end in (value, low, high)]


def backend_text(work: Workload) -> str:
    """`eager`; `compile (max-autotune, frozen)`: the backend, with the options of
    compiling that are not the default.
    """
    details = [work.compile] if work.compile != DEFAULT_MODE else []
    details += ["frozen"] if work.freeze else []
    return f"{work.backend} ({', '.join(details)})" if details else work.backend


def way_text(work: Workload) -> str:
    """How the network is run: `int4 by ort`, weight format and backend; `ort` for
    weights as they are.
    """
    if work.weights == Weights.NONE:
        return backend_text(work)
    return f"{work.weights} by {backend_text(work)}"


def device_text(work: Workload) -> str:
    """`cuda`; `CPU x2` for two threads of a CPU."""
    if work.device == "cpu":
        return f"CPU x{work.threads}"
    return work.device


def error_text(error: float) -> str:
    """`8e-7`: an error of rounding means no more than one digit; `0.014`: two digits of
    a larger one, such as that of weights in few bits.
    """
    if not error:
        return "0"
    if error >= SMALLEST_OF_TWO_DIGITS:
        return f"{error:.2g}"
    mantissa, _, exponent = f"{error:.0e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def join_words(names: Iterable[str]) -> str:
    """`a, b and c`, each once."""
    unique = list(dict.fromkeys(names))
    if len(unique) < 2:
        return "".join(unique)
    return f"{', '.join(unique[:-1])} and {unique[-1]}"


def labelled(notes: Iterable[tuple[str, str]]) -> list[str]:
    """Pairs of a label and a text as lines, one for each text: `gelu, silu: text`."""
    labels_of: dict[str, list[str]] = {}
    for label, text in notes:
        labels_of.setdefault(text, []).append(label)
    return [
        f"{', '.join(dict.fromkeys(labels))}: {text}"
        for text, labels in labels_of.items()
    ]

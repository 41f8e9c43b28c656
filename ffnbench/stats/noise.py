"""What the samples themselves say of the machine: each finding with what to do about it. Pure.

Ratios are paired within rounds and taken over fresh processes, so none of this moves a verdict; it tells how far
the seconds can be believed, and what would make the next run quieter.
"""

from __future__ import annotations

import math
from collections import defaultdict
from statistics import fmean, median

from ffnbench.metrics import LATENCY
from ffnbench.plan import CONTROL, Note
from ffnbench.result import Comparison, Measured, Run, Verdict
from ffnbench.units import percent

DISAGREE = 0.10
MOVES = 0.05  # of slow first rounds and of drift
FEWEST_ROUNDS = 6
LEAST_OVERHEADS = 100  # a call shorter than so many empty calls is partly harness
LEAST_TICKS = 1000
BUSY = "its workers disagree on the seconds by more than 10%: the machine is busy or its clock changes"
PAIRED = "; the ratio is paired, and its interval holds"


def noise_notes(run: Run, measured: list[Measured], comparisons: tuple[Comparison, ...]) -> list[Note]:
    """Every warning that can be read off a run's samples and estimates."""
    notes = [*_disagreeing(measured, comparisons), *_overhead(run, measured), *_untrusted(comparisons)]
    series = _series(run)
    if text := _slow_start(series):
        notes.append(Note(label="", text=text))
    if text := _drift(series):
        notes.append(Note(label="", text=text))
    return notes


def _disagreeing(measured: list[Measured], comparisons: tuple[Comparison, ...]) -> list[Note]:
    """A latency that its own workers disagree on; where the ratio is still sharp, that is said as well."""
    ratios = {c.case: c.ratio for c in comparisons if c.ratio}
    sharp = {case for case, r in ratios.items() if r.low and r.high and r.high < 1.2 * r.low}
    notes = []
    for m in [m for m in measured if m.metric == LATENCY]:
        low, high = m.estimate.low, m.estimate.high
        if low and high and m.case != CONTROL and math.sqrt(high / low) - 1 > DISAGREE:
            notes.append(Note(label=m.case, text=BUSY + (PAIRED if m.case in sharp else "")))
    return notes


def _overhead(run: Run, measured: list[Measured]) -> list[Note]:
    """Calls so short that the harness or the clock is a part of them."""
    if run.timer is None:
        return []
    calls = {s.case: s.calls for s in run.samples if s.metric == LATENCY}
    notes = []
    for m in [m for m in measured if m.metric == LATENCY and m.case != CONTROL]:
        empty, seconds = run.timer.empty_call_s, m.estimate.value
        if seconds < LEAST_OVERHEADS * empty:
            text = f"one call is only {seconds / empty:.0f} times an empty one ({empty * 1e6:.1f} us): "
            notes.append(Note(label=m.case, text=text + "give it more work (--seq-len, --batch, --elements)"))
        if seconds * calls.get(m.case, 1) < LEAST_TICKS * run.timer.resolution_s:
            text = f"a sample lasts less than {LEAST_TICKS:,} ticks of the clock ({run.timer.resolution_s * 1e6:g} us)"
            notes.append(Note(label=m.case, text=text + ": give it more work"))
    return notes


def _untrusted(comparisons: tuple[Comparison, ...]) -> list[Note]:
    """The control: the reference against itself."""
    for control in [c for c in comparisons if c.case == CONTROL and c.ratio]:
        if control.ratio and control.verdict in (Verdict.SLOWER, Verdict.FASTER):
            text = f"this machine can't be trusted now: the reference took {control.ratio.value:.3f} times its own time"
            return [Note(label="", text=f"{text}; see `ffnbench env`, wait, and measure again")]
    return []


def _series(run: Run) -> list[list[float]]:
    """Per worker the log seconds by round, each relative to its case's own middle, mean over the cases."""
    failed = {failure.case for failure in run.failures}
    by_worker: dict[int, dict[str, list[tuple[int, float]]]] = defaultdict(lambda: defaultdict(list))
    for s in run.samples:
        if s.metric == LATENCY and s.case not in failed:
            by_worker[s.worker][s.case].append((s.round, math.log(s.value)))
    series = []
    for cases in by_worker.values():
        lines = [[value for _, value in sorted(points)] for points in cases.values()]
        rounds = min(map(len, lines))
        if rounds >= FEWEST_ROUNDS:
            centred = [[value - median(line) for value in line] for line in lines]
            series.append([fmean(line[i] for line in centred) for i in range(rounds)])
    return series


def _slow_start(series: list[list[float]]) -> str:
    """The first round against the rest of each worker."""
    excess = [line[0] - median(line[1:]) for line in series]
    if len(excess) < 2 or median(excess) < math.log1p(MOVES):
        return ""
    slower = percent(math.expm1(median(excess)))
    return (
        f"the first round of a worker is {slower} slower than its others: something else was still busy, or the caches "
        "were cold; medians over rounds hold, --budget gives more of them"
    )


def _drift(series: list[list[float]]) -> str:
    """The last third against the first third of each worker, without its first round."""
    changes = []
    for line in series:
        third = max(2, (len(line) - 1) // 3)
        changes.append(median(line[-third:]) - median(line[1 : 1 + third]))
    if len(changes) < 2 or abs(median(changes)) < math.log1p(MOVES):
        return ""
    word = "slower" if median(changes) > 0 else "faster"
    change = percent(math.expm1(abs(median(changes))))
    return (
        f"within a worker everything gets {change} {word}: the clock changes (`ffnbench env`); "
        "ratios are taken round by round and hold, the seconds are an average"
    )

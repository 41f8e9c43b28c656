"""What noise did to a run, in one line: what was seen of it, and what to trust then.

The findings are separate notes of the run (stats/noise.py, bench/machine_noise.py); a reader wants one answer.
"""

from __future__ import annotations

from ffnbench.report.words import listed
from ffnbench.result import Report
from ffnbench.stats.noise import BUSY, DISAGREE_TEXT, SECONDS_MOVE, is_noise
from ffnbench.units import counted

MOST_LABELS = 3


def noise_line(report: Report) -> tuple[str, ...]:
    """`noise: ...`; nothing where nothing was seen."""
    told = [text for text in report.notes("") if is_noise(text)]
    busy = next((text for text in told if text.startswith(BUSY)), "")
    labels = [case.label for case in report.plan.shown if DISAGREE_TEXT in report.notes(case.label)]
    if busy:  # who was there, and what to do: symptoms of the same would only say it again
        others = [text for text in told if text is not busy and not any(mark in text for mark in SECONDS_MOVE)]
        return ("; ".join([busy, *others]),)
    moves = any(mark in text for text in told for mark in SECONDS_MOVE)
    if labels:
        whose = listed(labels) if len(labels) <= MOST_LABELS else counted(len(labels), "row")
        told.append(f"the seconds of {whose} differ by more than 10% between processes")
    if labels or moves:
        told.append("trust ratios, not seconds")
    return (f"noise: {'; '.join(told)}",) if told else ()


def other_notes(report: Report) -> list[str]:
    """What a reader should know of the whole run beside noise."""
    return [text for text in report.notes("") if not is_noise(text)]


def notes_of_run(report: Report) -> list[str]:
    """The line of noise, and the other notes."""
    return [*noise_line(report), *other_notes(report)]

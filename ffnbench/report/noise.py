"""What noise did to a run, in one line: what was seen of it, and what to trust then.

The findings are separate notes of the run (stats/noise.py, device/machine_noise.py); a reader wants one answer.
"""

from __future__ import annotations

from ffnbench.plan import NoteKind
from ffnbench.result import Report
from ffnbench.stats.noise import NOISES


def noise_line(report: Report) -> tuple[str, ...]:
    """`noise: ...`; nothing where nothing was seen."""
    found = [note for note in report.notes("") if note.kind in NOISES]
    told, moves = [note.text for note in found], any(note.kind is NoteKind.MOVES for note in found)
    if busy := [note.text for note in found if note.kind is NoteKind.BUSY]:
        # who was there, and what to do: symptoms of the same would only say it again
        return ("; ".join([*busy, *(n.text for n in found if n.kind not in (NoteKind.BUSY, NoteKind.MOVES))]),)
    if moves:
        told.append("trust ratios, not seconds")
    return (f"noise: {'; '.join(told)}",) if told else ()


def notes_of_run(report: Report) -> list[str]:
    """The line of noise, and what else a reader should know of the whole run."""
    return [*noise_line(report), *(note.text for note in report.notes("") if note.kind not in NOISES)]

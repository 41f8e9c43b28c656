"""What the samples themselves say of the machine: each finding with what to do about it. Pure.

What others took from a run is told once: in the sentence of a busy run, or in the count of the rounds that were left
out. The rest tells how far the seconds can be believed, and what would make the next run quieter.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean, median

from ffnbench.metrics import LATENCY
from ffnbench.plan import CONTROL, Note, NoteKind
from ffnbench.result import POWER_CAP, Comparison, DeviceSeen, Measured, Report, Run, Sample, Verdict
from ffnbench.stats.rounds import CLOCKS_HELD, CPUS_TAKEN, held_down, is_clean, table_of, waited_for
from ffnbench.units import counted, percent

MOVES = 0.05  # of a device's clock
FAULTING = 0.02  # of a call's time: less is what a first touch of something leaves
LEAST_OVERHEADS = 100  # a call shorter than so many empty calls is partly harness
OTHERS_CPUS = 0.15  # of other processes, on average: less is what an idle machine does
OF_SAMPLES = {NoteKind.BUSY, NoteKind.MOVES, NoteKind.NOISE}
NOISES = OF_SAMPLES | {NoteKind.SEEN}
COMPUTED = OF_SAMPLES | {NoteKind.SHORT}  # what `noise_notes` makes


def noise_notes(run: Run, measured: list[Measured], comparisons: tuple[Comparison, ...]) -> list[Note]:
    """Every warning that can be read off a run's samples and estimates."""
    notes = [*_overhead(run, measured), *_faults(run, measured), *_untrusted(comparisons)]
    shown = [m for m in measured if m.metric == LATENCY and m.case != CONTROL]
    if any(c.verdict is Verdict.BUSY and c.case != CONTROL for c in comparisons) or any(
        m.estimate.disturbed for m in shown
    ):
        return [*notes, Note(text=busy_text(run), kind=NoteKind.BUSY)]
    told = ((left_out, NoteKind.NOISE), (device_others, NoteKind.NOISE), (device_clocks, NoteKind.MOVES))
    return [*notes, *(Note(text=text, kind=kind) for tell, kind in told if (text := tell(run)))]


def busy_text(run: Run | Report) -> str:
    """Who is busy, as far as that is known, and what to do about it."""
    unclean = [sample for sample in run.samples if sample.metric == LATENCY and not is_clean(sample)]
    rounds, around = table_of(run).fewest_clean(), run.around
    clean = f"{rounds.clean} of {rounds.made} rounds were clean" if rounds else ""
    if unclean and 2 * sum(map(waited_for, unclean)) < len(unclean):  # the device's clocks, and not the CPUs
        held = f"{CLOCKS_HELD} ({' and '.join(_causes(unclean))})"
        return f"busy: {', '.join(filter(None, (held, clean)))}; let it cool, see to its power, or `ffnbench env`"
    who = CPUS_TAKEN
    if around and around.others_cpus is not None and around.others_cpus > OTHERS_CPUS:
        load = f" (load {around.load:.1f})" if around.load is not None else ""
        who = f"other processes used {around.others_cpus:.1f} CPUs{load}"
    ways = ["wait"]
    ways += ["--threads 1"] if max(case.workload.threads for case in run.plan.cases) > 1 else []
    ways += ["a longer --budget"] if run.plan.protocol.precision is not None else []
    *others, last = ways
    return f"busy: {' and '.join(filter(None, (who, clean)))}; {', '.join(others) + ' or ' if others else ''}{last}"


def _causes(samples: Iterable[Sample]) -> list[str]:
    """What held the clocks of their device down."""
    return list(dict.fromkeys(name for sample in samples for name in held_down(sample)))


def left_out(run: Run | Report) -> str:
    """The count of the disturbed samples, where there are any, and of the rounds that they leave."""
    rounds, latencies = table_of(run).fewest_clean(), [s for s in run.samples if s.metric == LATENCY]
    unclean = [sample for sample in latencies if not is_clean(sample)]
    if rounds is None or not unclean:
        return ""
    why = ["the threads waited for a CPU in them"] if any(map(waited_for, unclean)) else []
    why += [f"{CLOCKS_HELD} by {' and '.join(causes)}"] if (causes := _causes(unclean)) else []
    return (
        f"{len(unclean):,} of {len(latencies):,} samples are left out ({' or '.join(why)}), "
        f"{rounds.clean:,} of {rounds.made:,} rounds are clean{f' of {rounds.label}' if run.plan.compared > 1 else ''}"
    )


def device_clocks(run: Run | Report) -> str:
    """Where the clock of a device moved: how far, how hot, at what power."""
    told = []
    for device, seen in _by_device(run).items():
        clocks = [mhz for one in seen for mhz in (one.least_clock_mhz, one.most_clock_mhz) if mhz]
        if clocks and min(clocks) < (1 - MOVES) * max(clocks):
            text = f"the clock of {device} went from {max(clocks):,} down to {min(clocks):,} MHz"
            hot = [f"{_most(seen, 'most_temperature_c'):.0f} °C"] if _most(seen, "most_temperature_c") else []
            hot += [f"{_most(seen, 'most_power_w'):.0f} W"] if _most(seen, "most_power_w") else []
            text += f", at most {' and '.join(hot)}" if hot else ""
            capped = [POWER_CAP in (s.throttled or "") for s in run.samples if s.metric == LATENCY]
            told.append(
                f"{text}, at its {POWER_CAP} in {percent(fmean(capped))} of the samples" if any(capped) else text
            )
    return "; ".join(told)


def device_others(run: Run | Report) -> str:
    """Who else computed on a device."""
    most = {device: _most(seen, "others") for device, seen in _by_device(run).items()}
    return "; ".join(f"{counted(int(n), 'other process')} computed on {device}" for device, n in most.items() if n)


def _by_device(run: Run | Report) -> dict[str, list[DeviceSeen]]:
    found: dict[str, list[DeviceSeen]] = {}
    for seen in run.devices:
        found.setdefault(seen.device, []).append(seen)
    return found


def _most(seen: list[DeviceSeen], name: str) -> float | None:
    """The largest of a figure over the workers."""
    return max((value for one in seen if (value := getattr(one, name)) is not None), default=None)


def _overhead(run: Run, measured: list[Measured]) -> list[Note]:
    """Calls so short that the harness is a part of them."""
    if run.timer is None:
        return []
    notes = []
    for m in [m for m in measured if m.metric == LATENCY and m.case != CONTROL]:
        empty, seconds = run.timer.empty_call_s, m.estimate.value
        if seconds < LEAST_OVERHEADS * empty:
            text = f"one call is only {seconds / empty:.0f} times an empty one ({empty * 1e6:.1f} us): "
            text += "give it more work (--seq-len, --batch, --elements)"
            notes.append(Note(label=m.case, text=text, kind=NoteKind.SHORT))
    return notes


def _faults(run: Run, measured: list[Measured]) -> list[Note]:
    """Calls that take pages from the kernel, again and again: how many, and what that costs."""
    if run.timer is None or run.timer.fault_s is None:
        return []
    notes = []
    for m in [m for m in measured if m.metric == LATENCY and m.case != CONTROL]:
        of_case = [s for s in run.samples if s.case == m.case and s.metric == LATENCY and s.faults is not None]
        faults = median(s.faults / s.calls for s in of_case) if of_case else 0  # type: ignore[operator]
        share = faults * run.timer.fault_s / run.plan.case(m.case).workload.threads / m.estimate.value
        if share > FAULTING:
            text = f"{faults:,.0f} page faults a call, up to {percent(share)} of its time: its memory goes back to the "
            notes.append(Note(label=m.case, text=text + "kernel and is taken again", kind=NoteKind.SHORT))
    return notes


def _untrusted(comparisons: tuple[Comparison, ...]) -> list[Note]:
    """The control: the reference against itself."""
    for control in [c for c in comparisons if c.case == CONTROL and c.ratio]:
        if control.ratio and control.verdict in (Verdict.SLOWER, Verdict.FASTER):
            text = f"this machine can't be trusted now: the reference took {control.ratio.value:.3f} times its own time"
            return [Note(text=f"{text} (see `ffnbench env`, wait, and measure again)", kind=NoteKind.NOISE)]
    return []

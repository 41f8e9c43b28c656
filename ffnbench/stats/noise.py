"""What a reader should be warned of in a run, read off its samples and estimates. Pure.

The notes say how far the seconds can be believed, and what would make the next run quieter. What others took from a run
is said once: in the sentence of a busy run, or in the count of the rounds that were left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean

from ffnbench.common.units import counted, percent
from ffnbench.metrics import LATENCY
from ffnbench.plan import CONTROL, Note, NoteKind
from ffnbench.result import POWER_CAP, Comparison, DeviceReadings, Measured, Report, Run, Sample, Verdict
from ffnbench.stats.rounds import CLOCKS_HELD, CPUS_TAKEN, held_down, is_clean, table_of, waited_for

MOVES = 0.05  # of a device's clock
LEAST_OVERHEADS = 100  # a call shorter than so many empty calls is partly harness
OTHERS_CPUS = 0.15  # of other processes, on average: less is what an idle machine does
COMPUTED = {NoteKind.BUSY, NoteKind.MOVES, NoteKind.NOISE, NoteKind.SHORT}  # what `notes_of` makes


def notes_of(run: Run, measured: Iterable[Measured], comparisons: Iterable[Comparison]) -> list[Note]:
    """Every warning that can be read off a run's samples and estimates."""
    notes = _overhead(run, measured)
    is_busy = False
    for row in comparisons:
        if row.case != CONTROL:
            is_busy = is_busy or row.verdict is Verdict.BUSY
        elif row.ratio and row.verdict in (Verdict.SLOWER, Verdict.FASTER):
            text = f"the machine is too noisy: the reference took {row.ratio.value:.3f} times its own time; "
            notes.append(Note(text=text + "see `ffnbench env`, wait, and measure again", kind=NoteKind.NOISE))
    if is_busy:
        return [*notes, Note(text=busy_text(run), kind=NoteKind.BUSY)]
    texts = (left_out(run), NoteKind.NOISE), (device_others(run), NoteKind.NOISE), (device_clocks(run), NoteKind.MOVES)
    return notes + [Note(text=text, kind=kind) for text, kind in texts if text]


def _overhead(run: Run, measured: Iterable[Measured]) -> list[Note]:
    """Calls so short that the harness is a part of them."""
    if run.timer is None:
        return []
    least_s = LEAST_OVERHEADS * run.timer.empty_call_s
    text = f"calls below {least_s * 1e6:.0f} us are partly overhead: "
    text += "give them more work (--seq-len, --batch, --elements)"
    return [
        Note(label=row.case, text=text, kind=NoteKind.SHORT)
        for row in measured
        if row.metric == LATENCY and row.case != CONTROL and row.estimate.value < least_s
    ]


def busy_text(run: Run | Report) -> str:
    """Who is busy, as far as that is known, and what to do about it."""
    clean = ""
    fewest = table_of(run).fewest_clean()
    if fewest:
        label, row = fewest
        clean = f", {label}: {row.clean_rounds} of {row.rounds} rounds undisturbed"
    unclean = [sample for sample in run.samples if sample.metric == LATENCY and not is_clean(sample)]
    if unclean and 2 * sum(map(waited_for, unclean)) < len(unclean):  # the device's clocks, and not the CPUs
        causes = " and ".join(_causes(unclean))
        return f"busy: {CLOCKS_HELD} ({causes}){clean}; let it cool down, or see `ffnbench env`"
    threads_on_cpu = [case.workload.threads for case in run.plan.cases if case.workload.device == "cpu"]
    threads = max(threads_on_cpu, default=1)
    if run.environment and threads > run.environment.usable_cpus:
        cpus = run.environment.usable_cpus
        return f"busy: {threads} threads had {counted(cpus, 'CPU')}; try --threads {cpus}"
    who = CPUS_TAKEN
    if run.around and (run.around.others_cpus or 0.0) > OTHERS_CPUS:
        who = f"other processes used {run.around.others_cpus:.1f} CPUs"
    ways = []
    if max(case.workload.threads for case in run.plan.cases) > 1:
        ways.append("--threads 1")
    if run.plan.protocol.precision is not None:
        ways.append("a longer --budget")
    advice = "wait"
    if ways:
        advice += f", or try {' or '.join(ways)}"
    return f"busy: {who}{clean}; {advice}"


def _causes(samples: Iterable[Sample]) -> list[str]:
    """What held the clocks of their device down."""
    return list(dict.fromkeys(name for sample in samples for name in held_down(sample)))


def left_out(run: Run | Report) -> str:
    """How many samples were disturbed and by what, where there are any, and how many rounds of the worst row."""
    latencies = [sample for sample in run.samples if sample.metric == LATENCY]
    unclean = [sample for sample in latencies if not is_clean(sample)]
    fewest = table_of(run).fewest_clean()
    if fewest is None or not unclean:
        return ""
    reasons = []
    if any(map(waited_for, unclean)):
        reasons.append("they waited for a CPU")
    causes = _causes(unclean)
    if causes:
        reasons.append(f"{CLOCKS_HELD} by {' and '.join(causes)}")
    text = f"{len(unclean):,} of {len(latencies):,} samples are left out: {' or '.join(reasons)}"
    label, row = fewest
    disturbed = row.rounds - row.clean_rounds
    if disturbed:
        text += f"; {label}: {disturbed:,} of {row.rounds:,} rounds disturbed"
    return text


def device_clocks(run: Run | Report) -> str:
    """Where the clock of a device moved: how far, and how often it was at its power limit."""
    texts = []
    for device, readings in _by_device(run).items():
        least = min((reading.least_clock_mhz for reading in readings if reading.least_clock_mhz), default=0)
        most = max((reading.most_clock_mhz for reading in readings if reading.most_clock_mhz), default=0)
        if least >= (1 - MOVES) * most:
            continue
        text = f"the clock of {device} fell from {most:,} to {least:,} MHz"
        capped = [POWER_CAP in (sample.throttled or "") for sample in run.samples if sample.metric == LATENCY]
        if any(capped):
            text += f", at its {POWER_CAP} in {percent(fmean(capped))} of the samples"
        texts.append(text)
    return "; ".join(texts)


def device_others(run: Run | Report) -> str:
    """Who else computed on a device."""
    texts = []
    for device, readings in _by_device(run).items():
        most = max(reading.others or 0 for reading in readings)
        if most:
            texts.append(f"{counted(most, 'other process')} computed on {device}")
    return "; ".join(texts)


def _by_device(run: Run | Report) -> dict[str, list[DeviceReadings]]:
    readings: dict[str, list[DeviceReadings]] = {}
    for reading in run.devices:
        readings.setdefault(reading.device, []).append(reading)
    return readings

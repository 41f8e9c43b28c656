"""From samples to estimates and verdicts. Pure. The replicate is the worker, a process
with a block of rounds.

Within one process samples share memory layout and page placement, so their scatter says
little about the next process. Each worker therefore gives one value, and every interval
is over workers (interval.py). Ratios are paired: per round log(case / reference), over
the rounds that nothing disturbed (rounds.py); their centre is the worker's value.

The notes on noise say how far the seconds can be believed, and what would make the next
run quieter. What disturbed a run is said once: in the sentence of a busy run, or in the
count of the samples that were left out.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from ffnbench.common.units import counted, percent
from ffnbench.plan.metrics import (
    COMPILE,
    DEVICE_TIME,
    ERROR,
    HOST_TIME,
    LATENCY,
    METRICS,
    PACK,
)
from ffnbench.plan.plan import CONTROL, Note, NoteKind
from ffnbench.record.result import (
    CONFIDENCE,
    POWER_CAP,
    SAME_WITHIN,
    Comparison,
    DeviceReadings,
    Estimate,
    FailureKind,
    Measured,
    Run,
    Sample,
    Verdict,
)
from ffnbench.stats.interval import Mean, estimate_of_values
from ffnbench.stats.rounds import (
    Rounds,
    RowLogs,
    compared_rows,
    confidences,
    is_clean,
    mean_seconds,
    ratio_logs,
    rounds_of,
    seconds_logs,
    throttling_causes,
    waited_for_cpu,
)

CPUS_TAKEN = "threads waited for a CPU"
CLOCKS_HELD = "the device's clocks were throttled"
# half the interval of the control (in logs): if it is wider, the control says nothing
CONTROL_WITHIN = 0.05
# of the interval of the control: one quiet run of a hundred seems to be noisy
CONTROL_CONFIDENCE = 0.99
SAME_LOW, SAME_HIGH = 1 - SAME_WITHIN, 1 + SAME_WITHIN
ONE_WORKER = "measured in one process, which gives no interval"
NO_REFERENCE = "the reference {row.reference} was not measured"
WRONG_REFERENCE = "the reference {row.reference} computes something else than it should"
UNLIKE_ITSELF = (
    "the reference differs from itself by up to {row.off}: the machine is too noisy now"
)
DISTURBED = "{row.undisturbed} rounds were undisturbed: {row.cause}"

# seconds of a call; the last two are measured only on an accelerator
PER_CALL = (LATENCY, DEVICE_TIME, HOST_TIME)
PER_WORKER = (COMPILE, PACK)  # seconds that each worker spends once, before its rounds


# The verdict on the interval of a ratio is that of the first rule that holds; SAME also
# where the interval leaves out 1.
INTERVAL_RULES: tuple[tuple[Callable[[float, float], bool], Verdict], ...] = (
    (lambda low, high: low >= SAME_LOW and high <= SAME_HIGH, Verdict.SAME),
    (lambda low, high: low > 1, Verdict.SLOWER),
    (lambda low, high: high < 1, Verdict.FASTER),
    (lambda low, high: True, Verdict.UNCLEAR),
)


def decide(low: float, high: float) -> Verdict:
    """The verdict on the interval of a ratio."""
    return next(verdict for holds, verdict in INTERVAL_RULES if holds(low, high))


def verdict_of(mean: Mean, confidence: float, slack: float = 0.0) -> Verdict:
    """The verdict on a mean of logs by its interval of this confidence, both ends of
    which are moved out by `slack` (in logs); UNCLEAR without an interval.
    """
    interval = mean.inflated(confidence, slack).interval(CONFIDENCE)
    if interval is None:
        return Verdict.UNCLEAR
    low, high = interval
    return decide(math.exp(low), math.exp(high))


def summarise(
    run: Run,
) -> tuple[tuple[Measured, ...], tuple[Comparison, ...], tuple[Note, ...]]:
    """The estimates of a run, its comparisons with references, and its warnings.

    A failed case has none of them. What was only seen has no interval: neither the
    ratio nor the times of such a row.
    """
    comparisons: tuple[Comparison, ...] = ()
    if LATENCY in run.plan.metrics:
        comparisons = _comparisons(run)
    seen = {
        row.case
        for row in comparisons
        if row.verdict is Verdict.BUSY and not (row.ratio and row.ratio.low)
    }
    measured = (
        *_mean_times(run, PER_CALL, seen),
        *_values(run),
        *_mean_times(run, PER_WORKER, seen),
    )
    return measured, comparisons, tuple(notes_of(run, measured, comparisons))


def _mean_times(run: Run, metrics: Iterable[str], seen: set[str]) -> list[Measured]:
    """The mean seconds of each of these metrics, over workers; those of the rows in
    `seen` have no interval.
    """
    times = []
    for metric in metrics:
        estimates = mean_seconds(
            rounds_of(run, metric), rounds_of(run, metric, disturbed=True)
        )
        for case in run.plan.cases:
            if case.label in estimates:
                estimate = estimates[case.label]
                if case.label in seen:
                    estimate = estimate.without_interval()
                times.append(
                    Measured(case=case.label, metric=metric, estimate=estimate)
                )
    return times


def _values(run: Run) -> list[Measured]:
    """The values that are no times: exact metrics, and errors. An error has an interval
    if precisions are compared, for then every worker has inputs of its own.
    """
    inexact = {metric.name for metric in METRICS if not metric.exact}
    failed = {failure.case for failure in run.failures}
    # as a set, because a cell that is measured twice has the same inputs, and so the
    # same errors, in both runs
    errors: dict[str, set[float]] = defaultdict(set)
    for sample in run.samples:
        if run.plan.compares_precisions and sample.metric == ERROR:
            errors[sample.case].add(sample.value)
    measured = []
    for sample in run.samples:
        if sample.case in failed or sample.metric in inexact - {ERROR}:
            continue
        estimate = Estimate(value=sample.value)
        if sample.metric == ERROR and sample.case in errors:
            estimate = estimate_of_values(sorted(errors[sample.case]))
        measured.append(
            Measured(case=sample.case, metric=sample.metric, estimate=estimate)
        )
    return measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """All that decides the verdict on a row.

    `seconds` are the rounds of the row alone, `logs` those of its ratio to the
    reference. `slack` is how far the reference may differ from itself (in logs),
    `waits` for each disturbed sample whether its threads waited for a CPU.
    """

    label: str
    reference: str
    is_reference_wrong: bool
    seconds: RowLogs
    logs: RowLogs
    ratio: Estimate | None
    slack: float
    waits: Sequence[bool]

    @property
    def by_interval(self) -> Verdict:
        """The verdict that is read off the interval of its ratio."""
        if self.label == CONTROL:
            return _verdict_on_control(self.logs.mean(), self.slack)
        if self.ratio is None or self.ratio.low is None or self.ratio.high is None:
            return Verdict.UNCLEAR
        return decide(self.ratio.low, self.ratio.high)

    @property
    def is_too_disturbed(self) -> bool:
        """Whether it may be undecided for the disturbance; the control is not."""
        return self.logs.disturbed and self.label != CONTROL

    @property
    def off(self) -> str:
        """How far the reference may differ from itself, in percent."""
        return percent(math.expm1(self.slack))

    @property
    def undisturbed(self) -> str:
        """How many of its rounds are clean; of those alone if they are too few."""
        logs = self.seconds if self.seconds.lacks_clean else self.logs
        return f"{logs.clean_rounds} of {logs.rounds}"

    @property
    def cause(self) -> str:
        """What disturbed its rounds."""
        return CLOCKS_HELD if _is_throttled(self.waits) else CPUS_TAKEN


# The verdict on a row, with the reason, is that of the first rule that holds. The ratio
# of disturbed rounds decides nothing, because these differ by more than chance.
ROW_RULES: tuple[tuple[Callable[[Row], bool], Verdict, str], ...] = (
    (lambda row: row.seconds.lacks_clean, Verdict.BUSY, DISTURBED),
    (lambda row: row.label == row.reference, Verdict.REFERENCE, ""),
    (lambda row: row.is_reference_wrong, Verdict.UNCLEAR, WRONG_REFERENCE),
    (lambda row: not row.logs.rounds, Verdict.UNCLEAR, NO_REFERENCE),
    (lambda row: row.ratio is None, Verdict.BUSY, DISTURBED),
    (lambda row: row.by_interval is Verdict.SAME, Verdict.SAME, ""),
    (lambda row: row.by_interval is Verdict.SLOWER, Verdict.SLOWER, ""),
    (lambda row: row.by_interval is Verdict.FASTER, Verdict.FASTER, ""),
    (lambda row: row.is_too_disturbed, Verdict.BUSY, DISTURBED),
    (
        lambda row: row.ratio is None or row.ratio.low is None,
        Verdict.UNCLEAR,
        ONE_WORKER,
    ),
    (lambda row: row.slack > 0, Verdict.UNCLEAR, UNLIKE_ITSELF),
    (lambda row: True, Verdict.UNCLEAR, ""),
)


def _comparisons(run: Run) -> tuple[Comparison, ...]:
    """The ratio of every row to its reference, and the verdict on it. A row without
    enough clean rounds has the ratio that was seen, without an interval.
    """
    comparisons = []
    seen = rounds_of(run, disturbed=True)
    for row in _rows_of(run):
        verdict, reason = next(
            (verdict, reason) for holds, verdict, reason in ROW_RULES if holds(row)
        )
        ratio = row.ratio
        if verdict is Verdict.BUSY and ratio is None:
            ratio = ratio_logs(seen, row.label, row.reference).estimate()
        if ratio and (verdict is Verdict.BUSY and row.logs.lacks_clean):
            ratio = ratio.without_interval()
        comparisons.append(
            Comparison(
                case=row.label,
                reference=row.reference,
                metric=LATENCY,
                ratio=ratio,
                verdict=verdict,
                reason=reason.format(row=row),
            )
        )
    return tuple(_busy_if_alone(row, comparisons) for row in comparisons)


def _rows_of(run: Run) -> Iterator[Row]:
    """What decides the verdicts, for each case that was timed."""
    plan, rounds = run.plan, rounds_of(run)
    wrong = {
        failure.case for failure in run.failures if failure.kind is FailureKind.MISMATCH
    }
    slack, confidence_of = control_slack(rounds), confidences(rounds)
    waits: dict[str, list[bool]] = defaultdict(list)
    for sample in run.samples:
        if sample.metric == LATENCY and not is_clean(sample):
            waits[sample.case].append(waited_for_cpu(sample))
    for label in (case.label for case in plan.cases if case.label in rounds.seconds):
        reference, seconds = plan.reference_of(label), seconds_logs(rounds, label)
        logs = ratio_logs(rounds, label, reference)
        confidence = confidence_of.get(label, CONFIDENCE)
        ratio = logs.estimate(confidence, 0.0 if label == CONTROL else slack)
        if label == reference:
            ratio = Estimate(value=1.0, low=1.0, high=1.0, workers=seconds.workers)
        elif reference in wrong:
            ratio = None
        yield Row(
            label=label,
            reference=reference,
            is_reference_wrong=reference in wrong,
            seconds=seconds,
            logs=logs,
            ratio=ratio,
            slack=slack,
            waits=waits[label] or waits[reference],
        )


def _busy_if_alone(row: Comparison, comparisons: Iterable[Comparison]) -> Comparison:
    """The row; as a busy one if it is a reference with which no row could be compared,
    one of them at least because it is busy.

    The seconds of such a reference come from the same disturbed minutes as those rows,
    and would be read as if they did not.
    """
    if row.verdict is not Verdict.REFERENCE:
        return row
    others = [
        other
        for other in comparisons
        if other.reference == row.case and other.case not in (row.case, CONTROL)
    ]
    is_any_busy = any(other.verdict is Verdict.BUSY for other in others)
    is_any_compared = any(
        other.ratio and (other.ratio.low or other.verdict is not Verdict.BUSY)
        for other in others
    )
    if is_any_compared or not is_any_busy:
        return row
    return replace(
        row,
        ratio=row.ratio and row.ratio.without_interval(),
        verdict=Verdict.BUSY,
        reason="no other row could be compared with it",
    )


def _is_throttled(waited: Sequence[bool]) -> bool:
    """Whether most disturbed samples did not wait for a CPU, so that it was the clocks
    of the device that disturbed them.
    """
    return 2 * sum(waited) < len(waited)


def control_slack(rounds: Rounds) -> float:
    """By how much (in logs) the reference may differ from itself, if the interval of
    the control excludes 0; else 0.
    """
    control = ratio_logs(rounds, CONTROL, rounds.plan.reference).mean()
    interval = control.interval(CONTROL_CONFIDENCE) if control else None
    if interval is None or interval[0] <= 0 <= interval[1]:
        return 0.0
    return max(map(abs, interval))


def _verdict_on_control(control: Mean | None, slack: float) -> Verdict:
    """The verdict on the reference against itself: SAME unless it differs by more than
    chance, UNCLEAR if its interval is too wide to say so.
    """
    if control and slack:
        return Verdict.SLOWER if control.mean > 0 else Verdict.FASTER
    if control and control.half_width(CONFIDENCE) <= CONTROL_WITHIN:
        return Verdict.SAME
    return Verdict.UNCLEAR


def is_launch_bound(device: Estimate | None, host: Estimate | None) -> bool | None:
    """Whether the CPU needs longer to issue the work of a call (`host`) than the device
    needs to do it: calls one after another take whichever is longer.

    None if the intervals overlap, or one of them is not known.
    """
    if not (device and device.low and device.high and host and host.low and host.high):
        return None
    if host.low > device.high:
        return True
    return False if host.high < device.low else None


MOVES = 0.05  # a clock that fell by this share of its highest rate is worth a note
LEAST_OVERHEADS = 100  # a call shorter than so many empty calls is partly overhead
# if other processes used more CPUs on average, a note names them; an idle machine uses
# less
OTHERS_CPUS = 0.15
# the kinds of notes that `notes_of` makes
COMPUTED = {NoteKind.BUSY, NoteKind.MOVES, NoteKind.NOISE, NoteKind.SHORT}


def notes_of(
    run: Run, measured: Iterable[Measured], comparisons: Iterable[Comparison]
) -> list[Note]:
    """All notes that follow from the samples and estimates of a run.

    A busy run has one note on that, in place of those on its noise and clocks.
    """
    notes = _overhead_notes(run, measured)
    is_busy = False
    for row in comparisons:
        if row.case != CONTROL:
            is_busy = is_busy or row.verdict is Verdict.BUSY
        elif row.ratio and row.verdict in (Verdict.SLOWER, Verdict.FASTER):
            text = (
                f"the machine is too noisy: the reference took {row.ratio.value:.3f} times its own time; "
                "see `ffnbench env`, wait, and measure again"
            )
            notes.append(Note(text=text, kind=NoteKind.NOISE))
    if is_busy:
        return [*notes, Note(text=busy_text(run), kind=NoteKind.BUSY)]
    texts = (
        (device_others(run), NoteKind.NOISE),
        (device_clocks(run), NoteKind.MOVES),
    )
    return notes + [Note(text=text, kind=kind) for text, kind in texts if text]


def _overhead_notes(run: Run, measured: Iterable[Measured]) -> list[Note]:
    """A note for each row whose calls are so short that the harness is a part of their
    time.
    """
    if run.timer is None:
        return []
    least_s = LEAST_OVERHEADS * run.timer.empty_call_s
    text = f"calls below {least_s * 1e6:.0f} us are partly overhead: "
    text += "give them more work (--seq-len, --batch, --elements)"
    notes = []
    for row in measured:
        is_latency = row.metric == LATENCY and row.case != CONTROL
        if is_latency and row.estimate.value < least_s:
            notes.append(Note(label=row.case, text=text, kind=NoteKind.SHORT))
    return notes


def busy_text(run: Run) -> str:
    """What disturbed a busy run, as far as that is known, and what to do about it."""
    clean, rows = "", compared_rows(rounds_of(run))
    shares = {
        label: row.clean_rounds / row.rounds
        for label, row in rows.items()
        if row.rounds
    }
    if shares:
        label = min(shares, key=lambda label: shares[label])
        row = rows[label]
        clean = f", {label}: {row.clean_rounds} of {row.rounds} rounds undisturbed"
    unclean = [
        sample
        for sample in run.samples
        if sample.metric == LATENCY and not is_clean(sample)
    ]
    if _is_throttled([waited_for_cpu(sample) for sample in unclean]):
        causes = " and ".join(_causes_in(unclean))
        return f"busy: {CLOCKS_HELD} ({causes}){clean}; let it cool down, or see `ffnbench env`"
    threads_on_cpu = [
        case.workload.threads
        for case in run.plan.cases
        if case.workload.device == "cpu"
    ]
    threads = max(threads_on_cpu, default=1)
    if run.environment and threads > run.environment.usable_cpus:
        cpus = run.environment.usable_cpus
        return (
            f"busy: {threads} threads had {counted(cpus, 'CPU')}; try --threads {cpus}"
        )
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


def _causes_in(samples: Iterable[Sample]) -> list[str]:
    """What held the clocks of the device down in these samples, each cause once."""
    return list(
        dict.fromkeys(name for sample in samples for name in throttling_causes(sample))
    )


def device_clocks(run: Run) -> str:
    """For each device whose clock fell by MOVES or more: how far, and how often it was
    at its power limit.
    """
    texts = []
    for device, readings in _by_device(run).items():
        least = min(
            filter(None, (reading.least_clock_mhz for reading in readings)), default=0
        )
        most = max(reading.most_clock_mhz or 0 for reading in readings)
        if least >= (1 - MOVES) * most:
            continue
        text = f"the clock of {device} fell from {most:,} to {least:,} MHz"
        capped = [
            POWER_CAP in (sample.throttled or "")
            for sample in run.samples
            if sample.metric == LATENCY
        ]
        if any(capped):
            text += f", at its {POWER_CAP} in {percent(fmean(capped))} of the samples"
        texts.append(text)
    return "; ".join(texts)


def device_others(run: Run) -> str:
    """How many other processes computed on each device; empty if none did."""
    texts = []
    for device, readings in _by_device(run).items():
        most = max(reading.others or 0 for reading in readings)
        if most:
            texts.append(f"{counted(most, 'other process')} computed on {device}")
    return "; ".join(texts)


def _by_device(run: Run) -> dict[str, list[DeviceReadings]]:
    """The readings of each device, by its name."""
    readings: dict[str, list[DeviceReadings]] = {}
    for reading in run.devices:
        readings.setdefault(reading.device, []).append(reading)
    return readings

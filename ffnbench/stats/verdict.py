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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

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
    SAME_WITHIN,
    Comparison,
    Estimate,
    FailureKind,
    Measured,
    Run,
    Verdict,
)
from ffnbench.stats.interval import Mean, estimate_of_values
from ffnbench.stats.rounds import (
    Rounds,
    RowLogs,
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

    A failed case has none of them. A busy row without enough clean rounds has no
    interval, neither of its ratio nor of its times.
    """
    comparisons: tuple[Comparison, ...] = ()
    if LATENCY in run.plan.metrics:
        comparisons = _comparisons(run)
    busy = {
        row.case
        for row in comparisons
        if row.verdict is Verdict.BUSY and not (row.ratio and row.ratio.low)
    }
    measured = (
        *_mean_times(run, PER_CALL, busy),
        *_values(run),
        *_mean_times(run, PER_WORKER, busy),
    )
    return measured, comparisons, tuple(notes_of(run, measured, comparisons))


def _mean_times(run: Run, metrics: Iterable[str], busy: set[str]) -> list[Measured]:
    """The mean seconds of each of these metrics, over workers; those of `busy` rows
    are of all rounds, and have no interval.
    """
    times = []
    for metric in metrics:
        estimates = mean_seconds(
            rounds_of(run, metric), rounds_of(run, metric, disturbed=True)
        )
        for case in run.plan.cases:
            if case.label in estimates:
                estimate = estimates[case.label]
                if case.label in busy:
                    estimate = estimate.without_interval()
                times.append(
                    Measured(case=case.label, metric=metric, estimate=estimate)
                )
    return times


def _values(run: Run) -> list[Measured]:
    """The values that are no times: exact metrics, and errors. An error has an interval
    if precisions are compared, for then every worker has inputs of its own.
    """
    counted_metrics = {metric.name for metric in METRICS if metric.exact} | {ERROR}
    failed = {failure.case for failure in run.failures}
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    for sample in run.samples:
        if sample.metric in counted_metrics and sample.case not in failed:
            values[sample.case, sample.metric].append(sample.value)
    measured = []
    for (case, metric), of_row in values.items():
        estimate = Estimate(value=of_row[0])
        if metric == ERROR and run.plan.compares_precisions:
            # a cell that is measured twice has the same inputs, and so the same errors,
            # in both runs
            estimate = estimate_of_values(sorted(set(of_row)))
        measured.append(Measured(case=case, metric=metric, estimate=estimate))
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
        if self.ratio is None or self.ratio.low is None or self.ratio.high is None:
            return Verdict.UNCLEAR
        return decide(self.ratio.low, self.ratio.high)

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
ROW_RULES: tuple[tuple[Callable[[Row], bool], Verdict | None, str], ...] = (
    (lambda row: row.seconds.lacks_clean, Verdict.BUSY, DISTURBED),
    (lambda row: row.label == row.reference, Verdict.REFERENCE, ""),
    (lambda row: row.is_reference_wrong, Verdict.UNCLEAR, WRONG_REFERENCE),
    (lambda row: not row.logs.rounds, Verdict.UNCLEAR, NO_REFERENCE),
    (lambda row: row.ratio is None, Verdict.BUSY, DISTURBED),
    # None stands for the verdict of the interval
    (lambda row: row.by_interval is not Verdict.UNCLEAR, None, ""),
    (lambda row: row.logs.disturbed, Verdict.BUSY, DISTURBED),
    (
        lambda row: row.ratio is None or row.ratio.low is None,
        Verdict.UNCLEAR,
        ONE_WORKER,
    ),
    (lambda row: row.slack > 0, Verdict.UNCLEAR, UNLIKE_ITSELF),
    (lambda row: True, Verdict.UNCLEAR, ""),
)


def _comparisons(run: Run) -> tuple[Comparison, ...]:
    """The ratio of every row that was timed to its reference, and the verdict on it. A
    row without enough clean rounds has the ratio of all its rounds and no interval.
    """
    plan, rounds, every_round = run.plan, rounds_of(run), rounds_of(run, disturbed=True)
    wrong = {
        failure.case for failure in run.failures if failure.kind is FailureKind.MISMATCH
    }
    slack, confidence_of = control_slack(rounds), confidences(rounds)
    waits: dict[str, list[bool]] = defaultdict(list)
    for sample in run.samples:
        if sample.metric == LATENCY and not is_clean(sample):
            waits[sample.case].append(waited_for_cpu(sample))
    comparisons = []
    for label in rounds.labels:
        reference, seconds = plan.reference_of(label), seconds_logs(rounds, label)
        logs = ratio_logs(rounds, label, reference)
        ratio = logs.estimate(confidence_of.get(label, CONFIDENCE), slack)
        if label == reference:
            ratio = Estimate(value=1.0, low=1.0, high=1.0, workers=seconds.workers)
        row = Row(
            label=label,
            reference=reference,
            is_reference_wrong=reference in wrong and label != reference,
            seconds=seconds,
            logs=logs,
            ratio=ratio,
            slack=slack,
            waits=waits[label] or waits[reference],
        )
        verdict, reason = next(
            (verdict or row.by_interval, reason)
            for holds, verdict, reason in ROW_RULES
            if holds(row)
        )
        if row.is_reference_wrong:
            ratio = None
        if verdict is Verdict.BUSY and ratio is None:
            ratio = ratio_logs(every_round, label, reference).estimate()
        if ratio and verdict is Verdict.BUSY and logs.lacks_clean:
            ratio = ratio.without_interval()
        comparisons.append(
            Comparison(
                case=label,
                reference=reference,
                metric=LATENCY,
                ratio=ratio,
                verdict=verdict,
                reason=reason.format(row=row),
            )
        )
    return tuple(comparisons)


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


LEAST_OVERHEADS = 100  # a call shorter than so many empty calls is partly overhead
# the kinds of notes that `notes_of` makes
COMPUTED = {NoteKind.BUSY, NoteKind.NOISE, NoteKind.SHORT}


def notes_of(
    run: Run, measured: Iterable[Measured], comparisons: Iterable[Comparison]
) -> list[Note]:
    """All notes that follow from the samples and estimates of a run."""
    notes = _overhead_notes(run, measured)
    slack = control_slack(rounds_of(run))
    if slack:
        text = (
            f"the machine is too noisy: the reference differs from itself by up to {percent(math.expm1(slack))}; "
            "see `ffnbench env`, wait, and measure again"
        )
        notes.append(Note(text=text, kind=NoteKind.NOISE))
    if any(row.verdict is Verdict.BUSY for row in comparisons):
        notes.append(Note(text=busy_text(run), kind=NoteKind.BUSY))
    return notes


def _overhead_notes(run: Run, measured: Iterable[Measured]) -> list[Note]:
    """A note for each row whose calls are so short that the harness is a part of their
    time.
    """
    if run.timer is None:
        return []
    least_s = LEAST_OVERHEADS * run.timer.empty_call_s
    text = f"calls below {least_s * 1e6:.0f} us are partly overhead: "
    text += "give them more work (--seq-len, --batch)"
    notes = []
    for row in measured:
        is_latency = row.metric == LATENCY and row.case != CONTROL
        if is_latency and row.estimate.value < least_s:
            notes.append(Note(label=row.case, text=text, kind=NoteKind.SHORT))
    return notes


def busy_text(run: Run) -> str:
    """What disturbed a busy run, as far as that is known, and what to do about it."""
    unclean = [
        sample
        for sample in run.samples
        if sample.metric == LATENCY and not is_clean(sample)
    ]
    if _is_throttled([waited_for_cpu(sample) for sample in unclean]):
        causes = {cause for sample in unclean for cause in throttling_causes(sample)}
        return f"busy: {CLOCKS_HELD} ({' and '.join(sorted(causes))}); let it cool down, or see `ffnbench env`"
    cases = run.plan.cases
    threads = max(case.workload.threads for case in cases)
    is_on_cpu = any(case.workload.device == "cpu" for case in cases)
    if run.environment and is_on_cpu and threads > run.environment.usable_cpus:
        cpus = run.environment.usable_cpus
        return (
            f"busy: {threads} threads had {counted(cpus, 'CPU')}; try --threads {cpus}"
        )
    ways = ["--threads 1"] if threads > 1 else []
    if run.plan.protocol.precision is not None:
        ways.append("a longer --budget")
    advice = f", or try {' or '.join(ways)}" if ways else ""
    return f"busy: {CPUS_TAKEN}; wait{advice}"

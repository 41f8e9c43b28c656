"""From samples to estimates and verdicts. Pure; the replicate is the worker, a fresh process.

Within one process samples share memory layout and page placement, so their scatter says little about the next
process. Each worker therefore gives one value, and every interval is a Student interval over workers. Ratios are
paired: per round log(case / reference), the median over rounds is the worker's value (docs/methodology.md).
"""

from __future__ import annotations

import math
from collections import defaultdict
from statistics import fmean, median, stdev

from ffnbench.plan import LATENCY, Note, Plan
from ffnbench.result import Comparison, Estimate, Measured, Run, Sample, Verdict

CONFIDENCE = 0.95
SAME_WITHIN = 0.02
NOISY_ABOVE = 0.10
BUSY = "its workers disagree on the seconds by more than 10%: the machine is busy or its clock changes"
PAIRED = "; the ratio is paired, and its interval holds"

Rounds = dict[int, dict[int, float]]  # worker -> round -> seconds


def student_interval(values: list[float], confidence: float = CONFIDENCE) -> tuple[float, float, float] | None:
    """Mean and confidence interval of independent values (Student 1908); None for fewer than two."""
    if len(values) < 2:
        return None
    from scipy.special import stdtrit  # 0.2 s, paid after the measuring

    half = float(stdtrit(len(values) - 1, 0.5 + confidence / 2)) * stdev(values) / math.sqrt(len(values))
    centre = fmean(values)
    return centre, centre - half, centre + half


def decide(low: float, high: float) -> Verdict:
    """The verdict on the interval of a ratio: inside +-2 % is the same, else its side of 1, else can't tell."""
    if low >= 1 - SAME_WITHIN and high <= 1 + SAME_WITHIN:
        return Verdict.SAME
    if low > 1:
        return Verdict.SLOWER
    return Verdict.FASTER if high < 1 else Verdict.UNCLEAR


def summarise(run: Run) -> tuple[tuple[Measured, ...], tuple[Comparison, ...], tuple[Note, ...]]:
    """Estimates, comparisons with the reference, and what a reader should be warned of. Failed cases have none."""
    failed = {failure.case for failure in run.failures}
    labels = [case.label for case in run.plan.cases if case.label not in failed]
    latency = {label: _whole_workers(_rounds(run.samples, label), run.plan) for label in labels}
    measured = [m for label in labels if (m := _latency(label, latency[label]))]
    measured += [
        Measured(case=s.case, metric=s.metric, estimate=Estimate(value=s.value))
        for s in run.samples
        if s.metric != LATENCY and s.case not in failed
    ]
    comparisons = _comparisons(run.plan, latency) if "latency" in run.plan.metrics else ()
    return tuple(measured), comparisons, tuple(_noise(measured, comparisons))


def _rounds(samples: tuple[Sample, ...], label: str) -> Rounds:
    rounds: Rounds = defaultdict(dict)
    for sample in samples:
        if sample.case == label and sample.metric == LATENCY:
            rounds[sample.worker][sample.round] = sample.value
    return rounds


def _whole_workers(rounds: Rounds, plan: Plan) -> Rounds:
    """After an interruption the last worker is short; it is left out where enough whole ones remain."""
    whole = {worker: values for worker, values in rounds.items() if len(values) == plan.protocol.rounds}
    return whole if len(whole) >= 2 else rounds


def _latency(label: str, rounds: Rounds) -> Measured | None:
    logs = [median(math.log(v) for v in values.values()) for values in rounds.values() if values]
    if not logs:
        return None
    count = sum(len(values) for values in rounds.values())
    return Measured(case=label, metric=LATENCY, estimate=_estimate(logs, count))


def _estimate(logs: list[float], samples: int) -> Estimate:
    """The estimate of exp(mean of logs), one log a worker; without an interval for a single worker."""
    interval = student_interval(logs)
    if interval is None:
        return Estimate(value=math.exp(logs[0]), workers=len(logs), samples=samples)
    centre, low, high = (math.exp(v) for v in interval)
    return Estimate(value=centre, low=low, high=high, confidence=CONFIDENCE, workers=len(logs), samples=samples)


def _comparisons(plan: Plan, latency: dict[str, Rounds]) -> tuple[Comparison, ...]:
    reference = latency.get(plan.reference, {})
    return tuple(_compare(plan, label, rounds, reference) for label, rounds in latency.items() if rounds)


def _compare(plan: Plan, label: str, rounds: Rounds, reference: Rounds) -> Comparison:
    def comparison(ratio: Estimate | None, verdict: Verdict, reason: str = "") -> Comparison:
        return Comparison(
            case=label, reference=plan.reference, metric=LATENCY, ratio=ratio, verdict=verdict, reason=reason
        )

    if label == plan.reference:
        return comparison(Estimate(value=1.0, low=1.0, high=1.0, workers=len(rounds)), Verdict.REFERENCE)
    logs, pairs = [], 0
    for worker, values in rounds.items():
        base = reference.get(worker, {})
        paired = [math.log(value / base[r]) for r, value in values.items() if r in base]
        pairs += len(paired)
        if paired:
            logs.append(median(paired))
    if not logs:
        return comparison(None, Verdict.UNCLEAR, f"the reference {plan.reference} was not measured")
    ratio = _estimate(logs, pairs)
    if ratio.low is None or ratio.high is None:
        return comparison(ratio, Verdict.UNCLEAR, "one worker gives no interval")
    return comparison(ratio, decide(ratio.low, ratio.high))


def _noise(measured: list[Measured], comparisons: tuple[Comparison, ...]) -> list[Note]:
    """A latency that its own workers disagree on; where the ratio is still sharp, that is said as well."""
    ratios = {c.case: c.ratio for c in comparisons if c.ratio}
    sharp = {case for case, r in ratios.items() if r.low and r.high and r.high < 1.2 * r.low}
    notes = []
    for m in measured:
        low, high = m.estimate.low, m.estimate.high
        if low and high and math.sqrt(high / low) - 1 > NOISY_ABOVE:
            notes.append(Note(label=m.case, text=BUSY + (PAIRED if m.case in sharp else "")))
    return notes

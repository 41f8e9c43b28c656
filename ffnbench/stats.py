"""From samples to estimates and verdicts. Pure; the replicate is the worker, a fresh process.

Within one process samples share memory layout and page placement, so their scatter says little about the next
process. Each worker therefore gives one value, and every interval is a Student interval over workers. Ratios are
paired: per round log(case / reference), the median over rounds is the worker's value (docs/methodology.md).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean, median, stdev

from ffnbench.errors import FfnbenchError
from ffnbench.noise import noise_notes
from ffnbench.plan import CONTROL, LATENCY, Note, Plan, Protocol
from ffnbench.result import Comparison, Estimate, Measured, Run, Sample, Verdict
from ffnbench.units import percent

CONFIDENCE = 0.95  # of every interval, as stated
# A run that stops when its intervals are narrow stops too often on a scatter that is small by chance. With these the
# interval it stops at covers in 93.4-96.6 % and a difference is false in less than 5 %, whatever the precision and
# the number of workers (tests/test_sampling.py simulates it); one that never looks early needs no correction.
LOOKS_CONFIDENCE, LOOKS_ALPHA = 0.965, 0.024
CONTROL_CONFIDENCE = 0.99  # a quiet machine is accused once in a hundred runs
SAME_WITHIN = 0.02
LEAST_SCATTER = 0.003  # no two processes were ever seen to agree better, on any machine
MUST_TELL = 0.10

Rounds = dict[int, dict[int, float]]  # worker -> round -> seconds


@cache
def quantile(workers: int, confidence: float) -> float:
    """Student's t with workers - 1 degrees of freedom, two-sided."""
    from scipy.special import stdtrit  # 0.2 s, paid while nothing is measured

    return float(stdtrit(workers - 1, 0.5 + confidence / 2))


def level(protocol: Protocol) -> float:
    """The confidence that an interval takes at each look for a stated 95 %."""
    return CONFIDENCE if protocol.precision is None else LOOKS_CONFIDENCE


def error_rate(protocol: Protocol) -> float:
    """The family-wise error that decisions take at each look for a stated 5 %."""
    return 1 - CONFIDENCE if protocol.precision is None else LOOKS_ALPHA


def student_interval(values: list[float], confidence: float = CONFIDENCE) -> tuple[float, float, float] | None:
    """Mean and confidence interval of independent values (Student 1908); None for fewer than two."""
    if len(values) < 2:
        return None
    half = quantile(len(values), confidence) * stdev(values) / math.sqrt(len(values))
    centre = fmean(values)
    return centre, centre - half, centre + half


def p_value(values: list[float]) -> float:
    """Student's two-sided p of mean 0; 1 for fewer than two values."""
    if len(values) < 2:
        return 1.0
    from scipy.special import stdtr

    scatter = stdev(values)
    if not scatter:
        return 0.0 if fmean(values) else 1.0
    return float(2 * stdtr(len(values) - 1, -abs(fmean(values)) * math.sqrt(len(values)) / scatter))


def holm(p_values: dict[str, float], alpha: float) -> set[str]:
    """The labels that differ, with a family-wise error of at most alpha (Holm 1979)."""
    found: set[str] = set()
    for rank, (label, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        if p > alpha / (len(p_values) - rank):
            break
        found.add(label)
    return found


def decide(low: float, high: float) -> Verdict:
    """The verdict on the interval of a ratio: inside +-2 % is the same, else its side of 1, else can't tell."""
    if low >= 1 - SAME_WITHIN and high <= 1 + SAME_WITHIN:
        return Verdict.SAME
    if low > 1:
        return Verdict.SLOWER
    return Verdict.FASTER if high < 1 else Verdict.UNCLEAR


def refuse_blind(plan: Plan) -> None:
    """Raise FfnbenchError for a plan that could tell no difference below 10 % even if every process agreed as well
    as any ever did; the hint has the number of workers that would do."""
    protocol = plan.protocol
    if protocol.precision is not None or "latency" not in plan.metrics or plan.compared < 1:
        return

    def tells(workers: int) -> float:
        return quantile(workers, 1 - (1 - CONFIDENCE) / plan.compared) * LEAST_SCATTER / math.sqrt(workers)

    if tells(protocol.workers) > MUST_TELL:
        enough = next(n for n in range(protocol.workers, 1000) if tells(n) <= MUST_TELL)
        raise FfnbenchError(
            f"{protocol.workers} workers can tell no difference below {percent(tells(protocol.workers))} "
            f"among {plan.compared} variants",
            f"give --workers {enough}, or fewer variants",
        )


def summarise(run: Run) -> tuple[tuple[Measured, ...], tuple[Comparison, ...], tuple[Note, ...]]:
    """Estimates, comparisons with the reference, and what a reader should be warned of. Failed cases have none."""
    failed = {failure.case for failure in run.failures}
    labels = [case.label for case in run.plan.cases if case.label not in failed]
    rounds = whole_rounds(run.samples, run.plan.protocol)
    latency = {label: rounds.get(label, {}) for label in labels}
    confidence = level(run.plan.protocol)
    measured = [m for label in labels if (m := _latency(label, latency[label], confidence))]
    measured += [
        Measured(case=s.case, metric=s.metric, estimate=Estimate(value=s.value))
        for s in run.samples
        if s.metric != LATENCY and s.case not in failed
    ]
    comparisons = _comparisons(run.plan, latency) if "latency" in run.plan.metrics else ()
    return tuple(measured), comparisons, tuple(noise_notes(run, measured, comparisons))


def whole_rounds(samples: Iterable[Sample], protocol: Protocol) -> dict[str, Rounds]:
    """Seconds by case, worker and round, without workers that were cut short where enough whole ones remain."""
    fewest = protocol.rounds // 2 + 1 if protocol.precision is None else protocol.rounds
    rounds: dict[str, Rounds] = defaultdict(lambda: defaultdict(dict))
    for sample in samples:
        if sample.metric == LATENCY:
            rounds[sample.case][sample.worker][sample.round] = sample.value
    return {label: _whole(found, fewest) for label, found in rounds.items()}


def paired_logs(rounds: Rounds, reference: Rounds) -> dict[int, list[float]]:
    """log(case / reference) of the same rounds, by worker."""
    logs: dict[int, list[float]] = {}
    for worker, values in rounds.items():
        base = reference.get(worker, {})
        if paired := [math.log(value / base[r]) for r, value in values.items() if r in base]:
            logs[worker] = paired
    return logs


def _whole(rounds: Rounds, fewest: int) -> Rounds:
    """A worker that was interrupted or lost before its fewest rounds says too little."""
    whole = {worker: values for worker, values in rounds.items() if len(values) >= fewest}
    return whole if len(whole) >= 2 else rounds


def _latency(label: str, rounds: Rounds, confidence: float) -> Measured | None:
    logs = [median(math.log(v) for v in values.values()) for values in rounds.values() if values]
    if not logs:
        return None
    count = sum(len(values) for values in rounds.values())
    return Measured(case=label, metric=LATENCY, estimate=_estimate(logs, count, confidence))


def _estimate(logs: list[float], samples: int, confidence: float) -> Estimate:
    """The estimate of exp(mean of logs), one log a worker; without an interval for a single worker."""
    interval = student_interval(logs, confidence)
    if interval is None:
        return Estimate(value=math.exp(logs[0]), workers=len(logs), samples=samples)
    centre, low, high = (math.exp(v) for v in interval)
    return Estimate(value=centre, low=low, high=high, confidence=CONFIDENCE, workers=len(logs), samples=samples)


@dataclass(frozen=True, slots=True)
class _Row:
    """One case against the reference: a value a worker, and how many rounds they are made of."""

    logs: list[float]
    pairs: int


def _comparisons(plan: Plan, latency: dict[str, Rounds]) -> tuple[Comparison, ...]:
    reference = latency.get(plan.reference, {})
    rows: dict[str, _Row] = {}
    for label, rounds in latency.items():
        if rounds and label != plan.reference:
            logs = paired_logs(rounds, reference)
            rows[label] = _Row([median(v) for v in logs.values()], sum(map(len, logs.values())))
    alpha = error_rate(plan.protocol)
    family = {label: p_value(row.logs) for label, row in rows.items() if label != CONTROL}
    differ = holm(family, alpha)
    strictest = 1 - alpha / max(1, len(family))
    slack = _bias(rows[CONTROL].logs) if CONTROL in rows else 0.0
    found = []
    for label in [label for label, rounds in latency.items() if rounds]:
        if label == plan.reference:
            one = Estimate(value=1.0, low=1.0, high=1.0, workers=len(latency[label]))
            found.append(_comparison(plan, label, one, Verdict.REFERENCE))
        elif label == CONTROL:
            found.append(_control(plan, rows[CONTROL], slack))
        else:
            found.append(_compare(plan, label, rows[label], label in differ, strictest, slack))
    return tuple(found)


def _bias(control: list[float]) -> float:
    """By how much (in logs) the reference differs from itself, where that is more than chance; else 0."""
    interval = student_interval(control, CONTROL_CONFIDENCE)
    if interval is None or interval[1] <= 0 <= interval[2]:
        return 0.0
    return max(abs(interval[1]), abs(interval[2]))


def _control(plan: Plan, row: _Row, bias: float) -> Comparison:
    """The reference against itself: the same, unless it differs by more than chance."""
    if not row.logs:
        return _comparison(plan, CONTROL, None, Verdict.UNCLEAR, f"the reference {plan.reference} was not measured")
    ratio = _estimate(row.logs, row.pairs, level(plan.protocol))
    if ratio.low is None:
        return _comparison(plan, CONTROL, ratio, Verdict.UNCLEAR, "one worker gives no interval")
    differs = Verdict.SLOWER if ratio.value > 1 else Verdict.FASTER
    return _comparison(plan, CONTROL, ratio, differs if bias else Verdict.SAME)


def _compare(plan: Plan, label: str, row: _Row, differs: bool, strictest: float, slack: float) -> Comparison:
    if not row.logs:
        return _comparison(plan, label, None, Verdict.UNCLEAR, f"the reference {plan.reference} was not measured")
    ratio = _estimate(row.logs, row.pairs, level(plan.protocol))
    if ratio.low is None or ratio.high is None:
        return _comparison(plan, label, ratio, Verdict.UNCLEAR, "one worker gives no interval")
    verdict, reason = decide(ratio.low * math.exp(-slack), ratio.high * math.exp(slack)), ""
    if slack and verdict is Verdict.UNCLEAR:
        reason = f"the reference differs from itself by up to {percent(math.expm1(slack))}: this machine can't tell now"
    elif verdict in (Verdict.SLOWER, Verdict.FASTER) and not differs:
        verdict = Verdict.UNCLEAR
        rows = f"{plan.compared} rows (Holm's correction)" if plan.compared > 1 else "one row and several looks"
        reason = f"its interval leaves out 1 by less than chance explains, with {rows}"
    interval = student_interval(row.logs, strictest)
    told = math.expm1((interval[2] - interval[1]) / 2 + slack) if interval else None
    return replace(_comparison(plan, label, ratio, verdict, reason), resolution=told)


def _comparison(plan: Plan, label: str, ratio: Estimate | None, verdict: Verdict, reason: str = "") -> Comparison:
    return Comparison(case=label, reference=plan.reference, metric=LATENCY, ratio=ratio, verdict=verdict, reason=reason)

"""From samples to estimates, verdicts and notes. Pure; the replicate is the worker, a process with a block of rounds.

Within one process samples share memory layout and page placement, so their scatter says little about the next
process. Each worker therefore gives one value, and every interval is over workers (interval.py). Ratios are paired: per
round log(case / reference), over the rounds that nothing disturbed (rounds.py); their median is the worker's value.

The notes tell how far the seconds can be believed, and what would make the next run quieter. What others took from a
run is told once: in the sentence of a busy run, or in the count of the rounds that were left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from statistics import fmean
from typing import TypeVar

from ffnbench.common.units import counted, percent
from ffnbench.metrics import COMPILE, DEVICE_TIME, HOST_TIME, LATENCY, PACK
from ffnbench.plan import CONTROL, Note, NoteKind, Plan, metrics_of
from ffnbench.result import (
    POWER_CAP,
    Comparison,
    DeviceSeen,
    Estimate,
    FailureKind,
    Measured,
    Report,
    Run,
    Sample,
    Verdict,
)
from ffnbench.stats.interval import CONFIDENCE, Mean
from ffnbench.stats.rounds import CLOCKS_HELD, CPUS_TAKEN, Row, Table, held_down, is_clean, table_of, waited_for

CONTROL_WITHIN = 0.05  # a control that is known no better says nothing
CONTROL_CONFIDENCE = 0.99  # a quiet machine is accused once in a hundred runs
SAME_WITHIN = 0.02
SAME = 1 - SAME_WITHIN, 1 + SAME_WITHIN
ONE_WORKER = "measured in one process, which gives no interval"
MOVES = 0.05  # of a device's clock
LEAST_OVERHEADS = 100  # a call shorter than so many empty calls is partly harness
OTHERS_CPUS = 0.15  # of other processes, on average: less is what an idle machine does
OF_SAMPLES = {NoteKind.BUSY, NoteKind.MOVES, NoteKind.NOISE}
NOISES = OF_SAMPLES | {NoteKind.SEEN}
COMPUTED = OF_SAMPLES | {NoteKind.SHORT}  # what `summarise` makes

BESIDE = (DEVICE_TIME, HOST_TIME)  # seconds that come with each latency of an accelerator
ONCE = (COMPILE, PACK)  # timed once in every worker, before its rounds

K = TypeVar("K")
R = TypeVar("R", bound=Report)


def holm(p_values: Mapping[K, float], alpha: float) -> set[K]:
    """The rows that differ, with a family-wise error of at most alpha (Holm 1979)."""
    found: set[K] = set()
    for rank, (label, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        if p > alpha / (len(p_values) - rank):
            break
        found.add(label)
    return found


def decide(low: float, high: float, same: tuple[float, float] = SAME) -> Verdict:
    """The verdict on the interval of a ratio: within `same` the same, else its side of 1, else can't tell."""
    if low >= same[0] and high <= same[1]:
        return Verdict.SAME
    if low > 1:
        return Verdict.SLOWER
    return Verdict.FASTER if high < 1 else Verdict.UNCLEAR


def verdicts(
    means: Mapping[K, Mean], slack: float = 0.0, looks: int = 1, same: tuple[float, float] = SAME
) -> dict[K, tuple[Verdict, str]]:
    """The verdicts on rows by the means of their logs; why, where one is UNCLEAR.

    The interval decides, widened by the `slack` (in logs) that the machine is off by; a difference has to hold by
    Holm's correction over all rows as well, and over the `looks` after which measuring might have ended.
    """
    differ = holm({row: mean.p_value() for row, mean in means.items()}, (1 - CONFIDENCE) / looks)
    found = {}
    for row, mean in means.items():
        interval = mean.interval(CONFIDENCE)
        if interval is None:
            found[row] = Verdict.UNCLEAR, ONE_WORKER
            continue
        verdict, reason = decide(math.exp(interval[0] - slack), math.exp(interval[1] + slack), same), ""
        if slack and verdict is Verdict.UNCLEAR:
            off = percent(math.expm1(slack))
            reason = f"the reference differs from itself by up to {off}: the machine is too noisy now"
        elif verdict in (Verdict.SLOWER, Verdict.FASTER) and row not in differ:
            verdict = Verdict.UNCLEAR
            reason = f"not significant after correcting for {len(means)} comparisons"
        found[row] = verdict, reason
    return found


def summarise(run: Run) -> tuple[tuple[Measured, ...], tuple[Comparison, ...], tuple[Note, ...]]:
    """Estimates, comparisons with the reference, and what a reader should be warned of. Failed cases have none; busy
    ones have no seconds.
    """
    failed = {failure.case for failure in run.failures}
    wrong = {failure.case for failure in run.failures if failure.kind is FailureKind.MISMATCH}
    labels = [case.label for case in run.plan.cases if case.label not in failed]
    table = table_of(run)
    comparisons = _comparisons(table, labels, wrong) if "latency" in run.plan.metrics else ()
    busy = {c.case for c in comparisons if c.verdict is Verdict.BUSY}
    measured = [
        Measured(case=label, metric=metric, estimate=estimate)
        for metric in (LATENCY, *BESIDE)
        for label in labels
        if label not in busy and (estimate := table_of(run, metric).seconds(label).estimate())
    ]
    sampled = {metric.name for metric in metrics_of(run.plan.kind) if not metric.exact}
    measured += [
        Measured(case=s.case, metric=s.metric, estimate=Estimate(value=s.value))
        for s in run.samples
        if s.metric not in sampled and s.case not in failed
    ]
    measured += _once(run, [label for label in labels if label not in busy])
    return tuple(measured), comparisons, tuple(_notes(run, measured, comparisons))


def _once(run: Run, labels: list[str]) -> list[Measured]:
    """Seconds of compiling and of packing, over workers; the number of looks does not depend on them."""
    return [
        Measured(case=label, metric=metric, estimate=estimate)
        for label in labels
        for metric in ONCE
        if (estimate := table_of(run, metric).seconds(label).estimate(every=True))
    ]


def _comparisons(table: Table, labels: list[str], wrong: set[str]) -> tuple[Comparison, ...]:
    """`wrong` are cases that compute something else: none is held against them."""
    plan = table.plan
    measured = [label for label in labels if label in table.rounds]
    rows = {label: table.row(label) for label in measured if not plan.is_reference(label)}
    means = {label: mean for label, row in rows.items() if (mean := row.mean())}
    slack = slack_of(means[CONTROL]) if CONTROL in means else 0.0
    compared = {label: mean for label, mean in means.items() if label != CONTROL}
    looks = plan.protocol.looks
    decided = verdicts(compared, slack, looks)
    if CONTROL in means:
        decided[CONTROL] = _control(means[CONTROL], slack)
    found = []
    for label in measured:
        reference = plan.reference_of(label)
        if (seconds := table.seconds(label)).lacks_clean:
            found.append(_busy(table, label, seconds))
        elif plan.is_reference(label):
            one = Estimate(value=1.0, low=1.0, high=1.0, workers=len(table.rounds[label]))
            found.append(_comparison(plan, label, one, Verdict.REFERENCE))
        elif reference in wrong:
            why = f"the reference {reference} computes something else than it should"
            found.append(_comparison(plan, label, None, Verdict.UNCLEAR, why))
        elif not (row := rows[label]).every:
            why = f"the reference {reference} was not measured"
            found.append(_comparison(plan, label, None, Verdict.UNCLEAR, why))
        elif label not in decided or (decided[label][0] is Verdict.UNCLEAR and row.disturbed):
            found.append(_busy(table, label, row))
        else:
            one_of = _comparison(plan, label, row.estimate(), *decided[label])
            if label != CONTROL and means[label].freedom > 0:
                strictest = 1 - (1 - CONFIDENCE) / (looks * len(compared))
                one_of = replace(one_of, resolution=math.expm1(means[label].half(strictest) + slack))
            found.append(one_of)
    return tuple(_alone(one) if _without_rows(one, found) else one for one in found)


def _without_rows(reference: Comparison, found: Iterable[Comparison]) -> bool:
    """Whether nothing could be compared with a reference, and a row for which others had the CPUs or the clocks."""
    if reference.verdict is not Verdict.REFERENCE:
        return False
    rows = [c for c in found if c.reference == reference.case and c.case not in (reference.case, CONTROL)]
    return any(row.verdict is Verdict.BUSY for row in rows) and not any(row.ratio for row in rows)


def _alone(reference: Comparison) -> Comparison:
    """Its seconds would be read beside rows that have none, though they come from the same disturbed minutes."""
    return replace(reference, ratio=None, verdict=Verdict.BUSY, reason="no other row could be compared with it")


def _busy(table: Table, label: str, row: Row) -> Comparison:
    """No ratio: disturbed rounds of two forms differ by more than chance."""
    held = any(timed.held for made in table.rounds[label].values() for timed in made.values())
    reason = f"{row.clean_rounds} of {row.rounds} rounds were undisturbed: {CLOCKS_HELD if held else CPUS_TAKEN}"
    return _comparison(table.plan, label, None, Verdict.BUSY, reason)


def control_slack(report: Report) -> float:
    """By how much (in logs) the reference of a run differs from itself, where that is more than chance; else 0."""
    control = table_of(report).ratio(CONTROL, report.plan.reference).mean()
    return slack_of(control) if control else 0.0


def slack_of(control: Mean) -> float:
    """By how much (in logs) the reference differs from itself, where that is more than chance; else 0."""
    interval = control.interval(CONTROL_CONFIDENCE)
    if interval is None or interval[0] <= 0 <= interval[1]:
        return 0.0
    return max(map(abs, interval))


def _control(mean: Mean, slack: float) -> tuple[Verdict, str]:
    """The reference against itself: the same, unless it differs by more than chance."""
    if mean.freedom <= 0:
        return Verdict.UNCLEAR, ONE_WORKER
    if slack:
        return Verdict.SLOWER if mean.mean > 0 else Verdict.FASTER, ""
    return Verdict.UNCLEAR if mean.half(CONFIDENCE) > CONTROL_WITHIN else Verdict.SAME, ""


def _comparison(plan: Plan, label: str, ratio: Estimate | None, verdict: Verdict, reason: str = "") -> Comparison:
    reference = plan.reference_of(label)
    return Comparison(case=label, reference=reference, metric=LATENCY, ratio=ratio, verdict=verdict, reason=reason)


def is_launch_bound(device: Estimate | None, host: Estimate | None) -> bool | None:
    """Whether issuing its work takes the CPU longer (`host`) than the device works for it: calls one after another take
    whichever is longer. None where the intervals overlap, have no ends, or one of the two is not known.
    """
    ends = [end for one in (device, host) if one for end in (one.low, one.high) if end is not None]
    if len(ends) < 4:
        return None
    device_low, device_high, host_low, host_high = ends
    if host_low > device_high:
        return True
    return False if host_high < device_low else None


def launch_bound(report: Report, label: str) -> bool | None:
    """Whether a row's time is that of the CPU that issues its work; None where that is not known."""
    return is_launch_bound(report.estimate(label, DEVICE_TIME), report.estimate(label, HOST_TIME))


def _notes(run: Run, measured: list[Measured], comparisons: tuple[Comparison, ...]) -> list[Note]:
    """Every warning that can be read off a run's samples and estimates."""
    notes = [*_overhead(run, measured), *_untrusted(comparisons)]
    if any(c.verdict is Verdict.BUSY and c.case != CONTROL for c in comparisons):
        return [*notes, Note(text=busy_text(run), kind=NoteKind.BUSY)]
    told = ((left_out, NoteKind.NOISE), (device_others, NoteKind.NOISE), (device_clocks, NoteKind.MOVES))
    return [*notes, *(Note(text=text, kind=kind) for tell, kind in told if (text := tell(run)))]


def busy_text(run: Run | Report) -> str:
    """Who is busy, as far as that is known, and what to do about it."""
    unclean = [sample for sample in run.samples if sample.metric == LATENCY and not is_clean(sample)]
    rounds, around = table_of(run).fewest_clean(), run.around
    clean = f"{rounds.label}: {rounds.clean} of {rounds.made} rounds undisturbed" if rounds else ""
    if unclean and 2 * sum(map(waited_for, unclean)) < len(unclean):  # the device's clocks, and not the CPUs
        held = f"{CLOCKS_HELD} ({' and '.join(_causes(unclean))})"
        return f"busy: {', '.join(filter(None, (held, clean)))}; let it cool down, or see `ffnbench env`"
    threads = max((c.workload.threads for c in run.plan.cases if c.workload.device == "cpu"), default=1)
    if run.environment and threads > (cpus := run.environment.usable_cpus):
        return f"busy: {threads} threads had {counted(cpus, 'CPU')}; try --threads {cpus}"
    who = CPUS_TAKEN
    if around and around.others_cpus is not None and around.others_cpus > OTHERS_CPUS:
        who = f"other processes used {around.others_cpus:.1f} CPUs"
    ways = ["--threads 1"] if max(case.workload.threads for case in run.plan.cases) > 1 else []
    ways += ["a longer --budget"] if run.plan.protocol.precision is not None else []
    return f"busy: {', '.join(filter(None, (who, clean)))}; wait{', or try ' * bool(ways)}{' or '.join(ways)}"


def _causes(samples: Iterable[Sample]) -> list[str]:
    """What held the clocks of their device down."""
    return list(dict.fromkeys(name for sample in samples for name in held_down(sample)))


def left_out(run: Run | Report) -> str:
    """The count of the disturbed samples, where there are any, and of the rounds that they leave."""
    rounds, latencies = table_of(run).fewest_clean(), [s for s in run.samples if s.metric == LATENCY]
    unclean = [sample for sample in latencies if not is_clean(sample)]
    if rounds is None or not unclean:
        return ""
    why = ["they waited for a CPU"] if any(map(waited_for, unclean)) else []
    why += [f"{CLOCKS_HELD} by {' and '.join(causes)}"] if (causes := _causes(unclean)) else []
    text = f"{len(unclean):,} of {len(latencies):,} samples are left out: {' or '.join(why)}"
    disturbed = rounds.made - rounds.clean
    return text + f"; {rounds.label}: {disturbed:,} of {rounds.made:,} rounds disturbed" * bool(disturbed)


def device_clocks(run: Run | Report) -> str:
    """Where the clock of a device moved: how far, and how often it was at its power limit."""
    told = []
    for device, seen in _by_device(run).items():
        clocks = [mhz for one in seen for mhz in (one.least_clock_mhz, one.most_clock_mhz) if mhz]
        if clocks and min(clocks) < (1 - MOVES) * max(clocks):
            text = f"the clock of {device} fell from {max(clocks):,} to {min(clocks):,} MHz"
            capped = [POWER_CAP in (s.throttled or "") for s in run.samples if s.metric == LATENCY]
            told.append(
                f"{text}, at its {POWER_CAP} in {percent(fmean(capped))} of the samples" if any(capped) else text
            )
    return "; ".join(told)


def device_others(run: Run | Report) -> str:
    """Who else computed on a device."""
    most = {device: max(one.others or 0 for one in seen) for device, seen in _by_device(run).items()}
    return "; ".join(f"{counted(n, 'other process')} computed on {device}" for device, n in most.items() if n)


def _by_device(run: Run | Report) -> dict[str, list[DeviceSeen]]:
    found: dict[str, list[DeviceSeen]] = {}
    for seen in run.devices:
        found.setdefault(seen.device, []).append(seen)
    return found


def _overhead(run: Run, measured: list[Measured]) -> list[Note]:
    """Calls so short that the harness is a part of them."""
    if run.timer is None:
        return []
    notes = []
    for m in [m for m in measured if m.metric == LATENCY and m.case != CONTROL]:
        empty, seconds = run.timer.empty_call_s, m.estimate.value
        if seconds < LEAST_OVERHEADS * empty:
            text = f"calls below {LEAST_OVERHEADS * empty * 1e6:.0f} us are partly overhead: "
            text += "give them more work (--seq-len, --batch, --elements)"
            notes.append(Note(label=m.case, text=text, kind=NoteKind.SHORT))
    return notes


def _untrusted(comparisons: tuple[Comparison, ...]) -> list[Note]:
    """The control: the reference against itself."""
    return [
        Note(
            text=f"the machine is too noisy: the reference took {c.ratio.value:.3f} times its own time; "
            "see `ffnbench env`, wait, and measure again",
            kind=NoteKind.NOISE,
        )
        for c in comparisons
        if c.case == CONTROL and c.ratio and c.verdict in (Verdict.SLOWER, Verdict.FASTER)
    ]

"""What the live exam asks and what it counts: what runs said of a row, and when that is wrong. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log, sqrt
from statistics import median

from exam.text import table
from ffnbench.common.units import percent
from ffnbench.plan import Plan
from ffnbench.planning.compare import plan_compare
from ffnbench.request import CompareRequest
from ffnbench.result import SAME_WITHIN, Verdict

OURS, RIVALS = "ffnbench", ("torch Timer", "median loop")
REFERENCE, FORM, SLOWED_FORM, SLOWED_BY = "relu", "swiglu", "swiglu5", 0.05
TRUTH_PRECISION, TRUTH_BUDGETS = 0.003, 4  # a fraction; budgets of a run


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What a row's ratio to the reference is, with its interval: found by a long quiet run."""

    value: float
    low: float
    high: float

    def slowed(self, share: float) -> Truth:
        """The truth of the same row slowed down by exactly that share."""
        return Truth(value=self.value * (1 + share), low=self.low * (1 + share), high=self.high * (1 + share))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one method said of one row, once, beside the truth of that row."""

    world: str
    method: str
    repeat: int
    row: str
    truth: float
    truth_low: float
    truth_high: float
    ratio: float | None
    low: float | None
    high: float | None
    verdict: str
    seconds: float  # the whole run


def exam_plan(**options: object) -> Plan:
    """Another form than the reference's, and the same slowed down by a known share."""
    variants = f"{REFERENCE},{FORM},{SLOWED_FORM}={FORM}@slowdown={SLOWED_BY}"
    return plan_compare(CompareRequest(variants=variants, device="cpu", metrics="latency", **options))  # type: ignore[arg-type]


def truth_plan(exam: Plan) -> Plan:
    """The long run that tells what the runs of an exam should find."""
    cases = tuple(case for case in exam.cases if case.label != SLOWED_FORM)
    budget = TRUTH_BUDGETS * (exam.protocol.budget_s or 0.0)
    return replace(exam, cases=cases, protocol=replace(exam.protocol, precision=TRUTH_PRECISION, budget_s=budget))


def truths_of(truth: Truth, plan: Plan) -> dict[str, Truth]:
    """The truth of each row of a plan: FORM's, slowed down as the row is."""
    rows = [case for case in plan.shown if not plan.is_reference(case.label)]
    return {case.label: truth.slowed(case.workload.slowdown) for case in rows}


def is_wrong(reading: Reading) -> bool:
    """Whether the truth's interval contradicts what was said.

    Slower though it is not above 1, faster though it is not below, the same though it is wholly outside of what is
    called the same; or an interval that has no ratio in common with it.
    """
    low, high = reading.truth_low, reading.truth_high
    contradicted = {
        Verdict.SLOWER: high <= 1,
        Verdict.FASTER: low >= 1,
        Verdict.SAME: high < 1 - SAME_WITHIN or low > 1 + SAME_WITHIN,
    }
    missed = reading.low is not None and reading.high is not None and (reading.low > high or reading.high < low)
    return missed or contradicted.get(reading.verdict, False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What the runs of one method in one world came to."""

    runs: int
    wrong: int  # runs with a row that is wrong
    busy: int  # runs with a row that is not decided because others were busy
    decided: int  # runs that call SLOWED_FORM slower
    error: float | None  # rms error of the log of FORM's ratio
    half: float | None  # median half-width of FORM's interval, relative
    seconds: float  # mean


def score_of(readings: Sequence[Reading], world: str, method: str) -> Score:
    """Count the runs of a method in a world."""
    runs = _runs([r for r in readings if (r.world, r.method) == (world, method)])
    rows = [reading for run in runs for reading in run if reading.row == FORM]
    errors = [log(r.ratio / r.truth) ** 2 for r in rows if r.ratio]
    halves = [(r.high - r.low) / 2 / r.ratio for r in rows if r.ratio and r.low is not None and r.high is not None]
    return Score(
        runs=len(runs),
        wrong=sum(any(map(is_wrong, run)) for run in runs),
        busy=sum(any(r.verdict == Verdict.BUSY for r in run) for run in runs),
        decided=sum(any(r.row == SLOWED_FORM and r.verdict == Verdict.SLOWER for r in run) for run in runs),
        error=sqrt(sum(errors) / len(errors)) if errors else None,
        half=median(halves) if halves else None,
        seconds=sum(run[0].seconds for run in runs) / len(runs) if runs else 0.0,
    )


def _runs(readings: Sequence[Reading]) -> list[list[Reading]]:
    """The rows of each repeat."""
    found: dict[int, list[Reading]] = defaultdict(list)
    for reading in readings:
        found[reading.repeat].append(reading)
    return list(found.values())


def lines(readings: Sequence[Reading]) -> list[tuple[str, str]]:
    """Each world with each method that measured there, in the order of measuring: worlds first."""
    pairs = {(r.world, r.method): None for r in readings}
    worlds = {world: None for world, _ in pairs}
    return [pair for world in worlds for pair in pairs if pair[0] == world]


def report(readings: Sequence[Reading]) -> str:
    """What each method got wrong in each world."""
    head = ("world", "method", "runs", "wrong", "busy", "decided", "error", "half-width", "a run")
    rows = [(world, method, *_texts(score_of(readings, world, method))) for world, method in lines(readings)]
    half = max((r.truth_high - r.truth_low) / 2 / r.truth for r in readings)
    notes = (
        f"{FORM} against {REFERENCE}, and {SLOWED_FORM}, the same slowed down by exactly {SLOWED_BY:.0%}, held against "
        "a long quiet run, the truth",
        "wrong: runs with a verdict that the truth's interval contradicts, or an interval that misses the truth's",
        "busy: runs with a row left undecided because other processes used the CPUs",
        f"decided: runs that call {SLOWED_FORM} slower",
        f"error: rms of the log of {FORM}'s ratio, against the truth; half-width: of its interval, the median",
        f"the truth is known to +-{percent(half)} or better",
        "methods other than ffnbench give no verdict: their ratios are taken at their word, within 2% the same",
    )
    return "\n".join((table(head, rows, left=2), "", *notes))


def _texts(score: Score) -> tuple[str, ...]:
    shares = ("-" if share is None else percent(share) for share in (score.error, score.half))
    return (*map(str, (score.runs, score.wrong, score.busy, score.decided)), *shares, f"{score.seconds:.0f} s")


def contradictions(readings: Sequence[Reading]) -> list[str]:
    """Which promises were not kept: nothing that ffnbench says is wrong."""
    ours = [score_of(readings, world, method) for world, method in lines(readings) if method == OURS]
    wrong = sum(of.wrong for of in ours)
    return [f"{wrong} of {sum(of.runs for of in ours)} runs are wrong"] if wrong else []

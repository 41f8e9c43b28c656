"""The answer: samples, estimates, comparisons, failures and where they were made. Plain
data, to and from JSON.

Base units (seconds, bytes); unknown is None. Nothing is decided here (stats/) and
nothing is formatted (report/).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, TypeVar

from ffnbench.choices import MatmulPrecision
from ffnbench.common.jsonable import LATER, OTHER_FIELDS, STATED, UNSAVED, least
from ffnbench.ffn.cost import Cost
from ffnbench.metrics import CLOSED_FORMS, LATENCY
from ffnbench.plan import CONTROL, Axis, Case, Needed, Note, Plan, Protocol

SCHEMA = 2
KEPT = 20  # runs of a baseline, beside the oldest
MEMORY = "memory"  # the level of bytes that no cache holds
# a card at its power limit, where heavy products keep it: no trouble from outside
POWER_CAP = "power cap"
CONFIDENCE = 0.95  # of every interval, as stated
SAME_WITHIN = 0.02  # of a ratio that is the same
# quiet samples wait 0.3 % (median), those beside a spinner 77 %; 1 % gives the same
# rows
WAITED = 0.03
SIZES_ALIKE = 0.05  # sizes that differ by no more share one roof
LONGEST_S = 1800  # that a hint asks for
R = TypeVar("R", bound="Report")


class Verdict(StrEnum):
    """What the interval of a ratio allows to say.

    UNCLEAR: this run can't decide. BUSY: it can't, since something else had the CPUs,
    or the device's clocks were held down, and the rounds that were left alone do not
    decide. A BUSY row has neither seconds nor ratio; a reference, or a row that stands
    alone, is BUSY where it has no seconds.
    """

    REFERENCE = "reference"
    SLOWER = "slower"
    FASTER = "faster"
    SAME = "same"
    UNCLEAR = "unclear"
    BUSY = "busy"


class FailureKind(StrEnum):
    """Why a case has no numbers. MISMATCH: its output or a gradient is not what it
    should be. LOST: what was to measure it has ended without a result. DIVERGED: its
    numbers grew beyond what they can mean.
    """

    OOM = "oom"
    UNSUPPORTED = "unsupported"
    CRASH = "crash"
    TIMEOUT = "timeout"
    MISMATCH = "mismatch"
    RECOMPILED = "recompiled"
    LOST = "lost"
    DIVERGED = "diverged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measured value of one case: mean over `calls` calls, at place `order` of a
    round of a worker.

    `waited` is the share of its time that the worker's threads waited for a CPU, None
    where that is not known; `starter` is the process that the worker was forked from,
    None where it is an interpreter of its own; `faults` are the page faults while it
    was measured, None where they are not counted. `throttled` names what held the
    device's clocks down when it ended, by commas, "" for nothing, None where that is
    not known.
    """

    case: str
    metric: str
    worker: int = field(metadata=least(0))
    round: int = field(metadata=least(0))
    order: int = field(metadata=least(0))
    value: float
    calls: int = field(metadata=least(1))
    waited: float | None = field(default=None, metadata=LATER)
    starter: int | None = field(default=None, metadata=LATER)
    faults: int | None = field(default=None, metadata=LATER)
    throttled: str | None = field(default=None, metadata=LATER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A case that could not be measured: a row of the table, never a crash."""

    case: str
    kind: FailureKind
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value and its interval over `workers` independent processes; exact metrics have
    no interval.
    """

    value: float
    low: float | None = None
    high: float | None = None
    confidence: float = 0.95
    workers: int = 1
    samples: int = 1

    @property
    def half_width(self) -> float | None:
        """Half the interval, relative to the value; None without an interval."""
        if not self.low or not self.high:
            return None
        return math.sqrt(self.high / self.low) - 1

    def inverse(self) -> Estimate:
        """Of a ratio that of the other to the one: how many times as fast, where this
        is of times.
        """
        low = None if self.high is None else 1 / self.high
        high = None if self.low is None else 1 / self.low
        return replace(self, value=1 / self.value, low=low, high=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The estimate of one metric of one case."""

    case: str
    metric: str
    estimate: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A case's metric against the reference's, as a ratio measured within the same
    rounds.
    """

    case: str
    reference: str
    metric: str
    ratio: Estimate | None
    verdict: Verdict
    reason: str = ""
    # the smallest relative difference that this row could have shown
    resolution: float | None = None


class Bound(StrEnum):
    """What keeps a call from being faster: matrix products, the reading of bytes, or
    the call itself.
    """

    PRODUCTS = "products"
    BYTES = "bytes"
    CALL = "call"


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """A call that shows what the machine can do, timed in the same rounds as the cases:
    a ceiling is the best of them.

    `name` is the `case` of its samples (metric ROOF); no case has such a name, for it
    begins with a parenthesis. `amount` of one call: FLOPs of PRODUCTS, bytes of BYTES,
    1 of CALL. `path` is the library or function. `shape` is (tokens, out, in) of a
    product. `level` is the cache that the bytes fit into: L1, L2, L3 or memory.
    """

    name: str
    bound: Bound
    path: str
    amount: int = field(metadata=least(1))
    device: str
    dtype: str
    threads: int = field(metadata=least(1))
    shape: tuple[int, ...] = ()
    level: str = ""
    matmul_precision: MatmulPrecision = field(
        default=MatmulPrecision.HIGHEST, metadata=LATER
    )

    @property
    def read_bytes(self) -> int:
        """The bytes of its buffer, which a call may read several times: its shape then
        says how often.
        """
        if not self.shape:
            return self.amount
        return self.amount // self.shape[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """The fastest roof of a bound in a run, and the mean seconds of its call."""

    roof: Roof
    seconds: float

    @property
    def rate(self) -> float:
        """FLOPs, bytes or calls per second."""
        return self.roof.amount / self.seconds

    def least_s(self, needed: Needed) -> float | None:
        """The least seconds that a call of these needs takes by this bound; None where
        it is not known.
        """
        match self.roof.bound:
            case Bound.PRODUCTS:
                amount = needed.flops
            case Bound.BYTES:
                amount = needed.bytes
            case Bound.CALL:
                amount = 1
        if amount is None:
            return None
        return self.seconds * amount / self.roof.amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How near a case is to the ceiling that binds it: the least time that this ceiling
    allows, over its latency.

    `roof` is the name of the Roof. `share` is above 1 only by noise, or where the case
    does less than it claims.
    """

    case: str
    bound: Bound
    roof: str
    share: Estimate


Fact = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Where the numbers were made. `fingerprint` names the kind of machine and software
    that latency depends on.

    `gpu` is the device that is used, where it is not the CPU. `facts` are all else that
    is known of machine, software and device, by name; in a file they stand beside the
    other fields.
    """

    fingerprint: str
    cpu: str
    usable_cpus: int
    cpu_capability: str | None = None
    gpu: str | None = None
    torch: str | None = None
    git_commit: str | None = None
    git_dirty: bool | None = None
    facts: dict[str, Fact] = field(default_factory=dict, metadata=OTHER_FIELDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer:
    """What measuring itself costs in a worker, in seconds: a call of an empty module,
    and one tick of the clock; in older files, what a page fault costs.
    """

    empty_call_s: float
    resolution_s: float
    fault_s: float | None = field(default=None, metadata=LATER)


STEP_END = "  "


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a run is: what the runner tells whoever listens.

    In `text`, STEP_END stands between the step and a detail, which a log leaves out.
    """

    done: float  # share of the whole run, 0 to 1
    text: str
    eta_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundLoad:
    """What else the machine did during a run: CPUs that other processes used on
    average, None where that is not known.

    In older files also the load at its start, and by worker the share of the CPUs' time
    that the hypervisor gave to others.
    """

    others_cpus: float | None = None
    load: float | None = None
    stolen: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReadings:
    """What a worker read of a device right after its samples; unknown is None.

    It is the least and the most of the clock of its cores, and how many other processes
    computed on it at the first.
    """

    worker: int = field(metadata=least(0))
    device: str
    least_clock_mhz: int | None = None
    most_clock_mhz: int | None = None
    others: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One arm of a run: its cases, and what (name, value) not all arms share."""

    name: str
    cases: tuple[str, ...]
    differing: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Outputs of base and head on one input with the base's weights: relative errors
    (Frobenius), unknown is None.

    `error` is head against base in the case's dtype, `exact_error` the same with both
    run in float64. `own_weights` says why the weights could not be carried over, and
    then each side has its own of the same seed. `tolerance` is what rounding explains.
    """

    error: float | None
    tolerance: float
    exact_error: float | None = None
    own_weights: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The inputs of a sample's calls: so many that none repeats, and the bytes of all.
    Part of a case's workload.

    `level` is the cache that holds them all, `one_level` the one that holds a single
    one: L1, L2, L3 or memory, empty where that is not known.
    """

    case: str
    count: int = field(metadata=least(1))
    bytes: int = field(metadata=least(0))
    level: str = field(default="", metadata=LATER)
    one_level: str = field(default="", metadata=LATER)


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What is a run's own, raw, before any statistics."""

    samples: tuple[Sample, ...] = field(default=(), repr=False)
    environment: Environment | None = None
    failures: tuple[Failure, ...] = ()
    interrupted: bool = False
    stopped: str = ""  # why the run ended early, where it was not by hand
    limit: str = ""  # which limit ended an adaptive run: precision, budget or workers
    around: BackgroundLoad | None = field(default=None, metadata=LATER)
    wall_s: float | None = None
    inputs: tuple[Inputs, ...] = field(default=(), metadata=LATER)
    devices: tuple[DeviceReadings, ...] = field(default=(), metadata=LATER)


@dataclass(frozen=True, kw_only=True)
class Run(Measurement):
    """What the runner hands back. `sides` say where arms differ, if there are
    several.
    """

    plan: Plan  # the device resolved
    warnings: tuple[Note, ...] = ()
    timer: Timer | None = None
    sides: tuple[Side, ...] = field(default=(), metadata=LATER)
    roofs: tuple[Roof, ...] = field(default=(), metadata=LATER)


def raw_of(run: Run) -> dict[str, Any]:
    """All that a run holds by name, as a Report has it too."""
    return {f.name: getattr(run, f.name) for f in fields(Run)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationCurve:
    """An activation traced: x, f(x) and f'(x) in float64.

    The slope is NaN, a gap, where f has no finite derivative.
    """

    x: tuple[float, ...]
    y: tuple[float, ...]
    slope: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseCost:
    """The cost of one case."""

    case: str
    cost: Cost


@dataclass(frozen=True, kw_only=True)
class Repeat(Measurement):
    """A later run of a report's plan that is kept in the same file."""

    created: str
    version: str
    protocol: Protocol


# what a repeat and a report have alike
REPEATED = [f.name for f in fields(Repeat) if f.name != "protocol"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """Where a variant becomes slower than one that stands before it in the plan, or
    where not `slower` faster, as the axis grows. `within` are the values of the other
    axes.
    """

    within: Mapping[str, object]
    variant: str
    than: str
    slower: bool
    at: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossings:
    """All crossings along an axis, in the order of the plan; `lines` are how often they
    were looked for, once for each combination of the values of the other axes.
    """

    axis: Axis
    lines: int
    places: tuple[Crossing, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fastest:
    """The answer for one network and workload: `first` holds the fastest, by label, and
    what can't be told from it.

    `verdict` is FASTER for one that is the fastest, SAME for several that are the same,
    else UNCLEAR. `against` is the row that `ratios`, of the first ones and in their
    order, are relative to.
    """

    cases: tuple[Case, ...]
    first: tuple[str, ...]
    verdict: Verdict
    against: str
    ratios: tuple[Estimate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowing:
    """What would decide the rows that could not be told: intervals of half width
    `precision`, of which `is_asked` says whether that was asked for, by so many
    seconds; None where no run has so many. `is_likely`: whether these will do.
    """

    rows: int
    precision: float
    is_asked: bool
    seconds: float | None
    is_likely: bool = True


@dataclass(frozen=True, kw_only=True)
class TradeOff:
    """Time against error in the group of a reference, by labels: the Pareto front, the
    fastest row, and the fastest of those whose error is small, None where none is.
    """

    reference: str
    front: tuple[str, ...]
    fastest: str
    fastest_of_small_error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What stats/ finds of a report beyond estimates and comparisons. It stands in no
    file: samples give it again.

    By label: `rounds`, clean ones and all; `launch_bound`; `ceilings`, of each bound
    the fastest; `over_runs`, the mean of the ratio over several runs; `matched`, the
    rows whose d_ff was found by time, with their parameters relative to those of the
    reference (0.03 is 3 % more), None where these are not known. `roofline` are the
    ceilings that a picture shows. `cells` are how many of a sweep are complete, of how
    many.
    """

    rounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    launch_bound: Mapping[str, bool | None] = field(default_factory=dict)
    ceilings: Mapping[str, Mapping[Bound, Ceiling]] = field(default_factory=dict)
    roofline: tuple[Ceiling, ...] = ()
    over_runs: Mapping[str, Estimate] = field(default_factory=dict)
    crossings: Crossings | None = None
    fastest: tuple[Fastest, ...] = ()
    narrowing: Narrowing | None = None
    trade_offs: tuple[TradeOff, ...] = ()
    matched: Mapping[str, float | None] = field(default_factory=dict)
    cells: tuple[int, int] = (1, 1)


@dataclass(frozen=True, kw_only=True)
class Report(Run):
    """The whole answer, with the question and every sample: each figure can be computed
    again from it.
    """

    costs: tuple[CaseCost, ...]
    created: str
    version: str
    measured: tuple[Measured, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    shares: tuple[Share, ...] = field(default=(), metadata=LATER)
    # later runs, in order
    repeats: tuple[Repeat, ...] = field(default=(), repr=False, metadata=LATER)
    # whether fewer repeats were made than asked for
    cut_short: bool = field(default=False, metadata=LATER)
    schema: int = field(default=SCHEMA, metadata=STATED)
    figures: Figures = field(
        default=Figures(), compare=False, repr=False, metadata=UNSAVED
    )

    @cached_property
    def _of_cases(self) -> dict[str, dict[str, Any]]:
        """What there is one of for each case, by the name of its field and the case; of
        several the first.
        """
        names = ("costs", "comparisons", "inputs", "shares", "failures")
        return {
            name: {entry.case: entry for entry in reversed(getattr(self, name))}
            for name in names
        }

    @cached_property
    def _estimates(self) -> dict[tuple[str, str], Estimate]:
        return {(row.case, row.metric): row.estimate for row in reversed(self.measured)}

    @cached_property
    def _rounds(self) -> dict[str, int]:
        made: dict[str, int] = {}
        for sample in self.samples:
            if sample.metric == LATENCY:
                made[sample.case] = max(made.get(sample.case, 0), sample.round + 1)
        return made

    def cost(self, label: str) -> Cost:
        """The cost of a case."""
        return self._of_cases["costs"][label].cost  # type: ignore[no-any-return]

    def estimate(self, label: str, metric: str) -> Estimate | None:
        """The estimate of a metric of a case, or None."""
        return self._estimates.get((label, metric))

    def comparison(self, label: str) -> Comparison | None:
        """The comparison of a case's latency with the reference's, or None."""
        return self._of_cases["comparisons"].get(label)

    def has_time(self, label: str) -> bool:
        """Whether a case has a time that can be held against another one's: it did not
        fail, nothing disturbed it.
        """
        return self.estimate(label, LATENCY) is not None and self.failure(label) is None

    def failure(self, label: str) -> Failure | None:
        """Why a case failed, or None."""
        return self._of_cases["failures"].get(label)

    def mismatch(self, label: str) -> str:
        """How the answer of a case differs from what it should be; empty where it was
        not seen to.
        """
        failure = self.failure(label)
        if failure is None or failure.kind is not FailureKind.MISMATCH:
            return ""
        return failure.message

    def inputs_of(self, label: str) -> Inputs | None:
        """The inputs of a sample of a case, or None where that is not known."""
        return self._of_cases["inputs"].get(label)

    def share(self, label: str) -> Share | None:
        """How near a case is to its ceiling, or None where that is not known."""
        return self._of_cases["shares"].get(label)

    def notes(self, label: str) -> list[Note]:
        """The warnings of a case; for an empty label those of the run as a whole, after
        what its plan says of it.
        """
        of_plan = [] if label else self.plan.notes
        return [note for note in (*of_plan, *self.warnings) if note.label == label]

    def value(self, label: str, metric: str) -> float | None:
        """The value of a metric, or None. What was not meant to be measured is that of
        its closed form.
        """
        estimate = self.estimate(label, metric)
        if estimate is not None:
            return estimate.value
        if self.environment is None and metric in CLOSED_FORMS:
            return getattr(self.cost(label), metric)  # type: ignore[no-any-return]
        return None

    def rounds(self, label: str) -> int:
        """Rounds that a worker really made of a case, at most: an interrupted one made
        fewer than planned.
        """
        return self._rounds.get(label, self.plan.protocol.rounds)

    @property
    def failed_wholly(self) -> bool:
        """Whether there is nothing but failures."""
        return bool(self.failures) and all(
            self.failure(case.label) for case in self.plan.shown
        )

    @property
    def resolution(self) -> float | None:
        """The smallest relative difference that every row of this run could have
        shown.
        """
        resolutions = [
            row.resolution
            for row in self.comparisons
            if row.case != CONTROL and row.resolution is not None
        ]
        return max(resolutions, default=None)

    @property
    def runs(self) -> tuple[Report, ...]:
        """This run and its repeats, each by itself and the oldest first; what is
        computed from samples is in none.
        """
        alone = replace(
            self,
            repeats=(),
            comparisons=(),
            measured=(),
            shares=(),
            warnings=(),
            figures=Figures(),
        )
        runs = [alone]
        for repeat in self.repeats:
            own = {name: getattr(repeat, name) for name in REPEATED}
            runs.append(
                replace(alone, plan=replace(self.plan, protocol=repeat.protocol), **own)
            )
        return tuple(runs)

    def with_repeat(self: R, now: Report) -> R:
        """With a further run of the same plan, by time; the oldest and the KEPT newest
        are kept.
        """
        labels = {case.label for case in self.plan.cases}
        own = {name: getattr(now, name) for name in REPEATED}
        for name in ("samples", "failures", "inputs"):
            own[name] = tuple(entry for entry in own[name] if entry.case in labels)
        repeats = [*self.repeats, Repeat(protocol=now.plan.protocol, **own)]
        repeats.sort(key=lambda run: run.created)
        return replace(self, repeats=tuple(repeats[-KEPT:]))

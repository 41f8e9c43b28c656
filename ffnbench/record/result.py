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

from ffnbench.common.jsonable import OTHER_FIELDS
from ffnbench.ffn.cost import Cost
from ffnbench.plan.metrics import CLOSED_FORMS, LATENCY
from ffnbench.plan.plan import Note, Plan, Protocol

SCHEMA = 2
# the name in Sample.throttled of a card at its power limit; heavy products alone keep
# it there, so it is no disturbance
POWER_CAP = "power cap"
CONFIDENCE = 0.95  # of every interval, as stated
SAME_WITHIN = 0.02  # how far from 1 the interval of a ratio that is the same may reach
# the largest Sample.waited of a clean sample: quiet samples wait 0.3 % (median), those
# beside a busy loop 77 %; a limit of 1 % gives the same rows
MOST_WAITED = 0.03
LONGEST_BUDGET_S = 1800  # the longest budget that a hint asks for
R = TypeVar("R", bound="Report")


class Verdict(StrEnum):
    """What the interval of a ratio allows to say.

    UNCLEAR: this run can't decide. BUSY: it can't, because something else had the CPUs,
    or the device's clocks were held down, and the clean rounds do not decide. The
    seconds and the ratio of a BUSY row have the interval of its clean rounds; if these
    are too few, they are what was seen, without an interval.
    """

    REFERENCE = "reference"
    SLOWER = "slower"
    FASTER = "faster"
    SAME = "same"
    UNCLEAR = "unclear"
    BUSY = "busy"


class FailureKind(StrEnum):
    """Why a case has no numbers. MISMATCH: its output or a gradient is not what it
    should be. LOST: the job that was to measure it has ended without a result.
    """

    OOM = "oom"
    UNSUPPORTED = "unsupported"
    CRASH = "crash"
    TIMEOUT = "timeout"
    MISMATCH = "mismatch"
    RECOMPILED = "recompiled"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measured value of one case: the mean over `calls` calls, which were made as
    number `order` of a round of a worker.

    `waited` is the share of its time that the worker's threads waited for a CPU, None
    where that is not known; `starter` is the process that the worker was forked from,
    None where it is an interpreter of its own; `faults` are the page faults while it
    was measured, None where they are not counted. `throttled` names what held the
    device's clocks down when it ended, by commas, "" for nothing, None where that is
    not known.
    """

    case: str
    metric: str
    worker: int
    round: int
    order: int
    value: float
    calls: int
    waited: float | None = None
    starter: int | None = None
    faults: int | None = None
    throttled: str | None = None


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

    def without_interval(self) -> Estimate:
        """The value alone."""
        return replace(self, low=None, high=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The estimate of one metric of one case."""

    case: str
    metric: str
    estimate: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A case's metric divided by the reference's, measured in the same rounds. `reason`
    says why there is no clear verdict, where the interval alone does not tell.
    """

    case: str
    reference: str
    metric: str
    ratio: Estimate | None
    verdict: Verdict
    reason: str = ""


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
    """What measuring costs in a worker, in seconds: a call of an empty module."""

    empty_call_s: float


STEP_END = "  "


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Where a run is: what the runner tells whoever listens.

    In `text`, STEP_END stands between the step and a detail, which a log leaves out.
    """

    done: float  # share of the whole run, 0 to 1
    text: str
    eta_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One arm of a run: its cases, and the facts about it (name, value) that are not
    the same for all arms.
    """

    name: str
    cases: tuple[str, ...]
    differing: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How far the output of head is from that of base, on one input with the weights of
    base: relative errors (Frobenius), unknown is None.

    `error` is that in the case's dtype, `exact_error` that of both run in float64.
    `own_weights` says why the weights could not be carried over, and then each side has
    its own of the same seed. `tolerance` is the largest error that rounding explains.
    """

    error: float | None
    tolerance: float
    exact_error: float | None = None
    own_weights: str = ""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What one run has measured, before any statistics."""

    samples: tuple[Sample, ...] = field(default=(), repr=False)
    environment: Environment | None = None
    failures: tuple[Failure, ...] = ()
    interrupted: bool = False
    stopped: str = ""  # why the run ended early, where it was not by hand
    limit: str = ""  # which limit ended an adaptive run: precision, budget or workers
    wall_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Run(Measurement):
    """What the runner returns. `sides` say in what the arms differ, where there are
    several.
    """

    plan: Plan  # on a device that is there, no longer `auto`
    warnings: tuple[Note, ...] = ()
    timer: Timer | None = None
    sides: tuple[Side, ...] = ()


def fields_of(kind: type[Any], source: object) -> dict[str, Any]:
    """The fields of a dataclass by name, with the values that `source` has for them."""
    names = [each.name for each in fields(kind) if hasattr(source, each.name)]
    return {name: getattr(source, name) for name in names}


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """Where along an axis `variant` becomes slower than `than`, or, where `slower` is
    False, faster. `than` stands before it in the plan. `at` is the value of the axis,
    `within` are those of the other axes.
    """

    axis: str
    within: Mapping[str, object]
    variant: str
    than: str
    slower: bool
    at: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowing:
    """The run that would decide the UNCLEAR rows, of which there are `rows`: one with
    the precision `precision` and a budget of `seconds`, None where no budget is enough.
    `is_asked` is whether this run was asked for that precision.
    """

    rows: int
    precision: float
    is_asked: bool
    seconds: float | None


@dataclass(frozen=True, kw_only=True)
class TradeOff:
    """Time against error in the group of a reference: the labels of the rows on the
    Pareto front.
    """

    reference: str
    front: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InPlace:
    """The FFN in a stack of blocks: its `share` of the stack's time, its `part` of a
    block's seconds, and the `ratio` of that to the reference's part. `differs` is
    whether the FFN alone has another ratio, beyond both intervals. None is not known.
    """

    share: Estimate | None = None
    part: Estimate | None = None
    ratio: Estimate | None = None
    differs: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What stats/ computes from a report beside estimates and comparisons. It stands in
    no file, because it follows from the samples.

    Mappings are by label. `launch_bound` is whether the host limits a row's time on an
    accelerator; `rates` are the least time of bare products and a copy over that of a
    row; `over_runs` is the mean of the ratio over several runs; `in_place` is of
    stacks of blocks. `cells` is how many cells of a sweep are complete, and how many
    there are.
    """

    launch_bound: Mapping[str, bool | None] = field(default_factory=dict)
    rates: Mapping[str, Estimate] = field(default_factory=dict)
    over_runs: Mapping[str, Estimate] = field(default_factory=dict)
    in_place: Mapping[str, InPlace] = field(default_factory=dict)
    crossings: tuple[Crossing, ...] = ()
    narrowing: Narrowing | None = None
    trade_offs: tuple[TradeOff, ...] = ()
    cells: tuple[int, int] = (1, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareBound:
    """The least seconds of a case on a machine, by its published peaks, and what bounds
    it: products or memory. Where no time is known, `bound_by` says what is missing.
    """

    case: str
    hardware: str
    at_least_s: float | None = None
    bound_by: str
    flops_per_byte: float | None = None


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
    # later runs, in order
    repeats: tuple[Repeat, ...] = field(default=(), repr=False)
    # whether fewer repeats were made than asked for
    cut_short: bool = False
    # on machines that were asked for beside the costs
    bounds: tuple[HardwareBound, ...] = ()
    schema: int = SCHEMA
    figures: Figures = field(default=Figures(), compare=False, repr=False)

    # by label; where a case has several, the first

    @cached_property
    def _costs(self) -> dict[str, Cost]:
        return {entry.case: entry.cost for entry in reversed(self.costs)}

    @cached_property
    def _comparisons(self) -> dict[str, Comparison]:
        return {entry.case: entry for entry in reversed(self.comparisons)}

    @cached_property
    def _failures(self) -> dict[str, Failure]:
        return {entry.case: entry for entry in reversed(self.failures)}

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
        return self._costs[label]

    def estimate(self, label: str, metric: str) -> Estimate | None:
        """The estimate of a metric of a case, or None."""
        return self._estimates.get((label, metric))

    def comparison(self, label: str) -> Comparison | None:
        """The comparison of a case's latency with the reference's, or None."""
        return self._comparisons.get(label)

    def has_time(self, label: str) -> bool:
        """Whether a case has a time that can be compared: it did not fail, and enough
        of its rounds were clean.
        """
        row = self.comparison(label)
        if self.failure(label) or (row and row.verdict is Verdict.BUSY):
            return False
        return self.estimate(label, LATENCY) is not None

    def could_not_run(self, label: str) -> bool:
        """Whether a case is a row with the reason why its backend can't run it."""
        failure = self.failure(label)
        return failure is not None and failure.kind is FailureKind.UNSUPPORTED

    def failure(self, label: str) -> Failure | None:
        """Why a case failed, or None."""
        return self._failures.get(label)

    def mismatch(self, label: str) -> str:
        """How the output of a case, or a gradient, differs from what it should be;
        empty where no difference was seen.
        """
        failure = self.failure(label)
        if failure is None or failure.kind is not FailureKind.MISMATCH:
            return ""
        return failure.message

    def notes(self, label: str) -> list[Note]:
        """The warnings of a case; for an empty label those about the whole run, the
        notes of its plan first.
        """
        of_plan = [] if label else self.plan.notes
        return [note for note in (*of_plan, *self.warnings) if note.label == label]

    def value(self, label: str, metric: str) -> float | None:
        """The value of a metric of a case, or None. A report of counts alone, which has
        no environment, gives that of the closed form.
        """
        estimate = self.estimate(label, metric)
        if estimate is not None:
            return estimate.value
        if self.is_of_counts and metric in CLOSED_FORMS:
            return getattr(self.cost(label), metric)  # type: ignore[no-any-return]
        return None

    def rounds(self, label: str) -> int:
        """The most rounds that a worker made of a case; in an interrupted run these may
        be fewer than planned.
        """
        return self._rounds.get(label, self.plan.protocol.rounds)

    @property
    def is_of_counts(self) -> bool:
        """Whether nothing was to be measured: counts are the answer."""
        return self.environment is None and not self.stopped

    @property
    def failed_rows(self) -> list[str]:
        """The labels of the rows that could have numbers and have none: those that
        nothing supports are left out.
        """
        return [
            case.label
            for case in self.plan.shown
            if (failure := self.failure(case.label))
            and failure.kind is not FailureKind.UNSUPPORTED
        ]

    @property
    def out_of_budget(self) -> bool:
        """Whether the budget was over before all was measured."""
        return bool(self.stopped) and self.limit == "budget"

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
        half_widths = [
            row.ratio.half_width
            for row in self.comparisons
            if row.verdict is not Verdict.REFERENCE and row.ratio
        ]
        return max(filter(None, half_widths), default=None)

    @property
    def runs(self) -> tuple[Report, ...]:
        """This run and its repeats as reports of their own, the oldest first, without
        what is computed from samples.
        """
        alone = replace(
            self,
            repeats=(),
            cut_short=False,
            comparisons=(),
            measured=(),
            figures=Figures(),
        )
        runs = [alone]
        for repeat in self.repeats:
            own = fields_of(Repeat, repeat)
            plan = replace(self.plan, protocol=own.pop("protocol"))
            runs.append(replace(alone, plan=plan, warnings=(), **own))
        return tuple(runs)

    def with_repeat(self: R, now: Report) -> R:
        """This report with a further run of its plan, in the order of time."""
        labels = {case.label for case in self.plan.cases}
        own = fields_of(Repeat, now)
        for name in ("samples", "failures"):
            own[name] = tuple(entry for entry in own[name] if entry.case in labels)
        repeats = [*self.repeats, Repeat(protocol=now.plan.protocol, **own)]
        repeats.sort(key=lambda run: run.created)
        return replace(self, repeats=tuple(repeats))

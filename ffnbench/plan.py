"""The question: which cases, on what workload, measured how. Pure data, enough to ask
it again.

The types only; how a request becomes a Plan is planning/, the answer is result.py.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

from ffnbench.choices import (
    Backend,
    Cache,
    CompileMode,
    MatmulPrecision,
    Mode,
    Routing,
    Time,
    Weights,
)
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.jsonable import LATER, STATED, least, one_of_names, typed
from ffnbench.features import of_features
from ffnbench.ffn.activations import OwnActivation
from ffnbench.ffn.cost import Cost, activation_cost, cost
from ffnbench.ffn.spec import (
    DEFAULT_GROUP,
    DTYPES,
    WEIGHTS_TOLERANCE,
    ActivationSpec,
    AttentionSpec,
    FFNSpec,
    ImportedSpec,
    NetworkSpec,
    WeightFormat,
    format_of,
    item_bytes,
    tolerance,
)
from ffnbench.metrics import METRICS, Metric

DEFAULT_WORKERS, DEFAULT_ROUNDS = 5, 30
# by which method seconds are measured and become ratios; whatever changes what a ratio
# means raises it
# 1: a plain mean over workers; 2: workers weighted by how sure they are;
# 3: clean rounds only, and placements spread inside a worker; 4: every call of a sample
# has an input of its own;
# 5: on an accelerator wall, device and host time apart, memory in requested bytes,
# matmul precision set before a sample
# 6: workers are blocks of rounds in forked processes, equal in weight; the heap keeps
# what is freed
METHOD = 6


class AddedSpec(ABC):
    """What a feature measures in place of a network, and `around` one: a dataclass."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Any]]
    around: NetworkSpec

    @property
    def d_model(self) -> int:
        """Width of the model."""
        return self.around.d_model

    @property
    def d_ff(self) -> int | None:
        """Width of its network."""
        return self.around.d_ff

    @abstractmethod
    def cost(self, case: Case, probe: Probe) -> Cost:
        """What is known of a case of it without timing it."""

    @abstractmethod
    def bytes_held(self, case: Case) -> int:
        """About the bytes that a worker takes to measure a case of it; code of the
        user's counts as nothing.
        """

    @abstractmethod
    def build(self, *, device: Any, dtype: Any) -> Any:
        """The nn.Module, its weights drawn from torch's global generator. Called where
        torch is loaded.
        """


AnySpec = NetworkSpec | ActivationSpec | AttentionSpec | AddedSpec


class Kind(StrEnum):
    """What a plan asks, and so how its answer reads: variants; an FFN beside attention,
    by length; operations by size; two sides of one variant. Features add others, each
    an AddedKind.
    """

    COMPARE = "compare"
    BLOCK = "block"
    ACTIVATIONS = "activations"
    SIDES = "sides"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedKind:
    """A kind of plan that a feature adds. `frame` and `picture` are functions of a
    report, as `package.module:name`. `says` is what its reports say in place of times
    and counts. `case` is the type of its cases, `metrics` are what can be known of them
    beside METRICS.
    """

    case: type[Case]
    metrics: tuple[Metric, ...] = ()
    frame: str
    picture: str
    says: str


def added_kind(name: str) -> AddedKind | None:
    """A kind that a feature adds; None for one of the core's."""
    if name in [*Kind]:
        return None
    feature = of_features("kinds").get(name)
    if feature is None:
        return None
    added: AddedKind = feature.file("plan").KINDS[name]
    return added


def metrics_of(kind: str) -> tuple[Metric, ...]:
    """What can be known of the cases of a kind of plan."""
    added = added_kind(kind)
    if added is None:
        return METRICS
    return (*METRICS, *added.metrics)


def cases_as(plan: Mapping[str, Any]) -> Any:
    """The type of the cases of a plan, as it stands in a file."""
    added = added_kind(plan.get("kind", Kind.COMPARE))
    case: Any = Case if added is None else added.case
    return tuple[case, ...]


def kind_names() -> list[str]:
    """Every kind, those of the core first."""
    return [*Kind, *of_features("kinds")]


# no variant can have this label by accident: the grammar's labels are names
CONTROL = "(control)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What the FFN is fed: (batch, seq_len, d_model) of dtype on device.

    `compile` and `freeze` (weights are constants of the compiled code) say more of
    Backend.COMPILE; `routing` is None where there are no experts. `weights` is how its
    matrices are held, in groups of `group` columns where the format has groups; `spin`
    lets threads wait without sleeping where a backend can choose.
    """

    batch: int = field(metadata=least(1))
    seq_len: int = field(metadata=least(1))
    dtype: str = field(metadata=one_of_names(DTYPES.names))
    device: str
    mode: Mode
    threads: int = field(metadata=least(1))
    backend: Backend = Backend.EAGER
    # for tests of the measuring itself: each call spins for this share of its own time
    slowdown: float = field(default=0.0, metadata=least(0.0))
    routing: Routing | None = field(default=None, metadata=LATER)
    compile: CompileMode = field(default=CompileMode.DEFAULT, metadata=LATER)
    freeze: bool = field(default=False, metadata=LATER)
    time: Time = field(default=Time.WALL, metadata=LATER)
    cache: Cache = field(default=Cache.HOT, metadata=LATER)
    matmul_precision: MatmulPrecision = field(
        default=MatmulPrecision.HIGHEST, metadata=LATER
    )
    # whether 16-bit matrix products may add partial sums in 16 bits, torch's own
    # default
    reduced_reductions: bool = field(default=True, metadata=LATER)
    weights: Weights = field(default=Weights.NONE, metadata=LATER)
    group: int = field(default=DEFAULT_GROUP, metadata=LATER | least(1))
    spin: bool = field(default=False, metadata=LATER)

    @property
    def tokens(self) -> int:
        """Tokens of one call."""
        return self.batch * self.seq_len

    @property
    def train(self) -> bool:
        """Whether there is a backward."""
        return self.mode != Mode.FORWARD

    @property
    def compiled(self) -> bool:
        """Whether a compiler makes other code of the one that is written."""
        return self.backend == Backend.COMPILE

    @property
    def eager(self) -> bool:
        """Whether it is run as it is written."""
        return self.backend == Backend.EAGER and self.weights == Weights.NONE

    @property
    def accelerated(self) -> bool:
        """Whether its device has a queue of its own, and so a time of its own; not
        while that is `auto`.
        """
        return self.device not in ("cpu", "auto")

    @property
    def tolerance(self) -> float:
        """The relative error of an output that rounding, and how the weights are held,
        explain.
        """
        return max(
            tolerance(self.dtype, self.matmul_precision),
            WEIGHTS_TOLERANCE[self.weights],
        )

    def on(self, device: str) -> Workload:
        """The workload on a device. On an accelerator calls of a cold cache are timed
        alone, and by the device; a CPU has no time but what a caller waits for.
        """
        if self.device != "auto":
            return self
        time = self.time
        if device == "cpu":
            time = Time.WALL
        elif self.cache == Cache.COLD:
            time = Time.DEVICE
        return replace(self, device=device, time=time)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """An interpreter, a folder put first on the module path, environment variables;
    empty is this process's own.

    Cases of equal arms share a process. `name` says which arm it is, and sets apart
    what differs in nothing else.
    """

    python: str = ""
    source: str = ""
    env: tuple[tuple[str, str], ...] = ()
    name: str = ""

    def __str__(self) -> str:
        if self.name:
            return self.name
        text = ""
        if self.python:
            text += f"@python={self.python}"
        if self.source:
            text += f"@source={self.source}"
        return text + "".join(f"@env={name}:{value}" for name, value in self.env)


THIS_INTERPRETER = Arm()


ACTIVE_PARAMS = "active params"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """Where a width comes from. `how` is one of: given; unread (a width that the module
    does not read); matched, on `what` (params, active params or flops); matched by
    time, in multiples of `multiple_of`; rule, whose name is `what`; ratio, of d_model,
    rounded up to `multiple_of` where that is not None; model, whose name is `what`.
    """

    how: str
    what: str = ""
    ratio: float | None = None
    multiple_of: int | None = None


GIVEN = Sizing(how="given")
Value = int | float | str | bool
# the axes of a sweep, in their order, with the value of each
Point = tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row: a network and a workload under a label. `sizing` says where its sizes
    come from, `arm` where it runs.

    `against` is the label of what it is compared with where that is not the plan's
    reference; its own for another one. `layers` are how many of a model's an attention
    stands for, where these have several. `point` is where its cell is in a sweep: a
    value of each axis. Kinds of features have cases that are more.
    """

    label: str
    variant: str
    ffn: AnySpec
    workload: Workload
    sizing: Sizing
    # what is matched, relative to the reference: 0.002 is 0.2 % above
    residual: float | None = None
    against: str | None = field(default=None, metadata=LATER)
    arm: Arm = field(default=THIS_INTERPRETER, metadata=LATER)
    layers: int | None = field(default=None, metadata=LATER)
    point: Point = field(default=(), metadata=LATER)

    @property
    def ends_with(self) -> str:
        """The metric whose sample says that it is done; empty where it is done when
        enough workers have timed it.
        """
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """How it is measured. The replicate is the worker, a fresh process; a round
    measures each case once.

    Without `precision`, `workers` and `rounds` are what is run. With it they are the
    fewest: the run adds to them until every ratio is known to +-`precision` (a
    fraction) or `budget_s` seconds are over (stats/stopping.py). `bound` is whether
    nothing may go beyond that budget; else it gives way to the fewest workers. The
    whole is measured `runs` times, with `pause_s` seconds between two. Latencies of
    different `method`s are not compared. `looks` is how often measuring might have
    ended because a row was decided, which a sweep pays for in confidence.
    """

    workers: int = field(default=DEFAULT_WORKERS, metadata=least(1))
    rounds: int = field(default=DEFAULT_ROUNDS, metadata=least(1))
    precision: float | None = field(default=None, metadata=least(1e-5))
    budget_s: float | None = field(default=None, metadata=least(0.0))
    warmup_s: float = field(default=0.1, metadata=least(0.0))
    min_sample_s: float = field(default=0.01, metadata=least(0.0))
    seed: int = field(default=0, metadata=least(0))
    timeout_s: float = field(default=300.0, metadata=least(0.0))
    method: int = field(default=METHOD, metadata=STATED | least(1))
    looks: int = field(default=1, metadata=LATER | least(1))
    bound: bool = field(default=False, metadata=LATER)
    runs: int = field(default=1, metadata=LATER | least(1))
    pause_s: float = field(default=0.0, metadata=LATER | least(0.0))


class NoteKind(StrEnum):
    """What a note is about. NAME: what a name means. MODEL: whose FFN a variant is.
    SEEN: noise that was seen beside the run. Read off the samples are SHORT, calls so
    short that the harness is a part of them, and the other noise: BUSY, no verdict for
    it; MOVES, seconds more than ratios; NOISE, others.
    """

    GENERAL = "general"
    NAME = "name"
    MODEL = "model"
    SEEN = "seen"
    SHORT = "short"
    BUSY = "busy"
    MOVES = "moves"
    NOISE = "noise"


NOISES = {NoteKind.SEEN, NoteKind.BUSY, NoteKind.MOVES, NoteKind.NOISE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something a reader should know of one case, or with an empty label of the whole
    run.
    """

    label: str = ""
    text: str
    # what a file has that was made before notes had one
    kind: NoteKind = NoteKind.GENERAL


# what groups differ in where no case has a point
SWEPT = ("d_model", "dtype", "mode", "threads", "batch", "seq_len")


def value_of(case: Case, key: str) -> Value:
    """What a case has of an axis, or of one of SWEPT."""
    for name, value in case.point:
        if name == key:
            return value
    if key == "d_model":
        return case.ffn.d_model
    of_workload: Value = getattr(case.workload, key)
    return of_workload


def group_suffix(values: Mapping[str, Value]) -> str:
    """The end of the labels of a group: `@dtype=bfloat16@seq_len=128`; empty where
    there is one group.
    """
    return "".join(f"@{key}={typed_as(value)}" for key, value in values.items())


def typed_as(value: Value) -> str:
    """A value as it is typed."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).removesuffix(".0")


LEAST_POINTS = 3  # of an axis that is drawn as a curve


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of numbers, smallest first; logarithmic where its steps are by factors
    rather than equal.
    """

    name: str
    values: tuple[float, ...]

    @property
    def logarithmic(self) -> bool:
        """Whether the steps are more alike as factors than as differences."""
        if self.values[0] <= 0 or len(self.values) < LEAST_POINTS:
            return False
        steps = [b - a for a, b in pairwise(self.values)]
        factors = [math.log(b / a) for a, b in pairwise(self.values)]
        return max(steps) * min(factors) > max(factors) * min(steps) * (1 + 1e-9)

    def place(self, value: float) -> float:
        """Where a value stands on its scale."""
        return math.log(value) if self.logarithmic else value

    def value(self, place: float) -> float:
        """What stands at a place."""
        return math.exp(place) if self.logarithmic else place


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The cases that are compared with one reference, which is among them. `values` are
    where it is in a sweep: what groups differ in.
    """

    reference: str
    cases: tuple[Case, ...]
    values: Mapping[str, Value]

    def name(self, label: str) -> str:
        """The label of a case without what all of the group have."""
        return label.removesuffix(group_suffix(self.values))

    def variant_of(self, case: Case) -> str:
        """What a case is called in each cell of a sweep."""
        if isinstance(case.ffn, ActivationSpec):
            return case.variant
        return self.name(case.label)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The whole question, enough to run it again. `reference` is the label that ratios
    are relative to.

    A case with the label CONTROL is the reference a second time: what it differs from
    itself by is the machine's.
    """

    cases: tuple[Case, ...] = field(metadata=typed(cases_as))
    reference: str
    protocol: Protocol
    metrics: tuple[str, ...]
    match: str = "none"
    multiple_of: int = 1
    notes: tuple[Note, ...] = ()
    kind: str = field(default=Kind.COMPARE, metadata=LATER | one_of_names(kind_names))
    # what asks the same again: `ffnbench compare relu,gelu --d-model 768`
    command: str = field(default="", metadata=LATER)
    # a file of weights, and what their names begin with
    state: str = field(default="", metadata=LATER)
    prefix: str = field(default="", metadata=LATER)

    @cached_property
    def _by_label(self) -> dict[str, Case]:
        return {case.label: case for case in reversed(self.cases)}

    def case(self, label: str) -> Case:
        """The case of a label."""
        return self._by_label[label]

    @cached_property
    def shown(self) -> tuple[Case, ...]:
        """The cases that were asked for: all but the control."""
        return tuple(case for case in self.cases if case.label != CONTROL)

    @cached_property
    def _notes(self) -> dict[str, list[Note]]:
        notes: dict[str, list[Note]] = {}
        for note in self.notes:
            notes.setdefault(note.label, []).append(note)
        return notes

    def notes_of(self, label: str) -> list[Note]:
        """What a reader should know of a case."""
        return self._notes.get(label, [])

    def reference_of(self, label: str) -> str:
        """The label of what a case is compared with; its own for a reference."""
        case = self._by_label.get(label)
        if case is None or case.against is None:
            return self.reference
        return case.against

    def is_reference(self, label: str) -> bool:
        """Whether ratios are relative to this case."""
        return self.reference_of(label) == label

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The cases that were asked for, by the reference that they are compared
        with.
        """
        by_reference: dict[str, list[Case]] = {}
        for case in self.shown:
            by_reference.setdefault(self.reference_of(case.label), []).append(case)
        references = [self.case(label) for label in by_reference]
        placed = all(case.point for case in references)
        differing = [
            key
            for key in SWEPT
            if len({value_of(case, key) for case in references}) > 1
        ]
        groups = []
        for case in references:
            if placed:
                values = dict(case.point)
            else:
                values = {key: value_of(case, key) for key in differing}
            groups.append(
                Group(
                    reference=case.label,
                    cases=tuple(by_reference[case.label]),
                    values=values,
                )
            )
        return tuple(groups)

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """The axes of numbers with enough points for a curve, the one with most points
        first.
        """
        axes = []
        for name in self.groups[0].values:
            values = {group.values.get(name) for group in self.groups}
            numbers = {
                value
                for value in values
                if isinstance(value, int | float) and not isinstance(value, bool)
            }
            if len(numbers) == len(values) >= LEAST_POINTS:
                axes.append(Axis(name, tuple(sorted(numbers))))
        return tuple(sorted(axes, key=lambda axis: -len(axis.values)))

    @cached_property
    def _names(self) -> dict[str, str]:
        return {
            case.label: group.name(case.label)
            for group in self.groups
            for case in group.cases
        }

    def name_of(self, label: str) -> str:
        """The label of a case without what all of its group have: `swiglu` of
        `swiglu@seq_len=128`.
        """
        return self._names.get(label, label)

    @cached_property
    def arms(self) -> tuple[Arm, ...]:
        """Where its cases run, the reference's arm first: one process each."""
        reference = self.case(self.reference)
        return tuple(dict.fromkeys(case.arm for case in (reference, *self.cases)))

    @cached_property
    def is_sweep(self) -> bool:
        """Whether it has several cells: groups of cases, each with a reference and a
        run of its own.
        """
        return len({self.reference_of(case.label) for case in self.shown}) > 1

    @cached_property
    def compares_precisions(self) -> bool:
        """Whether times are held against errors: rows hold their weights in different
        ways.
        """
        return len({case.workload.weights for case in self.shown}) > 1

    @cached_property
    def compared(self) -> int:
        """How many rows are compared with a reference: what decisions about them are
        corrected for.
        """
        return sum(not self.is_reference(case.label) for case in self.shown)

    def with_device(self, device: str) -> Plan:
        """The plan on a device, `auto` resolved."""
        cases = [
            replace(case, workload=case.workload.on(device)) for case in self.cases
        ]
        return replace(self, cases=tuple(cases))


def control_of(cases: Iterable[Case], reference: str) -> Case:
    """The reference a second time. Where cases run in several processes it has one of
    its own, as all others have.
    """
    by_label = {case.label: case for case in cases}
    case = by_label[reference]
    arm = case.arm
    if len({case.arm for case in by_label.values()}) > 1:
        arm = replace(arm, name=CONTROL)
    return replace(case, label=CONTROL, residual=None, arm=arm)


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """What one call can't do without: FLOPs of its matrix products (None: not known),
    bytes read and written once.
    """

    flops: int | None
    bytes: int


def needed_by(case: Case, cost: Cost) -> Needed:
    """What one call of a case needs, in the mode that is timed."""
    work = case.workload
    flops: int | None = 0
    if work.mode != Mode.BACKWARD:
        flops = _plus(flops, cost.flops_forward)
    if work.mode != Mode.FORWARD:
        flops = _plus(flops, cost.flops_backward)
    if cost.weight_bytes_touched is None:
        weights = cost.weight_bytes
    else:
        weights = cost.weight_bytes_touched
    inputs_and_outputs = 2 * work.tokens * case.ffn.d_model * item_bytes(work.dtype)
    return Needed(
        flops=None if flops is None else work.tokens * flops,
        bytes=weights + inputs_and_outputs,
    )


def _plus(flops: int | None, more: int | None) -> int | None:
    return None if flops is None or more is None else flops + more


class Probe:
    """Looks at code of the user's by running it, which a pure plan can't. run/prober.py
    has the one that does; this one stands in where such code is out of reach.
    """

    def within(self, arm: Arm) -> Probe:
        """A probe that looks from there; this one where the arm has nothing of its
        own.
        """
        return self

    def describe(self, target: str) -> OwnActivation | None:
        """What a function declares as an activation; None for a module's class or
        factory.
        """
        raise FfnbenchError(
            f"{target} can only be known by running it", "use `ffnbench compare`"
        )

    def count(self, spec: ImportedSpec, workload: Workload) -> Cost:
        """Parameters and FLOPs of a module."""
        raise FfnbenchError(
            f"{spec.target} can only be counted by running it", "use `ffnbench compare`"
        )


def cost_of(case: Case, probe: Probe) -> Cost:
    """What is known of a case without timing it."""
    work = case.workload
    if isinstance(case.ffn, ImportedSpec):
        counted = probe.within(case.arm).count(case.ffn, work)
        held = format_of(work.weights, work.backend)
        if held is None or case.ffn.like is None or counted.failed:
            return counted
        return replace(
            counted,
            weight_bytes=quantised_bytes(
                counted.weight_bytes, case.ffn.like, work, held
            ),
            peak_bytes=None,
        )
    if isinstance(case.ffn, ActivationSpec):
        return activation_cost(case.ffn)
    if isinstance(case.ffn, AttentionSpec):
        from ffnbench.ffn.attention import attention_cost

        return attention_cost(case.ffn, seq_len=work.seq_len, dtype=work.dtype)
    if isinstance(case.ffn, AddedSpec):
        return case.ffn.cost(case, probe)
    device = work.device.partition(":")[0]
    eagerly = cost(
        case.ffn, tokens=work.tokens, dtype=work.dtype, train=work.train, device=device
    )
    if work.eager:
        return eagerly
    # what is fused is neither held nor saved: the closed forms are those of eager
    # tensors
    without_peaks = replace(eagerly, peak_bytes=None, saved_bytes=None)
    held = format_of(work.weights, work.backend)
    if held is None:
        return without_peaks
    return replace(
        without_peaks,
        weight_bytes=quantised_bytes(without_peaks.weight_bytes, case.ffn, work, held),
        weight_bytes_touched=None,
    )


def quantised_bytes(
    weight_bytes: int, spec: FFNSpec, work: Workload, held: WeightFormat
) -> int:
    """Bytes of all weights, which take `weight_bytes` in the call's dtype, where the
    matrices of a form are held so.
    """
    item = item_bytes(work.dtype)
    total = weight_bytes
    for rows, columns in spec.matrices.values():
        total += (
            held.bytes_of(rows, columns, group=work.group, item=item)
            - rows * columns * item
        )
    return total

"""The question: which cases, on what workload, measured how. Pure data, enough to ask
it again.

The types, and what follows from one plan; the other files of plan/ make one, the
answer is record/.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

from ffnbench.common.choices import (
    DEFAULT_MODE,
    Backend,
    Cache,
    MatmulPrecision,
    Mode,
    Routing,
    Time,
    Weights,
)
from ffnbench.common.errors import FfnbenchError
from ffnbench.ffn.activations import OwnActivation
from ffnbench.ffn.cost import (
    NO_MATRICES,
    Cost,
    cost,
    touched_experts,
)
from ffnbench.ffn.spec import (
    DEFAULT_GROUP,
    FFNSpec,
    ImportedSpec,
    NetworkSpec,
    StackSpec,
    format_of,
    item_bytes,
    tolerance,
)

DEFAULT_WORKERS, DEFAULT_ROUNDS = 5, 30
# the number of the method by which seconds are measured and become ratios; whatever
# changes what a ratio means raises it
METHOD = 6


AnySpec = NetworkSpec | StackSpec


class Kind(StrEnum):
    """What a plan asks, and so how its answer reads. COMPARE: variants. BLOCK: variants
    in a stack of blocks.
    """

    COMPARE = "compare"
    BLOCK = "block"


# the label of the control, which is the reference a second time; no variant can have it
# by accident, because labels of variants are names
CONTROL = "(control)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What the FFN is fed: a tensor (batch, seq_len, d_model) of dtype on device; and
    how it is run.

    `compile` and `freeze` (weights are constants of the compiled code) belong to
    Backend.COMPILE. `routing` is None where there are no experts. `weights` is how the
    matrices are held, in groups of `group` columns where the format has groups. `spin`
    lets threads wait without sleeping where a backend can choose.
    """

    batch: int
    seq_len: int
    dtype: str
    device: str
    mode: Mode
    threads: int
    backend: Backend = Backend.EAGER
    # for tests of measuring itself: each call spins for this share of its own time
    slowdown: float = 0.0
    routing: Routing | None = None
    compile: str = DEFAULT_MODE
    freeze: bool = False
    time: Time = Time.WALL
    cache: Cache = Cache.HOT
    matmul_precision: MatmulPrecision = MatmulPrecision.HIGHEST
    # whether 16-bit matrix products may add partial sums in 16 bits, torch's own
    # default
    reduced_reductions: bool = True
    weights: Weights = Weights.NONE
    group: int = DEFAULT_GROUP
    spin: bool = False

    @property
    def tokens(self) -> int:
        """The tokens of one call."""
        return self.batch * self.seq_len

    @property
    def train(self) -> bool:
        """Whether there is a backward."""
        return self.mode != Mode.FORWARD

    @property
    def compiled(self) -> bool:
        """Whether torch.compile compiles it."""
        return self.backend == Backend.COMPILE

    @property
    def eager(self) -> bool:
        """Whether torch runs the module as it is written, without a compiler, a runtime
        or a quantised format.
        """
        return self.backend == Backend.EAGER and self.weights == Weights.NONE

    @property
    def accelerated(self) -> bool:
        """Whether it is on an accelerator, whose own time differs from that of the
        caller; False as long as the device is `auto`.
        """
        return self.device not in ("cpu", "auto")

    @property
    def tolerance(self) -> float:
        """The largest relative error of an output that rounding to the dtype
        explains.
        """
        return tolerance(self.dtype, self.matmul_precision)

    @property
    def identity(self) -> Workload:
        """The workload by what tells rows apart: all but device, threads, slowdown and
        routing.
        """
        return replace(self, device="", threads=0, slowdown=0.0, routing=None)

    @property
    def inputs(self) -> Workload:
        """The identity without how the calls are run: two times can be compared only
        if this is the same.
        """
        return replace(
            self.identity,
            backend=Backend.EAGER,
            compile=DEFAULT_MODE,
            freeze=False,
            weights=Weights.NONE,
            group=DEFAULT_GROUP,
            spin=False,
        )

    def on(self, device: str) -> Workload:
        """The workload with `auto` resolved to a device; unchanged where it names its
        device itself.
        """
        if self.device != "auto":
            return self
        time = self.time
        if device == "cpu":
            time = Time.WALL  # a CPU has no time but that of the caller
        elif self.cache == Cache.COLD:
            time = Time.DEVICE  # such calls are timed one by one, by the device
        return replace(self, device=device, time=time)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """Where a case runs: an interpreter, a folder that is put first on the module path,
    environment variables. What is empty is as in this process.

    Cases of equal arms share a process. `name` is shown for the arm, and keeps arms
    apart that differ in nothing else.
    """

    python: str = ""
    source: str = ""
    env: tuple[tuple[str, str], ...] = ()
    name: str = ""

    def __str__(self) -> str:
        return self.name


THIS_INTERPRETER = Arm()


ACTIVE_PARAMS = "active params"


class SizedBy(StrEnum):
    """Where a width comes from.

    - GIVEN: from the user
    - UNREAD: the module does not read its width
    - MATCHED: from what is matched: params, active params or flops
    - RULE: from a published rule
    - RATIO: d_model times a ratio, perhaps rounded up to a multiple
    - MODEL: from a model
    """

    GIVEN = "given"
    UNREAD = "unread"
    MATCHED = "matched"
    RULE = "rule"
    RATIO = "ratio"
    MODEL = "model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """Where a width comes from. `what` is what was matched, the rule or the model."""

    how: SizedBy
    what: str = ""
    ratio: float | None = None
    multiple_of: int | None = None


GIVEN = Sizing(how=SizedBy.GIVEN)
Value = int | float | str | bool
# the axes of a sweep, in their order, with the value of each
Point = tuple[tuple[str, Value], ...]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One row: a network and a workload under a name. `sizing` says where its width
    comes from, `arm` where it runs.

    `point` is where it is in a sweep: a value of each axis. The cases of one point are
    a group; the first of them is the reference that the others are compared with.
    `run_by` tells the cases of one name in a group apart: a backend, a format of
    weights, or that an FFN is alone.
    """

    name: str
    variant: str
    ffn: AnySpec
    workload: Workload
    sizing: Sizing
    # what is matched, relative to the reference: 0.002 is 0.2 % above
    residual: float | None = None
    arm: Arm = THIS_INTERPRETER
    run_by: Point = ()
    point: Point = ()

    @property
    def in_place(self) -> bool:
        """Whether it is a stack of blocks. FFNs in place are compared with each other,
        and FFNs alone with each other.
        """
        return isinstance(self.ffn, StackSpec)

    @cached_property
    def row(self) -> str:
        """The name of its row, which no other case of its group has:
        `swiglu@backend=onednn`.
        """
        return self.name + _as_keys(self.run_by)

    @cached_property
    def label(self) -> str:
        """The name of its row with the point: no two cases of a plan have the same."""
        return self.row + _as_keys(self.point)


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """How a plan is measured. The replicate is the worker, a fresh process; a round
    measures each case once.

    Without `precision`, `workers` and `rounds` are what is run. With it they are the
    fewest: the run adds to them until every ratio is known to +-`precision` (a
    fraction) or `budget_s` seconds are over (stats/stopping.py). `bound` is whether
    nothing may go beyond that budget; else it gives way to the fewest workers. The
    whole plan is measured `runs` times. A file of another `method` is not read. `looks`
    is the number of interim analyses of a sweep, which it pays for in confidence.
    """

    workers: int = DEFAULT_WORKERS
    rounds: int = DEFAULT_ROUNDS
    precision: float | None = None
    budget_s: float | None = None
    warmup_s: float = 0.1
    min_sample_s: float = 0.01
    seed: int = 0
    timeout_s: float = 300.0
    method: int = METHOD
    looks: int = 1
    bound: bool = False
    runs: int = 1


class NoteKind(StrEnum):
    """What a note is about.

    - GENERAL: anything else
    - NAME: what the name of a variant means
    - MODEL: whose FFN a variant is

    The others are found in the samples:

    - SHORT: calls so short that the harness is a part of them
    - BUSY: noise because of which a row has no verdict
    - NOISE: any other noise
    """

    GENERAL = "general"
    NAME = "name"
    MODEL = "model"
    SHORT = "short"
    BUSY = "busy"
    NOISE = "noise"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something a reader should know of one case, or with an empty label of the whole
    run.
    """

    label: str = ""
    text: str
    kind: NoteKind = NoteKind.GENERAL


def value_of(case: Case, key: str) -> Value:
    """The value of a case on an axis of its sweep, or of its workload."""
    for name, value in case.point:
        if name == key:
            return value
    if key == "d_model":
        return case.ffn.d_model
    of_workload: Value = getattr(case.workload, key)
    return of_workload


def _as_keys(values: Point) -> str:
    return "".join(f"@{key}={typed_as(value)}" for key, value in values)


def typed_as(value: Value) -> str:
    """A value as it is typed."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(value).removesuffix(".0")
    return str(value)


LEAST_POINTS = 3  # of an axis that is drawn as a curve


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of a sweep whose values are numbers, in ascending order."""

    name: str
    values: tuple[float, ...]

    @property
    def logarithmic(self) -> bool:
        """Whether its scale is logarithmic: the values are spaced more evenly by
        factors than by differences.
        """
        if self.values[0] <= 0 or len(self.values) < LEAST_POINTS:
            return False
        steps = [b - a for a, b in pairwise(self.values)]
        log_steps = [math.log(b / a) for a, b in pairwise(self.values)]
        unevenness = max(steps) / min(steps)
        # linear where both are equal, whatever rounding makes of that
        return unevenness > max(log_steps) / min(log_steps) * (1 + 1e-9)

    def place(self, value: float) -> float:
        """The place of a value on this scale: its log where that is logarithmic."""
        return math.log(value) if self.logarithmic else value

    def value(self, place: float) -> float:
        """The value at a place of this scale."""
        return math.exp(place) if self.logarithmic else place


@dataclass(frozen=True, slots=True)
class Group:
    """The cases of one point. The first is the reference. Where stacks and FFNs alone
    share a group, each kind is compared with the first of its kind.
    """

    cases: tuple[Case, ...]

    @property
    def reference(self) -> str:
        """The label of the reference."""
        return self.cases[0].label

    @property
    def values(self) -> Mapping[str, Value]:
        """The values of the group on the axes of a sweep."""
        return dict(self.cases[0].point)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The whole question, enough to measure it again.

    A case with the name CONTROL is the first reference a second time: the difference
    between the two is noise of the machine.
    """

    cases: tuple[Case, ...]
    protocol: Protocol
    metrics: tuple[str, ...]
    match: str = "none"
    multiple_of: int = 1
    notes: tuple[Note, ...] = ()
    kind: Kind = Kind.COMPARE
    # what asks the same again: `ffnbench compare relu,gelu --d-model 768`
    command: str = ""
    # the folder of a model, and the number of the layer whose weights are taken
    model: str = ""
    layer: int | None = None

    @cached_property
    def _by_label(self) -> dict[str, Case]:
        return {case.label: case for case in reversed(self.cases)}

    def case(self, label: str) -> Case:
        """The case of a label."""
        return self._by_label[label]

    @property
    def reference(self) -> str:
        """The label of the first reference."""
        return self.cases[0].label

    @cached_property
    def shown(self) -> tuple[Case, ...]:
        """The cases that were asked for: all but the control."""
        return tuple(case for case in self.cases if case.name != CONTROL)

    @cached_property
    def _notes(self) -> dict[str, list[Note]]:
        notes: dict[str, list[Note]] = {}
        for note in self.notes:
            notes.setdefault(note.label, []).append(note)
        return notes

    def notes_of(self, label: str) -> list[Note]:
        """The notes on a case."""
        return self._notes.get(label, [])

    @cached_property
    def _group_by_label(self) -> dict[str, Group]:
        return {case.label: group for group in self.groups for case in group.cases}

    def group_of(self, label: str) -> Group:
        """The group of a case; the first one for the control."""
        groups = self.groups or (Group(self.cases),)  # the control alone is left
        return self._group_by_label.get(label, groups[0])

    def reference_of(self, label: str) -> str:
        """The label of the reference of a case; its own label for a reference."""
        return self._references.get(label) or self.group_of(label).reference

    @cached_property
    def _references(self) -> dict[str, str]:
        """The label of the reference of each case that was asked for."""
        references = {}
        for group in self.groups:
            firsts: dict[bool, str] = {}  # of FFNs in place, and alone
            for case in group.cases:
                first = firsts.setdefault(case.in_place, case.label)
                references[case.label] = first
        return references

    def is_reference(self, label: str) -> bool:
        """Whether ratios are relative to this case."""
        return self.reference_of(label) == label

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The cases that were asked for, grouped by their points."""
        by_point: dict[Point, list[Case]] = {}
        for case in self.shown:
            by_point.setdefault(case.point, []).append(case)
        return tuple(Group(tuple(cases)) for cases in by_point.values())

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """The axes whose values are numbers, where they have enough points for a curve;
        the one with the most points first.
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

    def name_of(self, label: str) -> str:
        """The name of a row by the label of its case; the label where there is none."""
        case = self._by_label.get(label)
        return label if case is None else case.row

    @cached_property
    def arms(self) -> tuple[Arm, ...]:
        """The arms of the cases, the reference's first; each is a process."""
        reference = self.case(self.reference)
        return tuple(dict.fromkeys(case.arm for case in (reference, *self.cases)))

    @cached_property
    def is_sweep(self) -> bool:
        """Whether it has several groups, which are then measured as cells."""
        return len(self.groups) > 1

    @cached_property
    def compares_precisions(self) -> bool:
        """Whether the rows hold their weights in several formats, so that errors are
        compared beside times.
        """
        return len({case.workload.weights for case in self.shown}) > 1

    @cached_property
    def compared(self) -> int:
        """How many rows are compared with a reference."""
        return sum(not self.is_reference(case.label) for case in self.shown)

    @property
    def layers(self) -> int | None:
        """How many layers its stacks have; None without stacks."""
        of_stacks = (
            case.ffn.layers for case in self.cases if isinstance(case.ffn, StackSpec)
        )
        return next(of_stacks, None)

    def with_layers(self, layers: int) -> Plan:
        """The plan with so many layers in its stacks."""
        cases = [
            replace(case, ffn=case.ffn.with_layers(layers))
            if isinstance(case.ffn, StackSpec)
            else case
            for case in self.cases
        ]
        return replace(self, cases=tuple(cases))

    def with_device(self, device: str) -> Plan:
        """The plan with `auto` resolved to a device."""
        cases = [
            replace(case, workload=case.workload.on(device)) for case in self.cases
        ]
        return replace(self, cases=tuple(cases))


def control_of(cases: Iterable[Case], reference: str) -> Case:
    """The control: the reference a second time. Where the cases run in several arms it
    has an arm, and so a process, of its own.
    """
    by_label = {case.label: case for case in cases}
    case = by_label[reference]
    arm = case.arm
    if len({case.arm for case in by_label.values()}) > 1:
        arm = replace(arm, name=CONTROL)
    return replace(case, name=CONTROL, run_by=(), point=(), residual=None, arm=arm)


def flops_of_call(case: Case, cost: Cost) -> int | None:
    """The FLOPs of the matrix products of one call, in the mode that is timed; None
    where they are not known.
    """
    mode = case.workload.mode
    flops: int | None = 0
    if mode != Mode.BACKWARD:
        flops = _plus(flops, cost.flops_forward)
    if mode != Mode.FORWARD:
        flops = _plus(flops, cost.flops_backward)
    return None if flops is None else case.workload.tokens * flops


def _plus(flops: int | None, more: int | None) -> int | None:
    """The sum; None where one of them is not known."""
    return None if flops is None or more is None else flops + more


class Probe:
    """Learns something of code of the user's by running it. This one refuses to; it
    serves where no process may be started. The one that runs code is run/prober.py's.
    """

    def within(self, arm: Arm) -> Probe:
        """The probe that runs code in an arm; this one where the arm has nothing of its
        own.
        """
        return self

    def start(self) -> Any:
        """Start what runs code, without waiting for it."""

    def refuse_without_torch(self) -> None:
        """Raise FfnbenchError where code can't be run."""

    def describe(self, target: str) -> OwnActivation | None:
        """The activation that a target is; None where it is a class or factory of a
        module.
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
    """What is known of a case without timing it: closed forms, and for a target what
    the probe counts.
    """
    work = case.workload
    weight_format = format_of(work.weights, work.backend)
    if isinstance(case.ffn, ImportedSpec):
        counted = probe.within(case.arm).count(case.ffn, work)
        if weight_format is None or case.ffn.like is None or counted.failed:
            return counted
        if work.backend is Backend.EAGER:
            return counted  # by the layers that are quantised, not by the form
        held = quantised_bytes(case.ffn.like, work, counted.weight_bytes)
        return replace(counted, weight_bytes=held)
    if isinstance(case.ffn, StackSpec):
        from ffnbench.ffn.attention import stack_cost

        of_ffn = NO_MATRICES
        if case.ffn.ffn is not None:
            of_ffn = cost_of(replace(case, ffn=case.ffn.ffn), probe)
        return stack_cost(case.ffn, of_ffn, seq_len=work.seq_len, dtype=work.dtype)
    device = work.device.partition(":")[0]
    routing = work.routing or Routing.UNIFORM
    eager_cost = cost(
        case.ffn,
        tokens=work.tokens,
        dtype=work.dtype,
        train=work.train,
        device=device,
        routing=routing,
    )
    if work.eager:
        return eager_cost
    # the closed forms count the tensors of eager code, of which other backends fuse
    # some, so that these are neither held nor saved
    without_peaks = replace(eager_cost, peak_bytes=None, saved_bytes=None)
    if weight_format is None:
        return without_peaks
    quantised = partial(quantised_bytes, case.ffn, work)
    touched = without_peaks.weight_bytes_touched
    if touched is not None:
        hits = None
        if case.ffn.moe is not None:
            hits = touched_experts(case.ffn.moe, work.tokens, routing)
        touched = quantised(touched, hits)
    return replace(
        without_peaks,
        weight_bytes=quantised(without_peaks.weight_bytes),
        weight_bytes_touched=touched,
    )


def quantised_bytes(
    spec: FFNSpec, work: Workload, weight_bytes: int, experts: float | None = None
) -> int:
    """The bytes of all weights, or of those of so many routed experts, where the
    matrices of a form are held in the workload's format. In the dtype of the call they
    take `weight_bytes`.
    """
    weight_format = format_of(work.weights, work.backend)
    if weight_format is None:
        return weight_bytes
    item = item_bytes(work.dtype)
    total: float = weight_bytes
    for rows, columns, count in spec.matrices_of(experts):
        in_format = weight_format.bytes_of(rows, columns, group=work.group, item=item)
        total += count * (in_format - rows * columns * item)
    return round(total)

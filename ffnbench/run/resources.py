"""The devices and the memory that a plan needs: what is missing is told before anything
is built.

Each worker holds the weights and the inputs of all cases at once, and what the largest
call needs beside them; the check copies one matrix after another to float64. No torch
here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeGuard

from ffnbench.backends import BACKENDS
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.units import IEC, counted, quantity
from ffnbench.device.environment import USABLE, auto_device
from ffnbench.ffn.spec import AttentionForm, AttentionSpec, FFNSpec, item_bytes
from ffnbench.messages import DescribeDevice, DeviceFacts, Failed, Greeting, Sampled
from ffnbench.plan import (
    AddedSpec,
    AnySpec,
    Case,
    Kind,
    Note,
    NoteKind,
    Plan,
    Probe,
    Workload,
    cost_of,
)
from ffnbench.result import DeviceReadings, Failure, FailureKind
from ffnbench.run.worker_pool import Worker
from ffnbench.run.worker_process import COUNT_TIMEOUT_S, WorkerLost, lost_over_device

MODEST = 8  # the share of what is free that ceilings may take is one part of so many
CALLS_HELD_AT_ONCE = 3  # of the largest call: what several of them hold together
UNKNOWN_MEMORY = 1 << 31
FLOAT64_BYTES = 8
TRY_CUDA = "does `nvidia-smi` work? `python -c 'import torch; torch.zeros(1, device=\"cuda\")'` says more"


class RunDevices:
    """The devices of a run: found by its first worker, and what workers read of them
    with their samples.
    """

    def __init__(self) -> None:
        self._usable: int | None = None  # bytes of the machine
        # usable bytes of each GPU, where they are known
        self._free: dict[str, int] = {}
        self._readings: dict[tuple[int, str], DeviceReadings] = {}

    def find(
        self, plan: Plan, greeting: Greeting, worker: Worker, timeout_s: float
    ) -> tuple[Plan, DeviceFacts | None, list[str]]:
        """The plan on devices that are there and hold it, what a worker says of the
        first GPU of them, and what a reader should know; raises FfnbenchError where one
        is not there, can't be used or is too small.
        """
        is_auto = "auto" in _used(plan)
        plan = plan.with_device(auto_device(greeting))
        check_devices(plan, greeting)
        try:
            gpus = _gpus_of(plan, worker, timeout_s)
        except WorkerLost as lost:
            raise lost_over_device(lost) from lost
        for name, gpu in gpus.items():
            if gpu.gpu_free_bytes:
                self._free[name] = int(USABLE * gpu.gpu_free_bytes)
        self._usable = greeting.usable_bytes
        plan = fit_into(plan, self.room(plan))
        check_fits(plan, self._usable, self._free)
        notes = [
            f"clocks, throttling and other processes of {name} were not seen: {gpu.nvml_missing}"
            for name, gpu in gpus.items()
            if gpu.nvml_missing
        ]
        why = why_not_seen(greeting)
        if is_auto and not gpus and why:
            notes.append(f"measured on the CPU: {why}; {TRY_CUDA}")
        return plan, next(iter(gpus.values()), None), notes

    def room(self, plan: Plan) -> int | None:
        """Bytes that there are for what is measured: of the machine, or of the device
        that has the least.
        """
        devices = _used(plan)
        if "cpu" in devices:
            return self._usable
        return min(
            (self._free[name] for name in devices & self._free.keys()), default=None
        )

    def read(self, worker: int, device: str, sampled: Sampled) -> None:
        """What one sample of a GPU tells of it; a CPU's tells nothing."""
        if sampled.clock_mhz is None and sampled.others is None:
            return
        key = worker, device
        readings = self._readings.get(key, DeviceReadings(worker=worker, device=device))
        clock = sampled.clock_mhz
        if clock is not None:
            least = readings.least_clock_mhz or clock
            most = readings.most_clock_mhz or clock
            readings = replace(
                readings,
                least_clock_mhz=min(least, clock),
                most_clock_mhz=max(most, clock),
            )
        if sampled.others is not None:
            readings = replace(readings, others=sampled.others)
        self._readings[key] = readings

    @property
    def readings(self) -> tuple[DeviceReadings, ...]:
        """The extremes of what was read, by worker and device."""
        return tuple(self._readings.values())


def _used(plan: Plan) -> set[str]:
    return {case.workload.device for case in plan.cases}


def check_devices(plan: Plan, greeting: Greeting) -> None:
    """Raise FfnbenchError before anything is built where a device is not there; the
    hint says what is, or why not.
    """
    for device in sorted(_used(plan) - {"cpu"}):
        index = int(device.partition(":")[2] or 0)
        if index < greeting.gpus:
            continue
        asked = f"device {device!r} was asked for, but torch {greeting.torch}"
        why = why_not_seen(greeting)
        if why:
            raise FfnbenchError(f"{asked} can't use it: {why}", TRY_CUDA)
        if greeting.gpus:
            raise FfnbenchError(
                f"{asked} has {counted(greeting.gpus, 'CUDA device')}",
                f"there is {gpu_names(greeting)}",
            )
        hint = "use --device cpu, or install a build of torch with CUDA on a machine with such a GPU"
        raise FfnbenchError(f"{asked} sees no CUDA device", hint)


def gpu_names(greeting: Greeting) -> str:
    """The GPUs that a worker sees, by name."""
    return ", ".join(
        f"cuda:{index} ({name})" for index, name in enumerate(greeting.gpu_names)
    )


def why_not_seen(greeting: Greeting) -> str:
    """Why torch, built for a GPU, sees none, in its own words; empty where it says
    nothing of the kind.
    """
    message = greeting.no_gpu.removeprefix("CUDA initialization: ")
    return message.partition(" (Triggered internally")[0][:200]


def _gpus_of(plan: Plan, worker: Worker, timeout_s: float) -> dict[str, DeviceFacts]:
    """What workers say of every GPU that cases are measured on, by name, each arm's own
    asked; raises FfnbenchError where one can't be used.
    """
    asked = {
        (case.arm, case.workload.device): case.label
        for case in plan.cases
        if case.workload.device != "cpu"
    }
    gpus: dict[str, DeviceFacts] = {}
    for (_, device), label in asked.items():
        answer = worker.ask(DescribeDevice(device=device, label=label), timeout_s)
        if isinstance(answer, Failed):
            raise FfnbenchError(
                f"device {device!r} can't be used: {answer.message}",
                "does `nvidia-smi` work?",
            )
        gpus.setdefault(device, answer)
    return gpus


def device_facts(worker: Worker, device: str) -> DeviceFacts | None:
    """What a worker says of a GPU; None of the CPU, and of one that can't be used."""
    if device == "cpu":
        return None
    try:
        answer = worker.ask(DescribeDevice(device=device), COUNT_TIMEOUT_S)
    except WorkerLost as lost:
        raise lost_over_device(lost) from lost
    return None if isinstance(answer, Failed) else answer


def fit_into(plan: Plan, available: int | None) -> Plan:
    """The plan of a block without the textbook forms that memory does not hold.
    `available` in bytes, of the memory that all of it is measured in; None where it is
    not known.
    """
    if plan.kind != Kind.BLOCK or available is None:
        return plan
    cases, notes = list(plan.cases), list[Note]()
    textbook = [case for case in cases if is_textbook(case)]
    while textbook and memory_needed(cases) > available:
        case = textbook.pop()
        cases.remove(case)
        text = f"textbook attention at {case.workload.seq_len:,} tokens is left out: its scores need about "
        text += f"{quantity(_working_bytes(case), IEC)}, and {quantity(available, IEC)} are available"
        notes.insert(0, Note(text=text, kind=NoteKind.GENERAL))
    return replace(plan, cases=tuple(cases), notes=(*plan.notes, *notes))


def is_textbook(case: Case) -> bool:
    """Whether it is attention as textbooks write it, which holds all scores at once."""
    return (
        isinstance(case.ffn, AttentionSpec) and case.ffn.form is AttentionForm.TEXTBOOK
    )


def check_fits(
    plan: Plan, available: int | None, free: Mapping[str, int] | None = None
) -> None:
    """Raise FfnbenchError where memory does not hold the plan. `available` in bytes of
    the machine, None where it is not known; `free`, those of GPUs, by name.
    """
    for device in _used(plan):
        room, where = available, ""
        if device != "cpu":
            room, where = (free or {}).get(device), f" on {device}"
        needed = memory_needed(
            [case for case in plan.cases if case.workload.device == device]
        )
        if room is not None and needed > room:
            raise FfnbenchError(
                f"this needs {quantity(needed, IEC)} of memory, and {quantity(room, IEC)} are available{where}",
                "--dtype bfloat16 halves the weights; or fewer variants, a smaller --seq-len or --batch",
            )


def too_large(plan: Plan, available: int | None) -> list[Failure]:
    """The rows that memory does not hold, cell by cell: the largest first until the
    others fit beside each other, and all of a cell whose reference does not fit. By
    closed forms, before a worker starts. `available` is in bytes of the machine: what a
    GPU has is not known yet.
    """
    failures = []
    for group in plan.groups:
        if available is None or plan.case(group.reference).workload.device != "cpu":
            continue
        fitting = sorted(
            group.cases,
            key=lambda case: (case.label != group.reference, memory_needed([case])),
        )
        dropped: list[Case] = []
        while fitting and memory_needed(fitting) > available:
            dropped.append(fitting.pop())
        for case in dropped:
            needed = memory_needed([case])
            message = f"this needs {quantity(needed, IEC)} of memory, and {quantity(available, IEC)} are available"
            if fitting and needed <= available:
                message += " for all rows of its cell"
            elif not fitting and case.label != group.reference:
                message = "its reference does not fit"
            failures.append(
                Failure(case=case.label, kind=FailureKind.OOM, message=message)
            )
    return failures


def room_for_ceilings(cases: Sequence[Case], available: int | None) -> int:
    """Bytes that the calls of ceilings may take: what the cases leave, and a modest
    share of all.
    """
    if available is None:
        available = UNKNOWN_MEMORY
    return (
        max(0, min(available // MODEST, available - memory_needed(cases)))
        // CALLS_HELD_AT_ONCE
    )


def memory_needed(cases: Sequence[Case]) -> int:
    """About the bytes that a worker takes to measure these cases; code of the user's
    counts as nothing.
    """
    total = 0
    most_weights = largest_matrix = largest_call = 0
    trains = False
    for case in cases:
        ffn, work = case.ffn, case.workload
        if isinstance(ffn, AddedSpec):
            total += ffn.bytes_held(case)
        if not has_known_sizes(ffn):
            continue
        weights = _copies_of_weights(work) * cost_of(case, Probe()).weight_bytes
        inputs = 2 * work.tokens * ffn.d_model * item_bytes(work.dtype)
        total += weights + inputs
        trains = trains or work.train
        most_weights = max(most_weights, weights)
        largest_matrix = max(
            largest_matrix, *(rows * columns for rows, columns in ffn.matrices.values())
        )
        largest_call = max(largest_call, _working_bytes(case))
    if trains:
        total += most_weights  # as many gradients
    return total + FLOAT64_BYTES * largest_matrix + largest_call


def _copies_of_weights(work: Workload) -> int:
    """How often the weights are there; where they are frozen, MKL's packed ones may be
    larger than they are.
    """
    if work.freeze:
        return 4
    return BACKENDS[work.backend].copies


def has_known_sizes(ffn: AnySpec) -> TypeGuard[FFNSpec | AttentionSpec]:
    """Whether the sizes of a network are known: those of code of the user's are not."""
    return isinstance(ffn, FFNSpec | AttentionSpec)


def _working_bytes(case: Case) -> int:
    """Beside weights and input, in one call."""
    work, item = case.workload, item_bytes(case.workload.dtype)
    if isinstance(case.ffn, AttentionSpec):
        from ffnbench.ffn.attention import working_bytes

        return working_bytes(
            case.ffn,
            batch=work.batch,
            seq_len=work.seq_len,
            item=item,
            train=work.train,
        )
    assert isinstance(case.ffn, FFNSpec)
    closed_form = cost_of(case, Probe()).peak_bytes
    if closed_form is not None:
        return closed_form
    elements = 4 * (case.ffn.d_ff + case.ffn.d_model) * work.tokens
    if case.ffn.moe:
        elements *= case.ffn.moe.top_k
    return elements * item

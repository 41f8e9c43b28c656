"""The devices and the memory that a plan needs, before anything is built: a missing
device is an error, rows that memory does not hold fail, and stacks get fewer layers.

Each worker holds the weights and the inputs of all cases at once, and what the largest
call needs beside them; the check copies one matrix after another to float64. No torch
here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ffnbench.common.choices import Cache
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.units import IEC, counted, quantity
from ffnbench.device.environment import USABLE, auto_device, rotated_copies
from ffnbench.ffn.spec import FFNSpec, ImportedSpec, StackSpec, item_bytes
from ffnbench.plan.backends import BACKENDS
from ffnbench.plan.plan import (
    Case,
    Plan,
    Probe,
    Workload,
    cost_of,
)
from ffnbench.record.messages import DeviceFacts, Failed, Greeting
from ffnbench.record.result import Failure, FailureKind
from ffnbench.run.worker import (
    COUNT_TIMEOUT_S,
    AnyWorker,
    WorkerLost,
    lost_over_device,
)
from ffnbench.stats.stopping import STARTERS

FLOAT64_BYTES = 8
MOST_DRAWN_BYTES = 1 << 30
TRY_CUDA = "does `nvidia-smi` work? `python -c 'import torch; torch.zeros(1, device=\"cuda\")'` says more"


def find_devices(
    plan: Plan, greeting: Greeting, worker: AnyWorker, timeout_s: float
) -> tuple[Plan, DeviceFacts | None, list[str], list[Failure]]:
    """Resolve `auto`, and look at the devices and the memory that the plan needs.

    Returns the plan on these devices; what the worker says of the first GPU among them,
    None where there is none; what a reader should know; and the failures of the rows
    that memory does not hold. Raises FfnbenchError where a device is not there or can't
    be used.
    """
    is_auto = "auto" in _devices_of(plan)
    plan = plan.with_device(auto_device(greeting))
    check_devices(plan, greeting)
    try:
        gpus = _gpus_of(plan, worker, timeout_s)
    except WorkerLost as lost:
        raise lost_over_device(lost) from lost
    memory = {"cpu": greeting.usable_bytes}
    for name, gpu in gpus.items():
        memory[name] = int(USABLE * (gpu.gpu_free_bytes or 0)) or None
    notes = [
        f"it was not seen whether {name} was throttled: {gpu.nvml_missing}"
        for name, gpu in gpus.items()
        if gpu.nvml_missing
    ]
    why = why_not_seen(greeting)
    if is_auto and not gpus and why:
        notes.append(f"measured on the CPU: {why}; {TRY_CUDA}")
    plan, fewer = with_fitting_layers(plan, memory[plan.cases[0].workload.device])
    failures = too_large(plan, memory)
    return plan, next(iter(gpus.values()), None), [*notes, *fewer], failures


def _devices_of(plan: Plan) -> set[str]:
    return {case.workload.device for case in plan.cases}


def check_devices(plan: Plan, greeting: Greeting) -> None:
    """Raise FfnbenchError where a device is not there. The hint says which are, or why
    there is none.
    """
    for device in sorted(_devices_of(plan) - {"cpu"}):
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
    """Why a torch that is built for GPUs sees none, in its own words; empty where it
    does not say.
    """
    message = greeting.no_gpu.removeprefix("CUDA initialization: ")
    return message.partition(" (Triggered internally")[0][:200]


def _gpus_of(plan: Plan, worker: AnyWorker, timeout_s: float) -> dict[str, DeviceFacts]:
    """What the worker says of every GPU that the plan needs, by name; raises
    FfnbenchError where one can't be used, in whatever arm.
    """
    # one case of each arm and GPU, by whose label its process is asked
    labels = {
        (case.arm, case.workload.device): case.label
        for case in plan.cases
        if case.workload.device != "cpu"
    }
    gpus: dict[str, DeviceFacts] = {}
    for (_, device), label in labels.items():
        answer: DeviceFacts | Failed = worker.ask(
            "device", timeout_s, name=device, label=label
        )
        if isinstance(answer, Failed):
            raise FfnbenchError(
                f"device {device!r} can't be used: {answer.message}",
                "does `nvidia-smi` work?",
            )
        gpus.setdefault(device, answer)
    return gpus


def device_facts(worker: AnyWorker, device: str) -> DeviceFacts | None:
    """What a worker says of a GPU; None of the CPU, and of one that can't be used."""
    if device == "cpu":
        return None
    try:
        answer: DeviceFacts | Failed = worker.ask(
            "device", COUNT_TIMEOUT_S, name=device
        )
    except WorkerLost as lost:
        raise lost_over_device(lost) from lost
    return None if isinstance(answer, Failed) else answer


def with_fitting_layers(plan: Plan, available: int | None) -> tuple[Plan, list[str]]:
    """The plan with as many layers of its stacks as so many bytes of memory hold, and a
    note where these are fewer. Raises FfnbenchError where it does not hold one layer,
    unless the plan is a point of a sweep.
    """
    asked = plan.layers
    if asked is None or available is None:
        return plan, []

    def needed(layers: int) -> int:
        return memory_needed(plan.with_layers(layers).cases)

    fitting = bisect_right(range(1, asked + 1), available, key=needed)
    if fitting == asked:
        return plan, []
    if not fitting and not plan.cases[0].point:
        raise FfnbenchError(
            f"one layer of these stacks needs {quantity(needed(1), IEC)} of memory, and {quantity(available, IEC)} are available",
            "give fewer variants, or --dtype bfloat16",
        )
    layers = max(1, fitting)
    text = f"memory holds {layers:,} of {asked:,} layers: more would need {quantity(needed(asked), IEC)}"
    return plan.with_layers(layers), [text]


def too_large(plan: Plan, memory: Mapping[str, int | None]) -> list[Failure]:
    """The failures of the rows that memory does not hold, before any is built.

    On each device the largest rows fail until the others fit beside each other, the
    references last of all; rows without their reference fail too. `memory` are the
    bytes that each device has, None where that is not known.
    """
    references = {plan.reference_of(case.label) for case in plan.cases}
    failures: dict[str, str] = {}  # why, by label
    for device, available in memory.items():
        fitting = sorted(
            (case for case in plan.cases if case.workload.device == device),
            key=lambda case: (case.label not in references, memory_needed([case])),
        )
        while available is not None and memory_needed(fitting) > available:
            case = fitting.pop()
            needed = memory_needed([case])
            where = "" if device == "cpu" else f" on {device}"
            failures[case.label] = (
                f"this needs {quantity(needed, IEC)} of memory, and {quantity(available, IEC)} are available{where}"
            )
            if needed <= available:
                failures[case.label] += " for all rows beside each other"
    for case in plan.cases:
        reference = plan.reference_of(case.label)
        if reference in failures and case.label not in references:
            failures[case.label] = "its reference does not fit into memory"
    return [
        Failure(case=case.label, kind=FailureKind.OOM, message=failures[case.label])
        for case in plan.cases
        if case.label in failures
    ]


def memory_needed(cases: Sequence[Case]) -> int:
    """About the bytes that a worker takes to measure these cases; code of the user's
    counts as nothing.
    """
    total = 0
    shared: dict[Any, int] = {}  # what stacks have in common: all but their FFNs
    most_weights = largest_matrix = largest_call = 0
    trains = False
    for case in cases:
        ffn, work = case.ffn, case.workload
        if not isinstance(ffn, FFNSpec | StackSpec):
            continue
        bytes_of_one = cost_of(_with_known_ffn(case), Probe()).weight_bytes
        # MKL packs frozen weights, which may make them larger
        copies = 4 if work.freeze else BACKENDS[work.backend].copies
        if work.cache is Cache.ROTATED and bytes_of_one:
            copies += rotated_copies(bytes_of_one) - 1
        weights = copies * bytes_of_one
        if isinstance(ffn, StackSpec):
            trunk = cost_of(replace(case, ffn=replace(ffn, ffn=None)), Probe())
            shared[ffn.attentions, work.dtype] = trunk.weight_bytes
            weights -= trunk.weight_bytes
        inputs = 2 * work.tokens * ffn.d_model * item_bytes(work.dtype)
        total += weights + inputs
        trains = trains or work.train
        most_weights = max(most_weights, bytes_of_one)
        largest_matrix = max(largest_matrix, _largest_copied(ffn, bytes_of_one, work))
        largest_call = max(largest_call, _working_bytes(case))
    if trains:
        total += most_weights  # as many gradients
    total += sum(shared.values()) + STARTERS * drawn_bytes(cases)
    return total + FLOAT64_BYTES * largest_matrix + largest_call


def drawn_bytes(cases: Sequence[Case]) -> int:
    """The bytes of the weights that each starter draws once for all of its workers:
    those of ffnbench's own forms on the CPU, 0 where they are too many.
    """
    total = sum(
        cost_of(case, Probe()).weight_bytes
        for case in cases
        if isinstance(case.ffn, FFNSpec) and case.workload.device == "cpu"
    )
    return total if total <= MOST_DRAWN_BYTES else 0


def _with_known_ffn(case: Case) -> Case:
    """The case; a stack without its FFNs where their sizes are not known."""
    stack = case.ffn
    if isinstance(stack, StackSpec) and isinstance(stack.ffn, ImportedSpec):
        return replace(case, ffn=replace(stack, ffn=None))
    return case


def _largest_copied(ffn: FFNSpec | StackSpec, weight_bytes: int, work: Workload) -> int:
    """Elements of the most weights that a check copies at once: a matrix, or a whole
    layer of a stack.
    """
    if isinstance(ffn, StackSpec):
        return weight_bytes // (ffn.layers * item_bytes(work.dtype))
    return max(rows * columns for rows, columns in ffn.matrices.values())


def _working_bytes(case: Case) -> int:
    """About the bytes that one call takes beside its weights and inputs. In training a
    stack keeps what all of its layers have saved.
    """
    work, item = case.workload, item_bytes(case.workload.dtype)
    if isinstance(case.ffn, StackSpec):
        from ffnbench.ffn.attention import working_bytes

        of_layer = max(
            working_bytes(
                attention,
                batch=work.batch,
                seq_len=work.seq_len,
                item=item,
                train=work.train,
            )
            for attention, _ in case.ffn.attentions
        )
        if isinstance(case.ffn.ffn, FFNSpec):
            of_layer += _working_bytes(replace(case, ffn=case.ffn.ffn))
        return of_layer * (case.ffn.layers if work.train else 1)
    assert isinstance(case.ffn, FFNSpec)
    closed_form = cost_of(case, Probe()).peak_bytes
    if closed_form is not None:
        return closed_form
    elements = 4 * (case.ffn.d_ff + case.ffn.d_model) * work.tokens
    if case.ffn.moe:
        elements *= case.ffn.moe.top_k
    return elements * item

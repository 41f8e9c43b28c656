"""What a call takes: bytes at its peak, those kept for backward; and how sparse it is.

Runs inside a worker. Memory is counted in the bytes of tensors, so that it is the same
number on every machine.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ffnbench.common.errors import FfnbenchError
from ffnbench.ffn.modules import FeedForward
from ffnbench.worker.subject import Subject

MATMULS = (
    "aten::addmm",
    "aten::mm",
    "aten::bmm",
    "aten::baddbmm",
    "aten::linear",
    "aten::mkldnn_linear",
    "aten::_addmm_activation",
)


def peak_bytes(subject: Subject) -> int:
    """The most bytes of tensors that one call holds at once, beside weights and input;
    on an accelerator as they were asked for, since the allocator's own blocks are
    larger.
    """
    subject.clear()
    accelerator = subject.accelerator
    if accelerator is None:
        return _cpu_peak(subject)
    accelerator.synchronize()
    accelerator.reset_peak()
    before = accelerator.requested_bytes()
    subject.call()
    accelerator.synchronize()
    peak = accelerator.peak_requested_bytes() - before
    subject.clear()
    return peak


def _cpu_peak(subject: Subject) -> int:
    """Play the allocator's events, as torch's profiler records them, in the order of
    time.
    """
    # torch.profiler's own would load the compiler first: 1.5 s
    from torch.autograd.profiler import profile

    with profile(use_cpu=True, profile_memory=True) as recorded:
        subject.call()
    subject.clear()
    alive = peak = 0
    for _, size in sorted(_tensor_events(recorded)):
        alive += size
        peak = max(peak, alive)
    return peak


def _tensor_events(recorded: object) -> list[tuple[int, int]]:
    """(time, bytes) of every allocation and release, without the scratch that a matmul
    takes and gives back.
    """
    allocation = torch._C._profiler._EventType.Allocation
    outlasting: list[tuple[int, int]] = []
    # operations with what was recorded inside of them
    operations = [("", recorded.kineto_results.experimental_event_tree())]  # type: ignore[attr-defined]
    while operations:
        name, nodes = operations.pop()
        events = []
        for node in nodes:
            if node.tag == allocation:
                events.append(
                    (
                        node.start_time_ns,
                        node.extra_fields.alloc_size,
                        node.extra_fields.ptr,
                    )
                )
            else:
                operations.append((node.name, node.children))
        if name in MATMULS:
            outlasting += without_scratch(events)
        else:
            outlasting += [(time, size) for time, size, _ in events]
    return outlasting


def without_scratch(events: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """(time, bytes) of the events (time, bytes, address) of one operation whose buffers
    outlive it.
    """
    opened: dict[int, int] = {}  # address -> index of its allocation
    scratch: set[int] = set()
    for index, (_, size, address) in enumerate(events):
        if size > 0:
            opened[address] = index
        elif address in opened:
            scratch |= {index, opened.pop(address)}
    return [
        (time, size)
        for index, (time, size, _) in enumerate(events)
        if index not in scratch
    ]


def saved_bytes(subject: Subject) -> int:
    """Bytes that autograd keeps between forward and backward: each storage once,
    without parameters and input.
    """
    not_counted = (*subject.module.parameters(), *subject.module.buffers(), subject.x)
    outside = {tensor.untyped_storage().data_ptr() for tensor in not_counted}
    saved: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    subject.clear()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = subject.forward(subject.x)
    total = sum(
        t.untyped_storage().nbytes()
        for address, t in saved.items()
        if address not in outside
    )
    del result
    return total


def sparsity(subject: Subject) -> tuple[float, float]:
    """Share of exact zeros in the hidden layer, and share of units that no token of the
    input activates.

    The hidden layer is what enters the down projection, in all of its calls if there
    are several. Raises FfnbenchError where no such projection is found, or it is never
    called.
    """
    zeros, dead = [], []

    def count_zeros(
        _: nn.Module, args: tuple[Tensor, ...], named: dict[str, Tensor]
    ) -> None:
        hidden = args[0] if args else named["input"]
        # counted at once: the tensor may be overwritten
        zero = (hidden == 0).reshape(-1, hidden.shape[-1])
        zeros.append((int(zero.sum()), zero.numel()))
        dead.append(zero.all(dim=0))

    handle = _down_projection(subject).register_forward_pre_hook(
        count_zeros, with_kwargs=True
    )
    subject.module.eval()
    try:
        with torch.inference_mode():
            subject.module(subject.x.detach())
    finally:
        handle.remove()
        subject.module.train(subject.train)
    total = sum(count for _, count in zeros)
    if not total:
        raise FfnbenchError(
            "its nn.Linear back to d_model is never called as a module: no hidden layer seen"
        )
    return sum(zero for zero, _ in zeros) / total, float(
        torch.stack(dead).all(dim=0).double().mean()
    )


def _down_projection(subject: Subject) -> nn.Module:
    if isinstance(subject.module, FeedForward):
        return subject.module.down
    width = subject.x.shape[-1]
    linear = [
        m
        for m in subject.module.modules()
        if isinstance(m, nn.Linear) and m.out_features == width
    ]
    if len(linear) != 1:
        raise FfnbenchError(
            f"{len(linear)} nn.Linear lead to d_model: can't tell which one follows the hidden layer"
        )
    return linear[0]

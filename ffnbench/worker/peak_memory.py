"""Measures the memory of a call, at its peak and saved for backward, and how sparse its
hidden layer is. Runs in a worker.

Memory is counted in the bytes of tensors, so that it is the same number on every
machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakSet

import torch
from torch import Tensor, nn

from ffnbench.common.errors import FfnbenchError
from ffnbench.ffn.modules import FeedForward
from ffnbench.worker.subject import Subject

# operations whose own scratch memory is left out: of sums, a buffer a thread
WITH_SCRATCH = (
    "aten::native_layer_norm_backward",
    "aten::sum",
    "aten::scatter_add_",
    "aten::addmm",
    "aten::mm",
    "aten::bmm",
    "aten::baddbmm",
    "aten::linear",
    "aten::mkldnn_linear",
    "aten::_addmm_activation",
)
# operations that make such memory for the one around them
BUFFERS = ("aten::empty", "aten::zeros", "aten::resize_")


def peak_bytes(subject: Subject) -> int:
    """The most bytes of tensors that one call holds at once, beside weights and input.
    On an accelerator they are the bytes that were requested: the allocator's own blocks
    are larger.
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
    """The peak of a call on the CPU: the allocator's events, as torch's profiler
    records them, are added up in the order of time.
    """
    # torch.profiler.profile would load the compiler, which takes 1.5 s
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
    """(time, bytes) of every allocation, and with negative bytes of every release,
    without the scratch memory that a matrix product takes and releases, or the
    gradient of a LayerNorm.
    """
    allocation = torch._C._profiler._EventType.Allocation
    outlasting: list[tuple[int, int]] = []
    # each operation's name, with the events and operations recorded inside of it
    operations = [("", recorded.kineto_results.experimental_event_tree())]  # type: ignore[attr-defined]
    while operations:
        name, nodes = operations.pop()
        events = []
        nodes = list(nodes)
        for node in nodes:
            if node.name in BUFFERS:
                nodes.extend(node.children)
                continue
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
        if name in WITH_SCRATCH:
            outlasting += without_scratch(sorted(events))
        else:
            outlasting += [(time, size) for time, size, _ in events]
    return outlasting


def without_scratch(events: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """(time, bytes) of those events of one operation, given as (time, bytes, address),
    whose buffer was not both allocated and released by it.
    """
    allocations: dict[int, int] = {}  # index of the event, by address
    scratch: set[int] = set()
    for index, (_, size, address) in enumerate(events):
        if size > 0:
            allocations[address] = index
        elif address in allocations:
            scratch |= {index, allocations.pop(address)}
    return [
        (time, size)
        for index, (time, size, _) in enumerate(events)
        if index not in scratch
    ]


@dataclass(eq=False)
class _Saved:
    """A tensor that a node of the graph has saved."""

    tensor: Tensor


def saved_bytes(subject: Subject) -> int:
    """Bytes that autograd saves between forward and backward: each storage once,
    without parameters, buffers and input.
    """
    not_counted = (*subject.module.parameters(), *subject.module.buffers(), subject.x)
    outside = {tensor.untyped_storage().data_ptr() for tensor in not_counted}
    packed: WeakSet[_Saved] = WeakSet()  # of nodes that are still in the graph

    def pack(tensor: Tensor) -> _Saved:
        saved = _Saved(tensor)
        packed.add(saved)
        return saved

    subject.clear()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved.tensor):
        y = subject.forward(subject.x)  # alive until all is counted
    storages = (saved.tensor.untyped_storage() for saved in packed)
    bytes_at = {storage.data_ptr(): storage.nbytes() for storage in storages}
    del y
    return sum(size for address, size in bytes_at.items() if address not in outside)


def sparsity(subject: Subject) -> tuple[float, float]:
    """The share of exact zeros in the hidden layer, and the share of units that no
    token of the input activates.

    The hidden layer is the input of the down projection, in all of its calls if there
    are several. Raises FfnbenchError where no such projection is found, or it is never
    called.
    """
    zeros, dead = [], []

    def count_zeros(
        _: nn.Module, args: tuple[Tensor, ...], named: dict[str, Tensor]
    ) -> None:
        hidden = args[0] if args else named["input"]
        # counted now, since the tensor may be overwritten
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
    total = sum(elements for _, elements in zeros)
    if not total:
        raise FfnbenchError(
            "its nn.Linear back to d_model is never called as a module: no hidden layer seen"
        )
    zero_share = sum(zero for zero, _ in zeros) / total
    return zero_share, float(torch.stack(dead).all(dim=0).double().mean())


def _down_projection(subject: Subject) -> nn.Module:
    """The linear layer after the hidden layer: of a module of the user's the only one
    whose output is d_model wide. Raises FfnbenchError for none or several.
    """
    if isinstance(subject.module, FeedForward):
        return subject.module.down
    width = subject.x.shape[-1]
    linear = [
        layer
        for layer in subject.module.modules()
        if isinstance(layer, nn.Linear) and layer.out_features == width
    ]
    if len(linear) != 1:
        raise FfnbenchError(
            f"{len(linear)} nn.Linear lead to d_model: can't tell which one follows the hidden layer"
        )
    return linear[0]

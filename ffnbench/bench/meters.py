"""What one sample is: seconds of a call, bytes of a call. Runs inside a worker.

A subject is a module with its input, ready to be called again and again. Timing never includes the clearing
of gradients; memory is counted in the bytes of tensors, so that it is the same number on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from os import urandom
from time import perf_counter
from typing import ParamSpec

import torch
from torch import Tensor, nn

from ffnbench.bench.accelerator import Accelerator, accelerator_of
from ffnbench.bench.evidence import Witness
from ffnbench.bench.inputs import Pool
from ffnbench.bench.placement import Placement
from ffnbench.errors import FfnbenchError
from ffnbench.ffn.dense import FeedForward
from ffnbench.ffn.experts import MixtureOfExperts
from ffnbench.plan import Mode, Workload

Forward = Callable[[Tensor], Tensor]
P = ParamSpec("P")
MATMULS = (
    "aten::addmm",
    "aten::mm",
    "aten::bmm",
    "aten::baddbmm",
    "aten::linear",
    "aten::mkldnn_linear",
    "aten::_addmm_activation",
)


@dataclass(slots=True)
class Subject:
    """A module and what it is called with: `x` where nothing is timed, and a pool of fresh inputs where it is.

    `grad` is the gradient that flows back where there is a backward.
    """

    module: nn.Module
    x: Tensor
    grad: Tensor
    train: bool
    backward_only: bool = False
    slowdown: float = 0.0
    draws: bool = False  # random numbers, in its calls
    run: Forward | None = None  # what a backend calls in place of the module
    accelerator: Accelerator | None = None  # what it runs on, where that is not the CPU
    placement: Placement | None = field(default=None, init=False)
    pool: Pool = field(init=False)
    grads: Pool = field(init=False)  # fresh ones too: what flows back in one call is in no other

    def __post_init__(self) -> None:
        self.pool = Pool(self.x, train=self.train)
        self.grads = Pool(self.grad, train=False)

    @property
    def forward(self) -> Forward:
        """What is timed."""
        return self.run or self.module

    def place(self, seed: str) -> bool:
        """New storages for everything that it works on; False where that can't be.

        What it may hold is known only after its first call, so the first time decides.
        """
        if self.placement is None:
            inputs = (self.x, self.grad, self.pool.memory, self.grads.memory)
            self.placement = Placement(self.module, inputs, captured=self.run is not None)
        self.clear()
        self.pool.release()
        self.grads.release()
        return self.placement.move(seed)

    def call(self, x: Tensor | None = None) -> Tensor:
        """One call as it is timed: forward, or forward and backward through a fresh graph. Gives the output."""
        run, x = self.run or self.module, self.x if x is None else x
        if self.train:
            y = run(x)
            y.backward(self.grad)
            return y
        with torch.inference_mode():
            return run(x)

    def timed(self, x: Tensor | None = None) -> Callable[[], Tensor]:
        """What to time: the whole call, or for backward alone the second half, its graph built here."""
        x = self.x if x is None else x
        call: Callable[[], Tensor] = partial(self.call, x)
        if self.backward_only:
            call = partial(self._backward, self.forward(x))
        return self.slowed(call) if self.slowdown else call

    def _backward(self, y: Tensor) -> Tensor:
        y.backward(self.grad)
        return y

    def slowed(self, call: Callable[P, Tensor]) -> Callable[P, Tensor]:
        """The call, and then a spin for the given share of its own time: a slow-down that is known exactly."""

        def slow(*args: P.args, **named: P.kwargs) -> Tensor:
            start = perf_counter()
            y = call(*args, **named)
            if self.x.is_cuda:
                torch.cuda.synchronize(self.x.device)
            end = perf_counter()
            until = end + self.slowdown * (end - start)
            while perf_counter() < until:
                pass
            return y

        return slow

    def clear(self, x: Tensor | None = None) -> None:
        """Forget all leaf gradients, so that no call pays for adding to the last one's."""
        if self.train:
            (self.x if x is None else x).grad = None
            for parameter in self.module.parameters():
                parameter.grad = None

    def output(self) -> Tensor:
        """The result on the first tokens: outside any graph, without dropout.

        By a backend on the whole input, and with a graph where there is a backward: for another shape or grad mode
        other code would be made, and not that which is timed.
        """
        self.module.eval()
        if self.run:
            with torch.enable_grad() if self.train else torch.inference_mode():
                result = self.run(self.x).detach()[:1, :16]
        else:
            with torch.inference_mode():
                result = self.module(self.x.detach()[:1, :16])
        self.module.train(self.train)
        return result


def subject_of(module: nn.Module, workload: Workload, d_model: int, seed: int) -> Subject:
    """Move nothing, time nothing: inputs of seeded N(0, 1), gradient of the output's shape, mode set."""
    dtype, train = getattr(torch, workload.dtype), workload.train
    generator = torch.Generator().manual_seed(seed)
    shape = (workload.batch, workload.seq_len, d_model)
    x, grad = (torch.randn(shape, generator=generator).to(workload.device, dtype) for _ in range(2))
    module.train(train)
    backward_only = workload.mode == Mode.BACKWARD.value
    accelerator = accelerator_of(workload.device)
    return Subject(
        module, x.requires_grad_(train), grad, train, backward_only, workload.slowdown, accelerator=accelerator
    )


def empty_call() -> float:
    """Seconds of a call of an empty module, measured as every other call is: what the harness itself costs."""
    subject = Subject(nn.Identity(), torch.randn(1, 1, 8), torch.randn(1, 1, 8), train=False)
    return min(sample(subject, [subject.x] * 200) for _ in range(10))


def warm_up(subject: Subject, seconds: float) -> None:
    """Call until the time is over and the last calls are no faster than those before, at most 5x as long."""
    start, best, since = perf_counter(), math.inf, 0
    while (elapsed := perf_counter() - start) < 5 * seconds:
        took = sample(subject, fresh(subject))
        best, since = (took, 0) if took < 0.98 * best else (best, since + 1)
        if elapsed >= seconds and since >= 3:
            return


def calls_for(subject: Subject, min_sample_s: float) -> int:
    """How many calls make one sample last long enough for the clock and for the scheduler."""
    fastest = math.inf
    for _ in range(3):
        fastest = min(fastest, sample(subject, fresh(subject)))
        if fastest > 2 * min_sample_s:  # one call is long enough, even if this one was disturbed
            return 1
    return max(1, math.ceil(min_sample_s / max(fastest, 1e-9)))


def fresh(subject: Subject) -> list[Tensor]:
    """One input that no call has seen, for a call that is no sample."""
    return subject.pool.renew(int.from_bytes(urandom(7)), 1)


def sample(
    subject: Subject, inputs: Sequence[Tensor], witnesses: Sequence[Witness] = (), grads: Sequence[Tensor] = ()
) -> float:
    """Mean seconds of one call over those of these inputs, with these gradients that flow back; without any, always the
    seeded one. The clock stands while each witness looks at its call; they stand in the order of their calls.
    """
    first, grads = subject.grad, grads or [subject.grad] * len(inputs)
    try:
        return _seconds(subject, inputs, grads, witnesses) / len(inputs)
    finally:
        subject.grad = first


def _seconds(
    subject: Subject, inputs: Sequence[Tensor], grads: Sequence[Tensor], witnesses: Sequence[Witness]
) -> float:
    if subject.x.is_cuda:
        return _on_cuda(subject, inputs, grads, witnesses)
    if subject.train or any(witness.draws for witness in witnesses):
        return _one_by_one(subject, inputs, grads, witnesses)
    return _in_a_row(subject, inputs, witnesses)


def _in_a_row(subject: Subject, inputs: Sequence[Tensor], witnesses: Sequence[Witness]) -> float:
    """On the CPU. Nothing comes before a call that is looked at: a pause would give it away."""
    call = subject.slowed(subject.call) if subject.slowdown else subject.call
    total, at = 0.0, 0
    for witness in witnesses:
        before, x, at = inputs[at : witness.call], inputs[witness.call], witness.call + 1
        witness.before()
        start = perf_counter()
        for one in before:
            call(one)
        y = call(x)
        total += perf_counter() - start
        witness.after(x, y, gradients=False)
        del y
    rest = inputs[at:]
    start = perf_counter()
    for one in rest:
        call(one)
    return total + perf_counter() - start


def _one_by_one(
    subject: Subject, inputs: Sequence[Tensor], grads: Sequence[Tensor], witnesses: Sequence[Witness]
) -> float:
    """On the CPU: between calls gradients are cleared, and the state that each draws numbers from is noted."""
    total, looked = 0.0, {witness.call: witness for witness in witnesses}
    for number, x in enumerate(inputs):
        subject.grad = grads[number]
        subject.clear(x)
        for one in witnesses:
            one.before(number)
        call, witness = subject.timed(x), looked.get(number)
        start = perf_counter()
        y: Tensor | None = call()
        if witness is None:
            y = None
        total += perf_counter() - start
        if witness is not None:
            witness.after(x, y, gradients=subject.train)
        subject.clear(x)
    return total


def _on_cuda(
    subject: Subject, inputs: Sequence[Tensor], grads: Sequence[Tensor], witnesses: Sequence[Witness]
) -> float:
    """Events around each call; the device is idle before the first and drained after the last.

    The device is idle as well while a witness looks, and waits only for what stands on the current stream.
    """
    device, looked = subject.x.device, {witness.call: witness for witness in witnesses}
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in inputs]
    torch.cuda.synchronize(device)
    for number, ((start, end), x) in enumerate(zip(events, inputs, strict=True)):
        subject.grad = grads[number]
        subject.clear(x)
        for witness in witnesses:
            witness.before(number)
        call = subject.timed(x)
        start.record()
        y: Tensor | None = call()
        end.record()
        if number in looked:
            torch.cuda.current_stream(device).synchronize()
            looked[number].after(x, y, gradients=subject.train)
        y = None
        subject.clear(x)
    torch.cuda.synchronize(device)
    return sum(start.elapsed_time(end) for start, end in events) / 1e3


def peak_bytes(subject: Subject) -> int:
    """The most bytes of tensors that one call holds at once, beside weights and input."""
    subject.clear()
    if subject.accelerator is not None:
        return _device_peak(subject, subject.accelerator)
    return _cpu_peak(subject.call, subject.clear)


def _device_peak(subject: Subject, accelerator: Accelerator) -> int:
    """In bytes as they were asked for: the allocator's own blocks are larger."""
    accelerator.synchronize()
    accelerator.reset_peak()
    before = accelerator.requested_bytes()
    subject.call()
    accelerator.synchronize()
    peak = accelerator.peak_requested_bytes() - before
    subject.clear()
    return peak


def workspace_bytes(subject: Subject) -> int | None:
    """What the device's libraries keep for themselves after a call whose outputs are gone; None on the CPU, where what
    they take is not counted as a tensor. Above the bytes before it, once what they kept so far is given back.
    """
    if (accelerator := subject.accelerator) is None:
        return None
    subject.clear()
    accelerator.synchronize()
    if accelerator.device.type == "cuda" and (give_back := getattr(torch._C, "_cuda_clearCublasWorkspaces", None)):
        give_back()
    before = accelerator.requested_bytes()
    subject.call()
    accelerator.synchronize()
    subject.clear()
    return max(0, accelerator.requested_bytes() - before)


def _cpu_peak(call: Callable[[], None], clear: Callable[[], None]) -> int:
    """Play the allocator's events, as torch's profiler records them, in the order of time."""
    from torch.autograd.profiler import profile  # torch.profiler's own would load the compiler first: 1.5 s

    with profile(use_cpu=True, profile_memory=True) as recorded:
        call()
    clear()
    alive = peak = 0
    for _, size in sorted(_tensor_events(recorded)):
        alive += size
        peak = max(peak, alive)
    return peak


def _tensor_events(recorded: object) -> list[tuple[int, int]]:
    """(time, bytes) of every allocation and release, without the scratch that a matmul takes and gives back."""
    kept: list[tuple[int, int]] = []

    def visit(nodes: list, parent: str) -> None:
        own = [node for node in nodes if node.tag == torch._C._profiler._EventType.Allocation]
        events = [(n.start_time_ns, n.extra_fields.alloc_size, n.extra_fields.ptr) for n in own]
        kept.extend(without_scratch(events) if parent in MATMULS else [event[:2] for event in events])
        for node in nodes:
            if node.tag != torch._C._profiler._EventType.Allocation:
                visit(node.children, node.name)

    visit(recorded.kineto_results.experimental_event_tree(), "")  # type: ignore[attr-defined]
    return kept


def without_scratch(events: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """(time, bytes) of the events (time, bytes, address) of one operation whose buffers outlive it."""
    opened: dict[int, int] = {}  # address -> index of its allocation
    scratch: set[int] = set()
    for index, (_, size, address) in enumerate(events):
        if size > 0:
            opened[address] = index
        elif address in opened:
            scratch |= {index, opened.pop(address)}
    return [(time, size) for index, (time, size, _) in enumerate(events) if index not in scratch]


def saved_bytes(subject: Subject) -> int:
    """Bytes that autograd keeps between forward and backward: each storage once, without parameters and input."""
    outside = {
        t.untyped_storage().data_ptr() for t in (*subject.module.parameters(), *subject.module.buffers(), subject.x)
    }
    kept: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    subject.clear()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = subject.forward(subject.x)
    total = sum(t.untyped_storage().nbytes() for address, t in kept.items() if address not in outside)
    del result
    return total


def sparsity(subject: Subject) -> tuple[float, float]:
    """Share of exact zeros in the hidden layer, and share of units that no token of the input activates.

    The hidden layer is what enters the down projection, in all of its calls if there are several. Raises
    FfnbenchError where no such projection is found, or it is never called.
    """
    zeros, dead = [], []

    def look(_: nn.Module, args: tuple[Tensor, ...], named: dict[str, Tensor]) -> None:
        hidden = args[0] if args else named["input"]
        zero = (hidden == 0).reshape(-1, hidden.shape[-1])  # counted at once: the tensor may be overwritten
        zeros.append((int(zero.sum()), zero.numel()))
        dead.append(zero.all(dim=0))

    handle = _down_projection(subject).register_forward_pre_hook(look, with_kwargs=True)
    subject.module.eval()
    try:
        with torch.inference_mode():
            subject.module(subject.x.detach())
    finally:
        handle.remove()
        subject.module.train(subject.train)
    total = sum(count for _, count in zeros)
    if not total:
        raise FfnbenchError("its nn.Linear back to d_model is never called as a module, so the hidden layer is unseen")
    return sum(zero for zero, _ in zeros) / total, float(torch.stack(dead).all(dim=0).double().mean())


def _down_projection(subject: Subject) -> nn.Module:
    if isinstance(subject.module, FeedForward):
        return subject.module.down
    if isinstance(subject.module, MixtureOfExperts):
        raise FfnbenchError("each expert has a hidden layer of its own")
    width = subject.x.shape[-1]
    linear = [m for m in subject.module.modules() if isinstance(m, nn.Linear) and m.out_features == width]
    if not linear:
        raise FfnbenchError("no nn.Linear back to d_model, so the hidden layer can't be found")
    if len(linear) > 1:
        raise FfnbenchError(
            f"{len(linear)} nn.Linear lead to d_model, so it is not known which follows the hidden layer"
        )
    return linear[0]

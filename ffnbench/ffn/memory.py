"""Which tensors are alive when: peak and saved-for-backward bytes of one eager call, exactly.

A form is written as the list of kernels that it runs (`tape`); playing the list forward, and for training
backward again, gives every allocation and every release in the order in which eager PyTorch makes them.
The closed forms follow from it: SwiGLU's inference peak is 3 * tokens * d_ff items (the activated gate, the
up projection and their product), its saved tensors are 4 * tokens * d_ff. Weights, input, incoming gradient and
the matrix library's own scratch buffers are left out.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ffnbench.ffn.spec import FFNSpec, Gate

EXTERNAL = frozenset({"x"})  # the module's input: alive before and after, so never counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel: tensors by name. `grads` are the inputs that get a gradient, `weight` the bytes of dW and db.

    `scratch` are bytes alive during it alone, `temps` those during its backward, `scalar` those of a constant factor.
    """

    inputs: tuple[str, ...]
    output: str
    saves: tuple[str, ...] = ()
    grads: tuple[str, ...] = ()
    weight: int = 0
    temps: int = 0
    scalar: int = 0
    scratch: int = 0


@dataclass(slots=True)
class Tape:
    """Kernels in the order of execution, with the size of every tensor in bytes."""

    kernels: list[Kernel] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)

    def add(self, size: int, **kernel: object) -> str:
        """Append a kernel whose output has `size` bytes; returns the output's name."""
        self.kernels.append(Kernel(**kernel))  # type: ignore[arg-type]
        self.sizes[self.kernels[-1].output] = size
        return self.kernels[-1].output


def tape(spec: FFNSpec, *, tokens: int, item: int, train: bool, device: str) -> Tape:
    """The kernels of one forward call of modules.py's form, in its order of evaluation."""
    t = Tape()
    hidden, model = tokens * spec.d_ff * item, tokens * spec.d_model * item
    matrix, square = spec.d_model * spec.d_ff, spec.d_model**2
    bias_h, bias_d = (spec.d_ff, spec.d_model) if spec.bias else (0, 0)

    def linear(source: str, output: str, size: int, weight: int) -> str:
        return t.add(
            size, inputs=(source,), output=output, saves=(source,), grads=(source,), weight=weight * item
        )  # fmt: skip

    first = linear("x", "gate" if spec.gate is Gate.INNER else "up", hidden, matrix + bias_h)
    if spec.limit is not None:
        first = _clamp(t, first, hidden, bounds=1, item=item)
    h = _activate(t, spec, first, hidden, item, device)
    if spec.gate is Gate.INNER:
        up = linear("x", "up", hidden, matrix + bias_h)
        if spec.limit is not None:
            up = _clamp(t, up, hidden, bounds=2, item=item)
        if spec.up_offset:
            up = t.add(hidden, inputs=(up,), output="offset", grads=(up,), scratch=_number(item, device))
        h = t.add(hidden, inputs=(h, up), output="product", saves=(h, up), grads=(h, up))
    if train and spec.dropout:
        # CPU keeps a mask in the tensor's own dtype, CUDA's fused kernel one byte an element
        mask = tokens * spec.d_ff * (1 if device == "cuda" else item)
        t.add(mask, inputs=(h,), output="mask")
        h = t.add(hidden, inputs=(h, "mask"), output="dropped", saves=("mask",), grads=(h,))
    y = linear(h, "y", model, matrix + bias_d)
    if spec.gate is Gate.OUTPUT:
        gate = linear("x", "gate", model, square + bias_d)
        t.add(model, inputs=(y, gate), output="z", saves=(y, gate), grads=(y, gate))
    return t


def _clamp(t: Tape, source: str, size: int, *, bounds: int, item: int) -> str:
    """Append a clamp: it saves its argument, and its backward makes a mask of one byte an element for each bound."""
    masks = _masks(bounds, size, item)
    return t.add(
        size, inputs=(source,), output=f"limited_{source}", saves=(source,), grads=(source,), temps=masks
    )  # fmt: skip


def _number(item: int, device: str) -> int:
    """Bytes of a number that a kernel adds: a float64, and its cast. A device's kernel takes it as an argument."""
    return 8 + item % 8 if device == "cpu" else 0


def _masks(masks: int, size: int, item: int) -> int:
    """Bytes of so many masks of one byte an element, beside which the kernel makes one zero."""
    return masks * size // item + item if masks else 0


def _activate(t: Tape, spec: FFNSpec, source: str, size: int, item: int, device: str) -> str:
    """Append the activation's kernels; returns the name of its result (its argument, where it does nothing)."""
    names = {"x": source, "y": "activated"}
    result = source
    steps = spec.row.steps or ()
    for step in steps:
        inputs = tuple(names.get(i, i) for i in step.inputs)
        output = names.get(step.output, step.output)
        saves = tuple(names.get(s, s) for s in step.saves)
        # the caller's frame holds the argument until the activation returns
        reads = (*inputs, source) if step is steps[-1] else inputs
        result = t.add(
            size,
            inputs=reads,
            output=output,
            saves=saves,
            grads=inputs,
            weight=len(spec.row.learned) * item if step is steps[-1] else 0,
            temps=step.temps * size + _masks(step.masks, size, item),
            scalar=step.scalar_bytes if device == "cpu" else 0,  # to autograd a tensor, which is the host's
            scratch=_number(item, device) if step.adds else 0,
        )
    return result


class _Ledger:
    """Bytes alive, by tensor, with reference counts; remembers the highest total."""

    def __init__(self, sizes: dict[str, int]) -> None:
        self.sizes = sizes
        self.references: Counter[str] = Counter()
        self.alive = self.peak = 0

    def allocate(self, size: int) -> None:
        self.alive += size
        self.peak = max(self.peak, self.alive)

    def hold(self, name: str) -> None:
        if name not in EXTERNAL:
            if not self.references[name]:
                self.allocate(self.sizes[name])
            self.references[name] += 1

    def release(self, name: str) -> None:
        if name not in EXTERNAL:
            self.references[name] -= 1
            if not self.references[name]:
                self.alive -= self.sizes[name]


def _forward(t: Tape, *, train: bool) -> _Ledger:
    """Play the tape: each tensor lives until its last reader is done, and in training while somebody saved it."""
    ledger = _Ledger(t.sizes)
    last_reader = {name: i for i, kernel in enumerate(t.kernels) for name in kernel.inputs}
    for i, kernel in enumerate(t.kernels):
        ledger.hold(kernel.output)
        ledger.allocate(kernel.scalar + kernel.scratch)
        ledger.alive -= kernel.scratch
        if train:
            for name in kernel.saves:
                ledger.hold(name)
        else:
            ledger.alive -= kernel.scalar
        for name in dict.fromkeys(kernel.inputs):
            if last_reader[name] == i:
                ledger.release(name)
    return ledger


def _backward(t: Tape, ledger: _Ledger) -> None:
    """Play the tape backward: gradients of inputs and weights appear, then saved tensors and the used gradient go."""
    gradients: set[str] = set()
    of_x = t.sizes[t.kernels[-1].output]  # the input is as large as the output
    ledger.sizes = {**t.sizes, **{f"d_{name}": size for name, size in t.sizes.items()}, "d_x": of_x}
    for kernel in reversed(t.kernels):
        if not kernel.grads:
            continue
        again = [name for name in kernel.grads if name in gradients]
        ledger.allocate(kernel.weight)
        ledger.allocate(kernel.temps)
        for name in kernel.grads:
            ledger.allocate(ledger.sizes[f"d_{name}"]) if name in again else ledger.hold(f"d_{name}")
            gradients.add(name)
        ledger.alive -= kernel.temps + kernel.scalar
        for name in kernel.saves:
            ledger.release(name)
        if kernel.output in gradients:
            ledger.release(f"d_{kernel.output}")
        for name in again:  # two gradients of one tensor are summed into a third, then both go
            ledger.allocate(ledger.sizes[f"d_{name}"])
            ledger.alive -= 2 * ledger.sizes[f"d_{name}"]


def peak_bytes(spec: FFNSpec, *, tokens: int, item: int, train: bool, device: str) -> int | None:
    """The most bytes that one call holds at once: forward, or forward and backward with fresh gradients.

    None for an activation whose kernels are not known, and for experts, whose peak follows the routing.
    """
    if spec.row.steps is None or spec.moe is not None:
        return None
    t = tape(spec, tokens=tokens, item=item, train=train, device=device)
    ledger = _forward(t, train=train)
    if train:
        _backward(t, ledger)
    return ledger.peak


def saved_bytes(spec: FFNSpec, *, tokens: int, item: int, device: str) -> int | None:
    """Bytes that autograd keeps between forward and backward, each storage once, parameters and input left out.

    None for an activation whose kernels are not known, and for experts.
    """
    if spec.row.steps is None or spec.moe is not None:
        return None
    t = tape(spec, tokens=tokens, item=item, train=True, device=device)
    kept = {name for kernel in t.kernels for name in kernel.saves} - EXTERNAL
    return sum(t.sizes[name] for name in kept)

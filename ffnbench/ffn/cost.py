"""Parameters, FLOPs and bytes in closed form: exact integers, no torch.

Conventions: 1 MAC = 2 FLOPs. Matmul and element-wise FLOPs are separate numbers, both per token. Backward is
the gradient of the input and of every weight (x requires grad). The element-wise convention is declared in
ffn/activations.py. Source of the formulas: Shazeer 2020 for the gated forms; counted again by torch in the tests.

Bytes at the peak, and saved for backward, are of one eager call. A form is written as the list of kernels that it runs
(`tape`); playing the list forward, and for training backward again, gives every allocation and every release in the
order in which eager PyTorch makes them. The closed forms follow from it: SwiGLU's inference peak is 3 * tokens * d_ff
items (the activated gate, the up projection and their product), its saved tensors are 4 * tokens * d_ff. Weights,
input, incoming gradient and the matrix library's own scratch buffers are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ffnbench.common.jsonable import LATER, least
from ffnbench.ffn.spec import ActivationSpec, FFNSpec, Gate, MoESpec, Scores, item_bytes, shared_expert

FORMULA = {Gate.NONE: "2*d*d_ff", Gate.INNER: "3*d*d_ff", Gate.OUTPUT: "2*d*d_ff + d^2"}
BIAS_FORMULA = {Gate.NONE: " + d_ff + d", Gate.INNER: " + 2*d_ff + d", Gate.OUTPUT: " + d_ff + 2*d"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What is known of a case without timing it. FLOPs are per token; None is "not known".

    `counted` marks numbers that come from running a module on torch's meta device instead of from a formula;
    `uncounted` then names the operations that the count knows nothing of, and `width_note` says what the module
    made of d_ff. `peak_bytes` is the most that one call holds beside weights and input, `saved_bytes` what
    autograd keeps for backward (train mode only). `params_active` are those that one token meets, and
    `weight_bytes_touched` are expected to be read in one call: they differ from the total where there are experts.
    """

    params: int = field(metadata=least(0))
    params_active: int = field(metadata=least(0))
    params_formula: str | None
    flops_forward: int | None = field(metadata=least(0))
    flops_backward: int | None = field(metadata=least(0))
    flops_elementwise: int | None
    flops_elementwise_backward: int | None
    weight_bytes: int = field(metadata=least(0))
    peak_bytes: int | None = None
    saved_bytes: int | None = None
    counted: bool = False
    counted_how: str = ""
    uncounted: tuple[str, ...] = ()
    width_note: str = ""
    weight_bytes_touched: int | None = field(default=None, metadata=LATER)
    failed: str = field(default="", metadata=LATER)  # why nothing is known: the numbers say nothing then


NO_MATRICES = Cost(
    params=0, params_active=0, params_formula=None, flops_forward=0, flops_backward=0, flops_elementwise=None,
    flops_elementwise_backward=None, weight_bytes=0,
)  # fmt: skip


def uncounted(why: str) -> Cost:
    """Of a module that can't be counted, for that reason."""
    return replace(NO_MATRICES, flops_forward=None, flops_backward=None, counted=True, failed=why)


def matrix_params(spec: FFNSpec) -> int:
    """Elements of the weight matrices, biases left out: of one expert, where there are experts."""
    return sum(rows * columns for rows, columns in spec.matrices.values())


def bias_params(spec: FFNSpec) -> int:
    """Elements of the bias vectors, one for each row of each matrix."""
    return sum(rows for rows, _ in spec.matrices.values()) if spec.bias else 0


def params(spec: FFNSpec) -> int:
    """All parameters: every expert's, where there are experts."""
    return round(_params(spec, spec.moe.experts if spec.moe else 1))


def params_active(spec: FFNSpec) -> int:
    """The parameters that one token meets."""
    return round(_params(spec, spec.moe.top_k if spec.moe else 1))


def _params(spec: FFNSpec, experts: float) -> float:
    """With so many experts; the scalars of their activation are trained together."""
    each = matrix_params(spec) + bias_params(spec)
    return experts * each + len(spec.row.learned) + (_always(spec, spec.moe) if spec.moe else 0)


def _always(spec: FFNSpec, moe: MoESpec) -> int:
    """The parameters that every token meets: the router, and the shared experts."""
    shared = shared_expert(spec)
    return moe.router_params(spec.d_model) + (params(shared) if shared else 0)


def params_formula(spec: FFNSpec) -> str:
    """The closed form in words: `2*d*4d` for the usual width, `3*d*d_ff`, `2*d*d_ff + d^2`, biases after it.

    Experts: `8*3*d*d_ff + 8*d`, which is theirs and the router's, then the shared one's.
    """
    formula = FORMULA[spec.gate] + (BIAS_FORMULA[spec.gate] if spec.bias else "")
    each = formula.replace("d_ff", "4d") if spec.d_ff == 4 * spec.d_model else formula
    learned = [str(len(spec.row.learned))] if spec.row.learned else []
    moe = spec.moe
    if moe is None:
        return " + ".join([each, *learned])
    parts = [f"{moe.experts}*({each})" if "+" in each else f"{moe.experts}*{each}", *learned, f"{moe.experts}*d"]
    parts += [str(moe.experts)] if moe.router_bias else []
    parts += [formula.replace("d_ff", str(moe.shared_d_ff)), *learned] if moe.shared_d_ff else []
    return " + ".join([*parts, "d"] if moe.shared_gate else parts)


def flops_forward(spec: FFNSpec) -> int:
    """Matmul FLOPs of one token's forward pass: each weight that it meets is one MAC, the router's too."""
    return 2 * _macs(spec)


def flops_backward(spec: FFNSpec) -> int:
    """Matmul FLOPs of one token's backward pass: one product for the input's gradient, one for the weight's."""
    return 4 * _macs(spec)


def _macs(spec: FFNSpec) -> int:
    moe, shared = spec.moe, shared_expert(spec)
    if moe is None:
        return matrix_params(spec)
    beside = moe.router_matrix_params(spec.d_model) + (matrix_params(shared) if shared else 0)
    return moe.top_k * matrix_params(spec) + beside


def flops_elementwise(spec: FFNSpec) -> tuple[int | None, int | None]:
    """Element-wise FLOPs of one token, forward and backward: activation, gating, clamps, biases, dropout; routing.

    None where the user's own activation declares no cost.
    """
    if spec.moe is None:
        return _elementwise(spec)
    expert, routing = _elementwise(replace(spec, moe=None)), _routing(spec, spec.moe)
    shared = _elementwise(found) if (found := shared_expert(spec)) else (0, 0)
    forward, backward = (
        None if one is None or other is None else spec.moe.top_k * one + other + beside
        for one, other, beside in zip(expert, shared, routing, strict=True)
    )
    return forward, backward


def _elementwise(spec: FFNSpec) -> tuple[int | None, int | None]:
    row = spec.row
    d, h = spec.d_model, spec.d_ff
    product = {Gate.NONE: 0, Gate.INNER: h, Gate.OUTPUT: d}[spec.gate]
    # a limit compares the gate once and up twice; backward selects once more for each of the two
    bounds, bounds_backward = (0, 0) if spec.limit is None else (3 * h, 5 * h)
    offset = h if spec.up_offset else 0
    two_gradients_of_x = d if spec.gated else 0
    dropped = h if spec.dropout else 0
    forward = product + bounds + offset + bias_params(spec) + 2 * dropped
    backward = 2 * product + bounds_backward + two_gradients_of_x + bias_params(spec) + dropped
    return (
        None if row.flops is None else row.flops * h + forward,
        None if row.flops_backward is None else row.flops_backward * h + backward,
    )


def _routing(spec: FFNSpec, moe: MoESpec) -> tuple[int, int]:
    """What joins the experts, forward and backward; choosing the highest scores moves data and counts nothing.

    Scores: softmax is exp, sum, divide (backward y (g - sum of y g), 4); a sigmoid is 4 (backward 3). Weights:
    normalising is a sum and a division (backward 4), scaling 1. Outputs: k weighted vectors are summed, 2 k d;
    backward every output and every weight gets its gradient, 3 k d, and those of x are summed. The shared expert is
    added, and a gate of its own is a sigmoid and a product (backward 3 and 3 d).
    """
    d, k, shared, gate = spec.d_model, moe.top_k, int(moe.shared_d_ff > 0), int(moe.shared_gate)
    scores, scores_backward = (3, 4) if moe.scores is Scores.SOFTMAX else (4, 3)
    scaled = k if moe.routed_scale != 1 else 0
    bias = moe.experts if moe.router_bias else 0
    weights, weights_backward = (2 * k, 4 * k) if moe.normalised else (0, 0)
    gradients_of_x = k + shared + gate  # those of the experts and of the gates, added to the router's
    return (
        moe.experts * scores + bias + weights + scaled + 2 * k * d + shared * d + gate * (4 + d),
        moe.experts * scores_backward + bias + weights_backward + scaled + 3 * k * d
        + gate * (3 + 3 * d) + gradients_of_x * d,
    )  # fmt: skip


def cost(spec: FFNSpec, *, tokens: int, dtype: str, train: bool, device: str) -> Cost:
    """Everything at once for a workload of `tokens` tokens. `device` matters for dropout's mask, and for numbers."""
    item = item_bytes(dtype)
    forward, backward = flops_elementwise(spec)
    total, macs = params(spec), _macs(spec)
    peak, saved = bytes_at_work(spec, tokens=tokens, item=item, train=train, device=device)
    return Cost(
        params=total,
        params_active=params_active(spec) if spec.moe else total,
        params_formula=params_formula(spec),
        flops_forward=2 * macs,
        flops_backward=4 * macs,
        flops_elementwise=forward,
        flops_elementwise_backward=backward,
        weight_bytes=total * item,
        # expected, where each token chooses its experts uniformly and by itself
        weight_bytes_touched=round(_params(spec, spec.moe.distinct(tokens)) * item) if spec.moe else total * item,
        peak_bytes=peak,
        saved_bytes=saved,
    )


def activation_cost(spec: ActivationSpec) -> Cost:
    """An activation by itself: no parameters; a token is one element."""
    row = spec.row
    return replace(NO_MATRICES, flops_elementwise=row.flops, flops_elementwise_backward=row.flops_backward)


EXTERNAL = frozenset({"x"})  # the module's input: alive before and after, so never counted


class Kernel(NamedTuple):
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
        found = Kernel(**kernel)  # type: ignore[arg-type]
        self.kernels.append(found)
        self.sizes[found.output] = size
        return found.output


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
            # a number that a kernel adds is a float64, and its cast; a device's kernel takes it as an argument
            number = 8 + item % 8 if device == "cpu" else 0
            up = t.add(hidden, inputs=(up,), output="offset", grads=(up,), scratch=number)
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
        )
    return result


class _Ledger:
    """Bytes alive, by tensor, with reference counts; remembers the highest total."""

    def __init__(self, sizes: dict[str, int]) -> None:
        self.sizes = sizes
        self.references: dict[str, int] = {}
        self.alive = self.peak = 0

    def allocate(self, size: int) -> None:
        self.alive += size
        if self.alive > self.peak:
            self.peak = self.alive

    def hold(self, name: str) -> None:
        if name not in EXTERNAL:
            if not self.references.get(name):
                self.allocate(self.sizes[name])
            self.references[name] = self.references.get(name, 0) + 1

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


def bytes_at_work(spec: FFNSpec, *, tokens: int, item: int, train: bool, device: str) -> tuple[int | None, int | None]:
    """The most bytes that one call holds at once: forward, or forward and backward with fresh gradients; and those that
    autograd keeps between the two, each storage once, parameters and input left out, None where there is no backward.

    Both are None for an activation whose kernels are not known, and for experts, whose peak follows the routing.
    """
    if spec.row.steps is None or spec.moe is not None:
        return None, None
    t = tape(spec, tokens=tokens, item=item, train=train, device=device)
    ledger = _forward(t, train=train)
    if not train:
        return ledger.peak, None
    _backward(t, ledger)
    kept = {name for kernel in t.kernels for name in kernel.saves} - EXTERNAL
    return ledger.peak, sum(t.sizes[name] for name in kept)

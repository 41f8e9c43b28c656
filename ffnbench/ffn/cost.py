"""Parameters, FLOPs and bytes in closed form: exact integers, no torch.

Conventions: 1 MAC = 2 FLOPs. Matmul and element-wise FLOPs are separate numbers, both
per token. Backward is the gradient of the input and of every weight (x requires grad).
The element-wise convention is declared in ffn/activations.py. Source of the formulas:
Shazeer 2020 for the gated forms; counted again by torch in the tests.

Bytes at the peak, and saved for backward, are of one eager call. A form is written as
the list of kernels that it runs (`tape`); playing the list forward, and for training
backward again, gives every allocation and every release in the order in which eager
PyTorch makes them. The closed forms follow from it: SwiGLU's inference peak is 3 *
tokens * d_ff elements (the activated gate, the up projection and their product), its
saved tensors are 4 * tokens * d_ff. Weights, input, incoming gradient and the matrix
library's own scratch buffers are left out. `item` is the size of an element in bytes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from ffnbench.common.choices import Routing
from ffnbench.ffn.spec import (
    ActivationSpec,
    AttentionSpec,
    FFNSpec,
    Gate,
    MoESpec,
    Scores,
    item_bytes,
    shared_expert,
)

FORMULA = {Gate.NONE: "2*d*d_ff", Gate.INNER: "3*d*d_ff", Gate.OUTPUT: "2*d*d_ff + d^2"}
BIAS_FORMULA = {
    Gate.NONE: " + d_ff + d",
    Gate.INNER: " + 2*d_ff + d",
    Gate.OUTPUT: " + d_ff + 2*d",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What is known of a case without timing it. FLOPs are per token; None is "not
    known".

    `counted` marks numbers that come from running a module on torch's meta device
    instead of from a formula; `uncounted` then names the operations that the count
    knows nothing of, and `width_note` says what the module made of d_ff, and
    `role_note` where the name of a weight contradicts its role. `peak_bytes` is the
    most that one call holds beside weights and input, `saved_bytes` what autograd keeps
    for backward (train mode only). `params_active` are those that one token meets, and
    `weight_bytes_touched` are expected to be read in one call: they
    differ from the total where there are experts.
    """

    params: int
    params_active: int
    params_formula: str | None
    flops_forward: int | None
    flops_backward: int | None
    flops_elementwise: int | None
    flops_elementwise_backward: int | None
    weight_bytes: int
    peak_bytes: int | None = None
    saved_bytes: int | None = None
    counted: bool = False
    counted_how: str = ""
    uncounted: tuple[str, ...] = ()
    width_note: str = ""
    role_note: str = ""
    # matrices of a module that keep the dtype where weights are quantised
    unquantised: tuple[str, ...] = ()
    weight_bytes_touched: int | None = None
    # why nothing is known; the other fields then mean nothing
    failed: str = ""


# how the FLOPs of a module were counted that raised, before what it raised
RAISED = "not counted: it raised"
NO_MATRICES = Cost(
    params=0,
    params_active=0,
    params_formula=None,
    flops_forward=0,
    flops_backward=0,
    flops_elementwise=None,
    flops_elementwise_backward=None,
    weight_bytes=0,
)


def cost_unknown(why: str) -> Cost:
    """The cost of a module that can't be counted; `why` is the reason."""
    return replace(
        NO_MATRICES, flops_forward=None, flops_backward=None, counted=True, failed=why
    )


def matrix_params(spec: FFNSpec | AttentionSpec) -> int:
    """Elements of the weight matrices, biases left out: of one expert, where there are
    experts.
    """
    return sum(rows * columns for rows, columns in spec.matrices.values())


def bias_params(spec: FFNSpec) -> int:
    """Elements of the bias vectors, one for each row of each matrix: of one expert,
    where there are experts.
    """
    if not spec.bias:
        return 0
    return sum(rows for rows, _ in spec.matrices.values())


def params(spec: FFNSpec) -> int:
    """All parameters: every expert's, where there are experts."""
    if spec.moe is None:
        return round(params_of_experts(spec, 1))
    return round(params_of_experts(spec, spec.moe.experts))


def params_active(spec: FFNSpec) -> int:
    """The parameters that one token meets."""
    if spec.moe is None:
        return params(spec)
    return round(params_of_experts(spec, spec.moe.top_k))


def params_of_experts(spec: FFNSpec, experts: float) -> float:
    """The parameters of so many routed experts and of what every token meets: the
    router, the shared experts and the trained scalars of the activation, which all
    experts have in common. A spec without experts counts as one expert.
    """
    of_an_expert = matrix_params(spec) + bias_params(spec)
    total = experts * of_an_expert + len(spec.row.learned)
    if spec.moe is not None:
        total += spec.moe.router_params(spec.d_model)
        shared = shared_expert(spec)
        if shared is not None:
            total += params(shared)
    return total


def weight_elements_touched(spec: FFNSpec, tokens: int, routing: Routing) -> int:
    """The expected number of parameters that one call reads."""
    if spec.moe is None:
        return params(spec)
    from ffnbench.ffn.routing import expected_hits

    hits = expected_hits(routing, spec.moe.experts, spec.moe.top_k, tokens)
    return round(params_of_experts(spec, hits))


def params_formula(spec: FFNSpec) -> str:
    """The closed form in words: `2*d*4d` for the usual width, `3*d*d_ff`, `2*d*d_ff +
    d^2`; the biases follow.

    With experts the terms are those of all experts, of the router and of the shared
    expert: `8*3*d*d_ff + 8*d + 3*d*2048`.
    """
    of_any_width = FORMULA[spec.gate]
    if spec.bias:
        of_any_width += BIAS_FORMULA[spec.gate]
    network = of_any_width
    if spec.d_ff == 4 * spec.d_model:
        network = of_any_width.replace("d_ff", "4d")
    learned = [str(len(spec.row.learned))] if spec.row.learned else []
    moe = spec.moe
    if moe is None:
        return " + ".join([network, *learned])
    if "+" in network:
        network = f"({network})"
    terms = [f"{moe.experts}*{network}", *learned, f"{moe.experts}*d"]
    if moe.router_bias:
        terms.append(str(moe.experts))
    if moe.shared_d_ff:
        terms += [of_any_width.replace("d_ff", str(moe.shared_d_ff)), *learned]
    if moe.shared_gate:
        terms.append("d")
    return " + ".join(terms)


def flops_forward(spec: FFNSpec) -> int:
    """Matmul FLOPs of one token's forward pass, the router's too."""
    return 2 * _macs(spec)


def flops_backward(spec: FFNSpec) -> int:
    """Matmul FLOPs of one token's backward pass: one product for the input's gradient,
    one for the weight's.
    """
    return 4 * _macs(spec)


def _macs(spec: FFNSpec) -> int:
    """The MACs of one token's forward pass: one for each weight that it meets."""
    macs = matrix_params(spec)
    if spec.moe is not None:
        macs = spec.moe.top_k * macs + spec.moe.router_matrix_params(spec.d_model)
        shared = shared_expert(spec)
        if shared is not None:
            macs += matrix_params(shared)
    return macs


def flops_elementwise(spec: FFNSpec) -> tuple[int | None, int | None]:
    """Element-wise FLOPs of one token, forward and backward: of activation, gating,
    clamps, biases, dropout and routing.

    Either is None where the user's own activation declares no such cost.
    """
    activated = spec.d_ff
    forward, backward = _elementwise_beside_activation(spec)
    if spec.moe is not None:
        router_forward, router_backward = _elementwise_of_routing(spec, spec.moe)
        activated *= spec.moe.top_k
        forward = spec.moe.top_k * forward + router_forward
        backward = spec.moe.top_k * backward + router_backward
        shared = shared_expert(spec)
        if shared is not None:
            shared_forward, shared_backward = _elementwise_beside_activation(shared)
            activated += shared.d_ff
            forward += shared_forward
            backward += shared_backward
    activation = spec.row
    total: int | None = None
    total_backward: int | None = None
    if activation.flops is not None:
        total = activated * activation.flops + forward
    if activation.flops_backward is not None:
        total_backward = activated * activation.flops_backward + backward
    return total, total_backward


def _elementwise_beside_activation(spec: FFNSpec) -> tuple[int, int]:
    """Element-wise FLOPs of one token in one network, forward and backward, without the
    activation: of the product with the gate, clamps, offset, biases and dropout.
    """
    d, h = spec.d_model, spec.d_ff
    biases = bias_params(spec)
    forward, backward = biases, biases
    if spec.gated:
        gated = h if spec.gate is Gate.INNER else d
        forward += gated
        backward += 2 * gated
        backward += d  # the two gradients of x are summed
    if spec.limit is not None:
        forward += 3 * h  # the gate is compared once, up twice
        backward += 5 * h  # each of the two selects once more
    if spec.up_offset:
        forward += h
    if spec.dropout:
        forward += 2 * h
        backward += h
    return forward, backward


def _elementwise_of_routing(spec: FFNSpec, moe: MoESpec) -> tuple[int, int]:
    """Element-wise FLOPs of one token, forward and backward, that join the experts.
    Choosing the highest scores moves data and counts nothing.
    """
    d, k = spec.d_model, moe.top_k
    if moe.scores is Scores.SOFTMAX:
        forward = 3 * moe.experts  # exp, sum, division
        backward = 4 * moe.experts  # y (g - sum of y g)
    else:
        forward = 4 * moe.experts  # a sigmoid
        backward = 3 * moe.experts
    if moe.router_bias:
        forward += moe.experts
        backward += moe.experts
    if moe.normalised:
        forward += 2 * k  # the weights are summed and divided
        backward += 4 * k
    if moe.routed_scale != 1:
        forward += k
        backward += k
    forward += 2 * k * d  # k weighted vectors are summed
    backward += 3 * k * d  # every output and every weight gets its gradient
    backward += k * d  # the experts' gradients of x are added to the router's
    if moe.shared_d_ff:
        forward += d
        backward += d
    if moe.shared_gate:
        forward += 4 + d  # a sigmoid, and its product with the output
        backward += 3 + 3 * d
        backward += d  # its gradient of x
    return forward, backward


def cost(
    spec: FFNSpec,
    *,
    tokens: int,
    dtype: str,
    train: bool,
    device: str,
    routing: Routing = Routing.UNIFORM,
) -> Cost:
    """Everything that is known of a spec under a workload of `tokens` tokens. The bytes
    depend on the device: on dropout's mask and constants, as `tape` says. Without
    training, dropout does nothing.
    """
    if not train:
        spec = replace(spec, dropout=0.0)
    item = item_bytes(dtype)
    forward, backward = flops_elementwise(spec)
    peak, saved = peak_and_saved_bytes(
        spec, tokens=tokens, item=item, train=train, device=device
    )
    return Cost(
        params=params(spec),
        params_active=params_active(spec),
        params_formula=params_formula(spec),
        flops_forward=flops_forward(spec),
        flops_backward=flops_backward(spec),
        flops_elementwise=forward,
        flops_elementwise_backward=backward,
        weight_bytes=params(spec) * item,
        weight_bytes_touched=weight_elements_touched(spec, tokens, routing) * item,
        peak_bytes=peak,
        saved_bytes=saved,
    )


def activation_cost(spec: ActivationSpec) -> Cost:
    """The cost of an activation by itself: no parameters, and a token is an element."""
    row = spec.row
    return replace(
        NO_MATRICES,
        flops_elementwise=row.flops,
        flops_elementwise_backward=row.flops_backward,
    )


X = "x"  # the input of the module: alive before and after the call, so never counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel, with its tensors by name. `grads` are the inputs that get a gradient.

    Bytes: `weight_grad_bytes` are dW and db, `temp_bytes` live during its backward
    alone, `scratch_bytes` during its forward alone, and `scalar_bytes`, a constant
    factor, from its forward to the end of its backward.
    """

    inputs: tuple[str, ...]
    output: str
    saves: tuple[str, ...] = ()
    grads: tuple[str, ...] = ()
    weight_grad_bytes: int = 0
    temp_bytes: int = 0
    scalar_bytes: int = 0
    scratch_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Tape:
    """Kernels in the order of execution, with the size of every tensor in bytes."""

    kernels: list[Kernel] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)

    def add(self, size: int, kernel: Kernel) -> str:
        """Append a kernel whose output has `size` bytes; returns the output's name."""
        self.kernels.append(kernel)
        self.sizes[kernel.output] = size
        return kernel.output

    def linear(self, source: str, output: str, *, size: int, weight: int) -> str:
        """Append a product with a weight of `weight` bytes, bias included: it saves its
        input.
        """
        kernel = Kernel(
            inputs=(source,),
            output=output,
            saves=(source,),
            grads=(source,),
            weight_grad_bytes=weight,
        )
        return self.add(size, kernel)

    def product(self, first: str, second: str, output: str, *, size: int) -> str:
        """Append an element-wise product: it saves both factors."""
        factors = (first, second)
        return self.add(
            size, Kernel(inputs=factors, output=output, saves=factors, grads=factors)
        )

    def clamp(self, source: str, *, bounds: int, size: int, item: int) -> str:
        """Append a clamp: it saves its argument, and its backward makes a mask for each
        bound.
        """
        kernel = Kernel(
            inputs=(source,),
            output=f"limited_{source}",
            saves=(source,),
            grads=(source,),
            temp_bytes=_mask_bytes(bounds, size, item),
        )
        return self.add(size, kernel)


def _mask_bytes(masks: int, size: int, item: int) -> int:
    """Bytes of so many masks of one byte an element, for a tensor of `size` bytes; with
    any mask comes a zero of one element, which is put where the mask is false.
    """
    if masks == 0:
        return 0
    return masks * size // item + item


def tape(spec: FFNSpec, *, tokens: int, item: int, device: str) -> Tape:
    """The kernels of one forward call of modules.py's form, in its order of
    evaluation.
    """
    d, h = spec.d_model, spec.d_ff
    model_bytes = tokens * d * item
    hidden_bytes = tokens * h * item
    weight_bytes = {}
    for name, (rows, columns) in spec.matrices.items():
        elements = rows * columns
        if spec.bias:
            elements += rows
        weight_bytes[name] = elements * item

    t = Tape()
    first = "gate" if spec.gate is Gate.INNER else "up"
    activated = t.linear(X, first, size=hidden_bytes, weight=weight_bytes[first])
    if spec.limit is not None:
        activated = t.clamp(activated, bounds=1, size=hidden_bytes, item=item)
    hidden = _activate(t, spec, activated, hidden_bytes, item, device)
    if spec.gate is Gate.INNER:
        up = t.linear(X, "up", size=hidden_bytes, weight=weight_bytes["up"])
        if spec.limit is not None:
            up = t.clamp(up, bounds=2, size=hidden_bytes, item=item)
        if spec.up_offset:
            # on a CPU the number to add is a tensor of float64, and another of the
            # dtype where that differs; a kernel of a device takes it as an argument
            number_bytes = 8 + item % 8 if device == "cpu" else 0
            offset = Kernel(
                inputs=(up,), output="offset", grads=(up,), scratch_bytes=number_bytes
            )
            up = t.add(hidden_bytes, offset)
        hidden = t.product(hidden, up, "product", size=hidden_bytes)
    if spec.dropout:
        # on a CPU the mask has the tensor's own dtype; CUDA's fused kernel keeps one
        # byte an element
        mask_bytes = tokens * h if device == "cuda" else hidden_bytes
        mask = t.add(mask_bytes, Kernel(inputs=(hidden,), output="mask"))
        dropout = Kernel(
            inputs=(hidden, mask), output="dropped", saves=(mask,), grads=(hidden,)
        )
        hidden = t.add(hidden_bytes, dropout)
    y = t.linear(hidden, "y", size=model_bytes, weight=weight_bytes["down"])
    if spec.gate is Gate.OUTPUT:
        gate = t.linear(X, "gate", size=model_bytes, weight=weight_bytes["gate"])
        t.product(y, gate, "z", size=model_bytes)
    return t


def _activate(
    t: Tape, spec: FFNSpec, source: str, size: int, item: int, device: str
) -> str:
    """Append the activation's kernels, and return the name of its result: that of its
    argument for the identity, which has no kernel.
    """
    names = {"x": source, "y": "activated"}
    result = source
    steps = spec.row.steps or ()
    for step in steps:
        arguments = tuple(names.get(name, name) for name in step.inputs)
        inputs = arguments
        learned_bytes = 0
        if step is steps[-1]:
            # the caller's frame holds the argument until the activation returns
            inputs = (*arguments, source)
            learned_bytes = len(spec.row.learned) * item
        kernel = Kernel(
            inputs=inputs,
            output=names.get(step.output, step.output),
            saves=tuple(names.get(name, name) for name in step.saves),
            grads=arguments,
            weight_grad_bytes=learned_bytes,
            temp_bytes=step.temps * size + _mask_bytes(step.masks, size, item),
            # autograd keeps it on the host, whatever the device
            scalar_bytes=step.scalar_bytes if device == "cpu" else 0,
        )
        result = t.add(size, kernel)
    return result


class _Memory:
    """The bytes that are alive while a tape is played, and their peak. A tensor lives
    while it has references, which are counted by its name.
    """

    def __init__(self, sizes: dict[str, int]) -> None:
        self.sizes = sizes
        self.references: Counter[str] = Counter()
        self.alive = self.peak = 0

    def allocate(self, size: int) -> None:
        self.alive += size
        self.peak = max(self.peak, self.alive)

    def free(self, size: int) -> None:
        self.alive -= size

    def acquire(self, name: str) -> None:
        """Count a reference to a tensor, which is allocated by the first."""
        if name == X:
            return
        if self.references[name] == 0:
            self.allocate(self.sizes[name])
        self.references[name] += 1

    def release(self, name: str) -> None:
        """Drop a reference to a tensor, which is freed with the last."""
        if name == X:
            return
        self.references[name] -= 1
        if self.references[name] == 0:
            self.free(self.sizes[name])


def _play_forward(t: Tape, memory: _Memory, *, train: bool) -> None:
    """Play the tape: each tensor lives until its last reader is done, and in training
    as long as a kernel has saved it.
    """
    # a later reader of the same tensor replaces the one before
    last_reader = {name: kernel for kernel in t.kernels for name in kernel.inputs}
    for kernel in t.kernels:
        memory.acquire(kernel.output)
        memory.allocate(kernel.scalar_bytes + kernel.scratch_bytes)
        memory.free(kernel.scratch_bytes)
        if train:
            for name in kernel.saves:
                memory.acquire(name)
        else:
            memory.free(kernel.scalar_bytes)
        for name in set(kernel.inputs):
            if last_reader[name] is kernel:
                memory.release(name)


def _play_backward(t: Tape, memory: _Memory) -> None:
    """Play the tape backward: each kernel allocates the gradients of its inputs and
    weight, then its saved tensors and the gradient of its output are released.
    """
    # the input is as large as the output
    size_of_gradient = {**t.sizes, X: t.sizes[t.kernels[-1].output]}
    gradients = {f"d_{name}": size for name, size in size_of_gradient.items()}
    memory.sizes = t.sizes | gradients
    with_gradient: set[str] = set()
    for kernel in reversed(t.kernels):
        if not kernel.grads:
            continue
        summed = [name for name in kernel.grads if name in with_gradient]
        memory.allocate(kernel.weight_grad_bytes + kernel.temp_bytes)
        for name in kernel.grads:
            if name in summed:
                memory.allocate(size_of_gradient[name])
            else:
                memory.acquire(f"d_{name}")
            with_gradient.add(name)
        memory.free(kernel.temp_bytes + kernel.scalar_bytes)
        for name in kernel.saves:
            memory.release(name)
        if kernel.output in with_gradient:
            memory.release(f"d_{kernel.output}")
        # two gradients of one tensor are summed into a third, then both go
        for name in summed:
            memory.allocate(size_of_gradient[name])
            memory.free(2 * size_of_gradient[name])


def peak_and_saved_bytes(
    spec: FFNSpec, *, tokens: int, item: int, train: bool, device: str
) -> tuple[int | None, int | None]:
    """Two numbers of bytes, without parameters and input. The peak is the most that one
    call holds at once: forward, and in training backward with fresh gradients. Saved is
    what autograd keeps between the two, each storage once; None without training.

    Both are None for an activation whose kernels are not known, and for experts, whose
    peak depends on the routing.
    """
    if spec.row.steps is None or spec.moe is not None:
        return None, None
    t = tape(spec, tokens=tokens, item=item, device=device)
    memory = _Memory(t.sizes)
    _play_forward(t, memory, train=train)
    if not train:
        return memory.peak, None
    _play_backward(t, memory)
    saved = {name for kernel in t.kernels for name in kernel.saves if name != X}
    return memory.peak, sum(t.sizes[name] for name in saved)

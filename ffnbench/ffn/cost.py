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

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ffnbench.common.choices import Routing
from ffnbench.ffn.activations import Step
from ffnbench.ffn.spec import (
    ActivationSpec,
    AttentionSpec,
    Dispatch,
    FFNSpec,
    Gate,
    MoESpec,
    Norm,
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


NORM_FORMULA = {Norm.RMS: " + d_ff", Norm.LAYER: " + 2*d_ff"}
# element-wise FLOPs of a hidden element in a norm: squared, summed, scaled, times its
# factor; LayerNorm sums it once more, subtracts the mean and adds a bias
NORM_FLOPS = {None: 0, Norm.RMS: 4, Norm.LAYER: 7}


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


def params_active(spec: FFNSpec, choices: float | None = None) -> int:
    """The parameters that one token meets, in so many routed experts; by default as
    many as the router chooses evenly.
    """
    if spec.moe is None:
        return params(spec)
    return round(params_of_experts(spec, choices or spec.moe.choices))


def params_of_experts(spec: FFNSpec, experts: float) -> float:
    """The parameters of so many routed experts and of what every token meets: the
    router, the shared experts and the trained scalars of the activation, which all
    experts have in common. A spec without experts counts as one expert.
    """
    of_an_expert = matrix_params(spec) + bias_params(spec) + spec.norm_params
    total = experts * of_an_expert + len(spec.learned)
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
    return round(params_of_experts(spec, touched_experts(spec.moe, tokens, routing)))


def touched_experts(moe: MoESpec, tokens: int, routing: Routing) -> float:
    """The expected number of routed experts that some token of a call goes to."""
    from ffnbench.ffn.routing import chances, expected_hits

    each = chances(routing, moe.outputs, moe.top_k)
    return expected_hits(each[: moe.experts], tokens)


def computed_choices(moe: MoESpec, tokens: int, routing: Routing) -> float:
    """The expected number of routed experts with weights that compute a token of a
    call.
    """
    from ffnbench.ffn.routing import expected_rows

    return sum(expected_rows(moe, tokens, routing)) / tokens


def params_formula(spec: FFNSpec) -> str:
    """The closed form in words: `2*d*4d` for the usual width, `3*d*d_ff`, `2*d*d_ff +
    d^2`; the biases follow.

    With experts the terms are those of all experts, of the router and of the shared
    expert: `8*3*d*d_ff + 8*d + 3*d*2048`.
    """
    of_any_width = FORMULA[spec.gate]
    if spec.bias:
        of_any_width += BIAS_FORMULA[spec.gate]
    if spec.subnorm is not None:
        of_any_width += NORM_FORMULA[spec.subnorm]
    network = of_any_width
    if spec.d_ff == 4 * spec.d_model:
        network = of_any_width.replace("d_ff", "4d")
    learned = [str(len(spec.learned))] if spec.learned else []
    moe = spec.moe
    if moe is None:
        return " + ".join([network, *learned])
    if moe.latent:
        network = re.sub(r"\bd\b", str(moe.latent), of_any_width)
    if "+" in network:
        network = f"({network})"
    terms = [f"{moe.experts}*{network}", *learned, f"{moe.outputs}*d"]
    if moe.router_bias:
        terms.append(str(moe.outputs))
    if moe.latent:
        terms.append(f"2*d*{moe.latent}")
    if moe.shared_d_ff:
        terms += [of_any_width.replace("d_ff", str(moe.shared_d_ff)), *learned]
    if moe.shared_gate:
        terms.append("d")
    return " + ".join(terms)


def flops_forward(spec: FFNSpec, choices: float | None = None) -> int:
    """Matmul FLOPs of one token's forward pass, the router's too. `choices` as in
    `params_active`.
    """
    return round(2 * _macs(spec, choices))


def flops_backward(spec: FFNSpec, choices: float | None = None) -> int:
    """Matmul FLOPs of one token's backward pass: one product for the input's gradient,
    one for the weight's; and those of the forward that a checkpoint computes again, all
    but a last projection.
    """
    flops = 4 * _macs(spec, choices)
    if spec.checkpoint:
        flops += flops_forward(spec)
        if spec.gate is not Gate.OUTPUT:
            flops -= 2 * spec.d_model * spec.d_ff
    return round(flops)


def _macs(spec: FFNSpec, choices: float | None) -> float:
    """The MACs of one token's forward pass: one for each weight that it meets."""
    macs: float = matrix_params(spec)
    if spec.moe is not None:
        macs = (choices or spec.moe.choices) * macs + spec.moe.router_matrix_params(
            spec.d_model
        )
        macs += 2 * spec.d_model * spec.moe.latent
        shared = shared_expert(spec)
        if shared is not None:
            macs += matrix_params(shared)
    return macs


def flops_elementwise(spec: FFNSpec, choices: float | None = None) -> int | None:
    """Element-wise FLOPs of one token's forward: of activation, gating, clamps, norm,
    biases, dropout and routing. `choices` as in `params_active`.

    None where the user's own activation declares no such cost.
    """
    networks: dict[FFNSpec, float] = {spec: 1}
    flops = 0.0
    if spec.moe is not None:
        expert = replace(spec, moe=None, d_model=spec.expert_width)
        choices = choices or spec.moe.choices
        networks = {expert: choices}
        flops = _elementwise_of_routing(spec, spec.moe, choices)
        shared = shared_expert(spec)
        if shared is not None:
            networks[shared] = networks.get(shared, 0) + 1
    elements = 0.0
    for network, count in networks.items():
        flops += count * _elementwise_beside_activation(network)
        elements += count * network.d_ff
    for act in spec.activations.values():
        if act.flops is None:
            return None
        flops += elements * act.flops
    return round(flops)


def _elementwise_beside_activation(spec: FFNSpec) -> int:
    """Element-wise FLOPs of one token in one network without the activations: of the
    product with the gate, norm, biases and dropout.
    """
    d, h = spec.d_model, spec.d_ff
    flops = bias_params(spec) + NORM_FLOPS[spec.subnorm] * h
    if spec.gated:
        flops += h if spec.gate is Gate.INNER else d
    if spec.dropout:
        flops += 2 * h
    return flops


def _elementwise_of_routing(spec: FFNSpec, moe: MoESpec, choices: float) -> float:
    """Element-wise FLOPs of one token that join the experts. Choosing the highest
    scores moves data and counts nothing.
    """
    d, k, scores = spec.d_model, moe.top_k, moe.outputs
    flops = 4.0 * scores  # sigmoids
    if moe.scores is Scores.SOFTMAX:
        flops = 3.0 * scores  # exp, sum, division
    if moe.router_bias:
        flops += scores
    if moe.normalised:
        flops += 2 * k  # the weights are summed and divided
    if moe.routed_scale != 1:
        flops += k
    vectors = choices
    if moe.zero:
        flops += k  # their weights are summed, to one factor of x
        vectors += 1
    flops += 2 * vectors * spec.expert_width  # weighted vectors are summed
    if moe.shared_d_ff:
        flops += d
    if moe.shared_gate:
        flops += 4 + d  # a sigmoid, and its product with the output
    return flops


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
    depend on the device: on dropout's mask and constants, as `tape` says; those of
    experts on the tokens that each one is expected to get. Without training, dropout
    does nothing.
    """
    if not train:
        spec = replace(spec, dropout=0.0)
    item = item_bytes(dtype)
    choices = computed = None
    loads: Sequence[int] = ()
    if spec.moe is not None:
        from ffnbench.ffn.routing import expected_loads

        moe = spec.moe
        choices = computed = computed_choices(moe, tokens, routing)
        if moe.dispatch is Dispatch.BATCHED:
            computed = moe.experts * moe.most_rows(tokens) / tokens
        loads = expected_loads(moe, tokens, routing)
    peak, saved = peak_and_saved_bytes(
        spec, tokens=tokens, item=item, train=train, device=device, loads=loads
    )
    return Cost(
        params=params(spec),
        params_active=params_active(spec, choices),
        params_formula=params_formula(spec),
        flops_forward=flops_forward(spec, computed),
        flops_backward=flops_backward(spec, computed),
        flops_elementwise=flops_elementwise(spec, computed),
        weight_bytes=params(spec) * item,
        weight_bytes_touched=weight_elements_touched(spec, tokens, routing) * item,
        peak_bytes=peak,
        saved_bytes=saved,
    )


X = "x"  # the input of the module: alive before and after the call, so never counted
# the state of torch's generator on a CPU, which a checkpoint keeps for dropout
GENERATOR_BYTES = 5056


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel, with its tensors by name. `grads` are the inputs that get a gradient:
    that of the output itself, where it `adds`.

    Bytes: `weight_grad_bytes` are the gradients that its backward gives, such as dW,
    `vector_grad_bytes` those that are summed up behind it, such as db,
    `learned_grad_bytes` those of an activation's numbers, which are summed up at its
    end, `temp_bytes` live during its backward alone, `scratch_bytes` during its
    forward alone, and `scalar_bytes`, a constant factor, from its forward to the end of
    its backward.
    """

    inputs: tuple[str, ...]
    output: str
    saves: tuple[str, ...] = ()
    grads: tuple[str, ...] = ()
    adds: bool = False
    weight_grad_bytes: int = 0
    vector_grad_bytes: int = 0
    learned_grad_bytes: int = 0
    temp_bytes: int = 0
    scalar_bytes: int = 0
    scratch_bytes: int = 0


@dataclass(slots=True)
class Tape:
    """Kernels in the order of execution, with the size of every tensor in bytes, and of
    gradients that are larger or have no tensor. Two gradients of one tensor are summed
    into a third; where `in_place` so are only the first two of `views`.
    """

    kernels: list[Kernel] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    gradients: dict[str, int] = field(default_factory=dict)
    in_place: bool = False
    views: set[str] = field(default_factory=set)

    def add(self, size: int, kernel: Kernel) -> str:
        """Append a kernel whose output has `size` bytes; returns the output's name."""
        self.kernels.append(kernel)
        self.sizes[kernel.output] = size
        return kernel.output

    def step(
        self, text: str, size: int = 0, *, adds: bool = False, **of_bytes: int
    ) -> str:
        """Append a kernel that is written as `y* = x'* w`: its output and its inputs,
        of which ' marks those that get a gradient, and * what is saved. Returns the
        output's name.
        """
        words = text.replace(" = ", " ").split()
        output, *inputs = [word.rstrip("'*") for word in words]
        kernel = Kernel(
            inputs=tuple(inputs),
            output=output,
            saves=tuple(word.rstrip("'*") for word in words if "*" in word),
            grads=tuple(word.rstrip("'*") for word in words if "'" in word),
            adds=adds,
            **of_bytes,
        )
        return self.add(size, kernel)

    def linear(
        self, source: str, output: str, *, size: int, weight: int, bias: int = 0
    ) -> str:
        """Append a product with a weight and a bias of so many bytes: it saves its
        input.
        """
        return self.step(
            f"{output} = {source}'*",
            size,
            weight_grad_bytes=weight,
            vector_grad_bytes=bias,
        )

    def again(self) -> Tape:
        """The kernels that a checkpoint runs again: all but the last, whose inputs are
        needed and not its output (torch.utils.checkpoint stops early).
        """
        stop = replace(self.kernels[-1], output="stop")
        return Tape([*self.kernels[:-1], stop], self.sizes | {"stop": 0})


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
    hidden_bytes = tokens * spec.d_ff * item
    model_bytes = tokens * spec.d_model * item
    t = Tape(gradients={X: model_bytes})

    def linear(source: str, output: str, name: str) -> str:
        rows, columns = spec.matrices[name]
        row_bytes = rows * item
        return t.linear(
            source,
            output,
            size=tokens * row_bytes,
            weight=columns * row_bytes,
            bias=row_bytes if spec.bias else 0,
        )

    first = "gate" if spec.gate is Gate.INNER else "up"
    hidden = linear(X, first, first)
    hidden = _activate(t, spec.act, hidden, hidden_bytes, item, device)
    if spec.gate is Gate.INNER:
        up = linear(X, "up", "up")
        if spec.up is not None:
            up = _activate(t, spec.up, up, hidden_bytes, item, device)
        hidden = t.step(f"product = {hidden}'* {up}'*", hidden_bytes)
    if spec.dropout:
        # on a CPU the mask has the tensor's own dtype; CUDA's fused kernel keeps one
        # byte an element
        mask_bytes = tokens * spec.d_ff if device == "cuda" else hidden_bytes
        t.step(f"mask = {hidden}", mask_bytes)
        hidden = t.step(f"dropped = {hidden}' mask*", hidden_bytes)
    if spec.subnorm is not None:
        hidden = _normalise(t, spec, hidden, tokens, item, device)
    y = linear(hidden, "y", "down")
    if spec.gate is Gate.OUTPUT:
        gate = linear(X, "gate", "gate")
        t.step(f"z = {y}'* {gate}'*", model_bytes)
    if spec.checkpoint and spec.dropout and device == "cpu":
        t.kernels[0] = replace(t.kernels[0], scalar_bytes=GENERATOR_BYTES)
    return t


def _normalise(
    t: Tape, spec: FFNSpec, hidden: str, tokens: int, item: int, device: str
) -> str:
    """Append the norm's kernels, and return the name of its result. LayerNorm is one
    kernel, which saves a mean and a root for each token; so is RMSNorm on a GPU.
    """
    size, weight_bytes = tokens * spec.d_ff * item, spec.norm_params * item
    if spec.subnorm is Norm.RMS and device == "cpu":
        return _rms_norm_on_cpu(t, spec, hidden, tokens, item)
    numbers = 2 if spec.subnorm is Norm.LAYER else 1
    number_bytes = item if device == "cpu" else max(item, 4)
    t.step(f"statistics = {hidden}", numbers * tokens * number_bytes)
    text = f"normed = {hidden}'* statistics*"
    return t.step(text, size, weight_grad_bytes=weight_bytes)


def _rms_norm_on_cpu(
    t: Tape, spec: FFNSpec, hidden: str, tokens: int, item: int
) -> str:
    """Append the kernels of which torch composes RMSNorm on a CPU: x / sqrt(mean(x^2) +
    eps) * weight, in float32 where x has 16 bits. Returns the name of the result.
    """
    wide_item = max(item, 4)
    wide, row = tokens * spec.d_ff * wide_item, tokens * wide_item
    weight, wide_weight = spec.d_ff * item, spec.d_ff * wide_item
    is_cast = wide_item != item
    x = hidden
    if is_cast:
        x = t.step(f"wide = {x}'", wide)
    t.step(f"squares = {x}'*", wide, temp_bytes=2 * wide)
    t.step("mean = squares'", row)
    t.step("root* = mean' squares", row, temp_bytes=2 * row)
    t.step(f"scaled = {x}'* root'*", wide, temp_bytes=wide)
    normed = t.step(
        f"weighted = scaled'* {x} root",
        wide,
        vector_grad_bytes=weight,
        temp_bytes=wide + wide_weight - weight,
        scratch_bytes=wide_weight if is_cast else 0,
    )
    if is_cast:
        normed = t.step(f"normed = weighted' root {hidden}", wide * item // wide_item)
    return normed


def _activate(
    t: Tape, act: ActivationSpec, source: str, size: int, item: int, device: str
) -> str:
    """Append the activation's kernels, and return the name of its result: that of its
    argument for the identity, which has no kernel.
    """
    if act.limit is not None:
        # its backward makes a mask for the bound
        text, mask_bytes = f"limited_{source} = {source}'*", _mask_bytes(1, size, item)
        source = t.step(text, size, temp_bytes=mask_bytes)
    names = {"x": source}
    result = source
    steps = act.row.steps or ()
    for step in steps:
        names[step.output] = f"{source}/{step.output}"
        arguments = tuple(names[name] for name in step.inputs)
        inputs = arguments
        learned_bytes = 0
        if step is steps[-1]:
            # the caller's frame holds the argument until the activation returns
            inputs = (*arguments, source)
            learned_bytes = len(act.row.learned) * item
        number_bytes = _number_bytes(step, item) if device == "cpu" else 0
        temp_bytes = step.temps * size + _mask_bytes(step.masks, size, item)
        if step.scalar_bytes:
            temp_bytes += number_bytes
        kernel = Kernel(
            inputs=inputs,
            output=names[step.output],
            saves=tuple(names[name] for name in step.saves),
            grads=arguments,
            learned_grad_bytes=learned_bytes,
            adds=step.adds,
            temp_bytes=temp_bytes,
            # autograd keeps it on the host, whatever the device
            scalar_bytes=step.scalar_bytes if device == "cpu" else 0,
            scratch_bytes=number_bytes,
        )
        result = t.add(size, kernel)
    if act.offset:
        step = Step(output="offset", inputs=("x",), adds=True)
        number_bytes = _number_bytes(step, item) if device == "cpu" else 0
        text = f"{source}/offset = {result}'"
        result = t.step(text, size, adds=True, scratch_bytes=number_bytes)
    return result


def _number_bytes(step: Step, item: int) -> int:
    """Bytes that the constant of a step takes on a CPU while it runs, beside those that
    autograd keeps: it is a tensor of float64, and another of the dtype where that
    differs. A kernel of a device takes it as an argument.
    """
    of_dtype = item % 8
    if step.scalar_bytes:
        return of_dtype
    adds_number = step.adds and len(step.inputs) == 1
    return 8 + of_dtype if adds_number else 0


class _Heap:
    """The bytes that are alive, and their peak."""

    def __init__(self) -> None:
        self.alive = self.peak = 0

    def allocate(self, size: int) -> None:
        self.alive += size
        self.peak = max(self.peak, self.alive)

    def free(self, size: int) -> None:
        self.alive -= size


class _Memory:
    """The tensors of a tape while it is played, by their names. A tensor lives while it
    has references.
    """

    def __init__(self, heap: _Heap) -> None:
        self.allocate, self.free = heap.allocate, heap.free
        self.sizes: dict[str, int] = {}
        self.references: Counter[str] = Counter()

    def sum_into(self, size: int, earlier: int) -> None:
        """Add a gradient to those that a tensor has: two are summed into a third and
        go, to which more are added in place.
        """
        if earlier == 1:
            self.allocate(size)
            self.free(size)
        if earlier:
            self.free(size)

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


def _play_forward(t: Tape, memory: _Memory, *, train: bool, saves: bool) -> None:
    """Play the tape: each tensor lives until its last reader is done, and with `saves`
    as long as a kernel has saved it; constants do in all training.
    """
    memory.sizes = t.sizes
    # a later reader of the same tensor replaces the one before
    last_reader = {name: kernel for kernel in t.kernels for name in kernel.inputs}
    for kernel in t.kernels:
        memory.acquire(kernel.output)
        memory.allocate(kernel.scalar_bytes + kernel.scratch_bytes)
        memory.free(kernel.scratch_bytes)
        if saves:
            for name in kernel.saves:
                memory.acquire(name)
        if not train:
            memory.free(kernel.scalar_bytes)
        for name in set(kernel.inputs):
            if last_reader[name] is kernel:
                memory.release(name)


def _play_backward(
    t: Tape, memory: _Memory, *, earlier: int, is_tile: bool, is_again: bool
) -> None:
    """Play the tape backward: each kernel allocates the gradients of its inputs and
    weight, then its saved tensors and the gradient of its output are released. Before
    it, so many `earlier` tiles have given the weights a gradient; `is_again`: its
    tensors were computed again.
    """
    size_of_gradient = t.sizes | t.gradients
    gradients = {f"d_{name}": size for name, size in size_of_gradient.items()}
    memory.sizes = t.sizes | gradients
    gradient_of = {name: f"d_{name}" for name in size_of_gradient}
    gradient_of[t.kernels[-1].output] = X  # it is given, and never counted
    with_gradient: set[str] = set()
    views = set(t.views)
    for kernel in reversed(t.kernels):
        summed = [name for name in kernel.grads if name in with_gradient]
        passed = gradient_of[kernel.output]
        vector_bytes, weight_bytes = kernel.vector_grad_bytes, kernel.weight_grad_bytes
        learned_bytes = kernel.learned_grad_bytes
        memory.allocate(weight_bytes + kernel.temp_bytes)
        if not is_again:
            memory.allocate(learned_bytes)
        for name in kernel.grads:
            if name not in summed:
                if kernel.adds:
                    gradient_of[name] = passed
                memory.acquire(gradient_of[name])
            elif not kernel.adds:
                memory.allocate(size_of_gradient[name])
        with_gradient |= {*kernel.grads}
        memory.free(kernel.temp_bytes)
        # what was computed again goes before the gradients of vectors are summed up
        if not is_again:
            memory.allocate(vector_bytes)
        memory.free(kernel.scalar_bytes)
        for name in kernel.saves:
            memory.release(name)
        if is_again:
            memory.allocate(vector_bytes + learned_bytes)
        if kernel.output in with_gradient:
            memory.release(passed)
        if kernel.adds:
            continue
        for name in summed:
            # into a third tensor, then both go; or in place
            in_place = t.in_place or (name == X and is_tile)
            if not in_place or name in views:
                views.discard(name)
                memory.allocate(size_of_gradient[name])
                memory.free(size_of_gradient[name])
            memory.free(size_of_gradient[name])
        memory.sum_into(vector_bytes, earlier)
        memory.sum_into(weight_bytes + learned_bytes, earlier)


def peak_and_saved_bytes(
    spec: FFNSpec,
    *,
    tokens: int,
    item: int,
    train: bool,
    device: str,
    loads: Sequence[int] = (),
) -> tuple[int | None, int | None]:
    """Two numbers of bytes, without parameters and input. The peak is the most that one
    call holds at once: forward, and in training backward with fresh gradients. Saved is
    what autograd keeps between the two, each storage once; None without training.

    Both are None for an activation whose kernels are not known, and for experts on a
    GPU, whose kernels take scratch memory of their own. `loads` are the tokens that
    each expert computes.
    """
    moe = spec.moe
    if None in [act.row.steps for act in spec.activations.values()]:
        return None, None
    if moe is not None and device != "cpu":
        return None, None
    heap = _Heap()
    tiles = []
    for tokens_of_tile in spec.tokens_of_tiles(tokens):
        if moe is None:
            t = tape(spec, tokens=tokens_of_tile, item=item, device=device)
        else:
            from ffnbench.ffn.expert_tape import mixture_tape

            t = mixture_tape(spec, loads, tokens=tokens, item=item, train=train)
        tiles.append((t, _Memory(heap)))
    for t, memory in tiles:
        _play_forward(t, memory, train=train, saves=train and not spec.checkpoint)
    model_bytes = tokens * spec.d_model * item
    if spec.tile > 1:  # the results of the tiles are joined, and go
        heap.allocate(model_bytes)
        heap.free(model_bytes)
    if not train:
        return heap.peak, None
    for earlier, (t, memory) in enumerate(reversed(tiles)):
        if spec.checkpoint:
            _play_forward(t.again(), memory, train=True, saves=True)
            heap.free(sum(kernel.scalar_bytes for kernel in t.kernels))
        _play_backward(
            t,
            memory,
            earlier=earlier,
            is_tile=spec.tile > 1,
            is_again=spec.checkpoint,
        )
    if spec.tile > 1:  # so are their gradients of x
        heap.allocate(model_bytes)
    if spec.checkpoint:
        return heap.peak, 0
    saved = 0
    for t, _ in tiles:
        names = {name for kernel in t.kernels for name in kernel.saves if name != X}
        saved += sum(t.sizes[name] for name in names)
    return heap.peak, saved

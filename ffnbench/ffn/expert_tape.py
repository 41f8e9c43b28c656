"""The bytes of experts on a CPU: the kernels that a mixture of ffn/experts.py runs, in
its order, as ffn/cost.py has them for a dense form. What a text such as `y* = x'* w`
says of a kernel stands at Tape.step there. Pure.

The experts of each token are imposed, as in a measurement, so that they take no bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ffnbench.ffn.cost import Kernel, Tape, X, tape
from ffnbench.ffn.spec import Dispatch, FFNSpec, MoESpec, shared_expert

NUMBER = 8  # bytes of the number of a token, a choice or an expert


def mixture_tape(
    spec: FFNSpec, loads: Sequence[int], *, tokens: int, item: int, train: bool
) -> Tape:
    """The kernels of a forward call of a mixture whose experts compute `loads` tokens.
    Gradients are summed in place, but for those of the experts' weights.
    """
    moe = spec.moe
    assert moe is not None
    model_bytes, routed_bytes = (
        tokens * width * item for width in (spec.d_model, spec.expert_width)
    )
    projection = spec.d_model * spec.expert_width * item
    t = Tape(gradients={X: model_bytes}, in_place=True)
    weights = _route(t, spec, moe, tokens, item, train)
    if moe.dispatch is Dispatch.EAGER:
        t.views = {weights}
    routed = X
    if moe.latent:
        routed = t.linear(X, "routed", size=routed_bytes, weight=projection)
    run = _eager
    if moe.dispatch is not Dispatch.EAGER:
        run = _sorted if moe.partial else _grouped
    # an in-place sum has a gradient by another name
    y, summed = run(t, spec, moe, loads, weights, routed, routed_bytes, item)
    if moe.latent:
        text = f"y = {y}* {summed}'"
        y = summed = t.step(text, model_bytes, weight_grad_bytes=projection)
    held = [weights, routed]
    if moe.capacity is not None:
        held.append("kept")
    shared = shared_expert(spec)
    if shared is not None:
        part = tape(shared, tokens=tokens, item=item, device="cpu")
        of_shared = _add_network(t, part, "shared", X)
        if moe.shared_gate:
            t.linear(X, "logit", size=tokens * item, weight=spec.d_model * item)
            t.step("gate* = logit'", tokens * item)
            of_shared = _weigh(t, of_shared, "gate", model_bytes)
        held.append(of_shared)
        text = f"sum = {y} {summed}' {of_shared}'"
        summed = t.step(text, model_bytes, adds=True)
    # the result stays, and has the gradient that the call is given
    _pass_gradient(t, "returned", summed, *held)
    return t


def _pass_gradient(t: Tape, output: str, to: str, *inputs: str) -> None:
    """Append a kernel without a tensor whose gradient is that of a tensor, which it
    does not read.
    """
    t.add(0, Kernel(inputs=inputs, output=output, grads=(to,), adds=True))


def _weigh(t: Tape, y: str, weights: str, size: int) -> str:
    """Append the product of rows with one weight each: its backward makes the gradient
    of the weights of a product as large as the rows.
    """
    return t.step(f"{y}/weighed = {y}'* {weights}'*", size, temp_bytes=size)


def _add_network(
    t: Tape,
    part: Tape,
    prefix: str,
    source: str,
    experts: int = 0,
    biased_rows: int = 0,
    *,
    batched: bool = False,
) -> str:
    """Append the kernels of a dense form that is called with `source`, which its caller
    holds until it returns; returns the name of its output. Products are those of so
    many `experts` at once, with biases on so many rows, or of one network.
    """

    def named(*names: str) -> tuple[str, ...]:
        # trained scalars are those of all experts
        prefixes = {name: prefix.partition("/")[0] for name in part.gradients}
        return tuple(
            source if name == X else f"{prefixes.get(name, prefix)}/{name}"
            for name in names
        )

    for kernel in part.kernels:
        size, of_weight = part.sizes[kernel.output], kernel.weight_grad_bytes
        (output,) = named(kernel.output)
        copied = replace(
            kernel,
            inputs=named(*kernel.inputs),
            output=output,
            saves=named(*kernel.saves),
            grads=named(*kernel.grads),
        )
        if experts and of_weight:
            bias = size // biased_rows if biased_rows else 0
            all_weights = experts * of_weight
            product, x = output, copied.inputs[0]
            ends, of_row = " ends*", "sorted*"
            if batched:  # the gradient of a transposed weight is copied
                t.step(f"{output}/copied", temp_bytes=all_weights)
                ends = of_row = ""
            if bias:
                product = f"{output}/product"
            text = f"{product} = {x}'*{ends}"
            t.step(text, size, weight_grad_bytes=all_weights)
            if bias:  # in a grouped product that of each row's expert is gathered
                t.step(
                    f"{output} = {product}' {of_row} {x}",
                    size,
                    adds=True,
                    weight_grad_bytes=experts * bias,
                    scratch_bytes=0 if batched else size,
                )
        else:
            t.add(size, copied)
    t.step(f"{prefix}/returned = {source}")
    for name, size in part.gradients.items():
        t.gradients[named(name)[0]] = size
    return output


def _route(
    t: Tape, spec: FFNSpec, moe: MoESpec, tokens: int, item: int, train: bool
) -> str:
    """Append the router's kernels; returns the name of the experts' weights. Scores
    have 32 bits at least.
    """
    wide = max(item, 4)
    logits, choices = tokens * moe.outputs, tokens * moe.top_k
    router = (spec.d_model + moe.router_bias) * moe.outputs
    x = t.linear(X, "logits", size=logits * item, weight=router * item)
    if wide > item:
        x = t.step("wide = logits'", logits * wide)
    t.step(f"scores* = {x}' logits", logits * wide)
    t.step("chosen", scratch_bytes=_choice_bytes(moe, tokens, wide, train))
    weights = t.step("gathered = scores'", choices * wide)
    if moe.normalised:
        t.step("total = gathered'", tokens * wide, adds=True)
        quotients = (3 * choices - tokens) * wide
        text = "shares = gathered'* total'*"
        weights = t.step(text, choices * wide, temp_bytes=quotients)
    if moe.routed_scale != 1:
        weights = t.step(
            f"scaled = {weights}'",
            choices * wide,
            scalar_bytes=8,
            scratch_bytes=wide % 8,
            temp_bytes=wide % 8,
        )
    if moe.capacity is not None:
        # sorted, with their order, and places in an expert from two numbers
        t.step("ranked", scratch_bytes=5 * choices * NUMBER)
        t.step("kept", choices * NUMBER)
    if wide > item:
        weights = t.step(f"weights = {weights}'", choices * item)
    t.step("routing = scores")
    return weights


def _choice_bytes(moe: MoESpec, tokens: int, wide: int, train: bool) -> int:
    """The most bytes that the choice of experts takes at once: of values and numbers of
    the highest scores, and before of those of groups, and masks. In training a graph
    holds some of them longer.
    """
    found = wide + NUMBER
    best = moe.top_k * found
    if moe.groups == 1:
        return tokens * best
    sums, chosen = moe.groups * wide, moe.top_groups * NUMBER
    held = 2 * moe.groups * NUMBER * train
    stages = (
        2 * moe.groups * found,
        3 * sums + held,
        held + sums + moe.top_groups * found,
        held + sums + chosen + moe.groups + max(moe.groups, moe.outputs),
        2 * moe.outputs,
        moe.outputs * (1 + wide),
        moe.outputs * (wide + train) + best,
    )
    return tokens * max(stages)


def _unweighed(
    t: Tape, moe: MoESpec, weights: str, routed: str, size: int, row: int, item: int
) -> str:
    """Append what the experts without weights give; returns its name."""
    if not moe.zero:
        return t.step("zeros", size)
    tokens = size // row
    choices = tokens * moe.top_k
    t.step("computed", choices, scratch_bytes=NUMBER)
    t.step(f"uncomputed = {weights}' computed*", choices * item)
    t.step("share = uncomputed'", tokens * item, adds=True)
    return t.step(f"zeros = {routed}'* share'*", size, temp_bytes=size)


def _eager(
    t: Tape,
    spec: FFNSpec,
    moe: MoESpec,
    loads: Sequence[int],
    weights: str,
    routed: str,
    size: int,
    item: int,
) -> tuple[str, str]:
    """Append one expert after another, which add to one tensor of `size` bytes; returns
    its name, and the name under which it has its gradient.
    """
    expert = replace(spec, moe=None, d_model=spec.expert_width)
    row = spec.expert_width * item
    choices = size // row * moe.top_k
    hit = [number for number, load in enumerate(loads) if load]
    missed = len(loads) - len(hit)
    y, where = _unweighed(t, moe, weights, routed, size, row, item), ""
    t.sizes["first"], t.gradients["first"] = 0, size
    if moe.zero:
        _pass_gradient(t, "first", y)
    for name, (rows, columns) in expert.matrices.items() if hit else ():
        for elements in (rows * columns, rows)[: 1 + spec.bias]:
            # the gradients of all experts are stacked; one that has none gives a zero
            t.sizes["weight"] = 0
            t.step(
                f"unbound/{name}/{elements} = weight'",
                weight_grad_bytes=missed * elements * item,
                temp_bytes=(len(hit) * elements + missed) * item,
            )
    t.step("hit", scratch_bytes=3 * choices * NUMBER)
    for number in hit:
        load, e = loads[number], f"expert/{number}"
        text = f"{e}/where = {where}"
        where = t.step(text, 2 * NUMBER * load, scratch_bytes=choices)
        x = t.step(f"{e}/given = {where}* {routed}'", load * row)
        part = tape(expert, tokens=load, item=item, device="cpu")
        y_of_expert = _add_network(t, part, e, x)
        share = t.step(f"{e}/share = {where}* {weights}'", load * item)
        weighed = _weigh(t, y_of_expert, share, load * row)
        output = f"{e}/added"
        if number == hit[0] and not moe.zero:
            output = "first"  # with it goes the gradient of the sum
        t.step(f"{output} = {weighed}'* {where}*")
    t.step(f"last = {where}")
    return y, "first"


def _grouped(
    t: Tape,
    spec: FFNSpec,
    moe: MoESpec,
    loads: Sequence[int],
    weights: str,
    routed: str,
    size: int,
    item: int,
) -> tuple[str, str]:
    """Append all experts at once; returns the name of their sum, twice."""
    expert = replace(spec, moe=None, d_model=spec.expert_width)
    choices = sum(loads)
    numbers, rows = choices * NUMBER, choices * spec.expert_width * item
    t.step("sorted", numbers, scratch_bytes=2 * numbers)
    t.step("order", numbers)
    t.step("every", len(loads) * NUMBER)
    t.step("ends", len(loads) * 4)
    t.step("token", numbers, scratch_bytes=NUMBER)
    x = t.step(f"given = token* {routed}'", rows)
    part = tape(expert, tokens=choices, item=item, device="cpu")
    y = _add_network(t, part, "expert", x, len(loads), choices * spec.bias)
    t.step(f"of_row = order* {weights}'", choices * item)
    y = _weigh(t, y, "of_row", rows)
    t.step("run = ends")
    t.step("inverse", numbers, scratch_bytes=2 * numbers)
    t.step(f"placed = inverse* {y}'", rows)
    # the gradient of a sum over one choice is that of the sum itself
    total = t.step("summed = placed'", size, adds=size == rows)
    t.step(f"done = sorted every order {y}")
    return total, total


def _sorted(
    t: Tape,
    spec: FFNSpec,
    moe: MoESpec,
    loads: Sequence[int],
    weights: str,
    routed: str,
    size: int,
    item: int,
) -> tuple[str, str]:
    """Append all experts at once, grouped or batched, where dropped tokens and experts
    without weights are not computed; arguments and result are those of `_eager`.
    """
    expert = replace(spec, moe=None, d_model=spec.expert_width)
    row, computed = spec.expert_width * item, sum(loads)
    tokens, experts, numbers = size // row, len(loads), computed * NUMBER
    choices = tokens * moe.top_k
    t.step("all", choices * NUMBER, scratch_bytes=2 * choices * NUMBER)
    t.step("all_order", choices * NUMBER)
    t.step("mask", choices, scratch_bytes=choices + max(choices, NUMBER))
    t.step("sorted = all", numbers, scratch_bytes=numbers)
    t.step("order = all_order", numbers, scratch_bytes=numbers)
    t.step("selected = all")
    t.step("every", experts * NUMBER)
    t.step("ends", experts * 4)
    t.step("token", numbers, scratch_bytes=NUMBER)
    x = t.step(f"given = token* {routed}'", computed * row)
    if moe.dispatch is Dispatch.BATCHED:
        rows = experts * moe.most_rows(tokens)
        t.step("ranked", scratch_bytes=4 * numbers)
        t.step("place", numbers)
        padded = rows * row
        t.step("padded = given'* place*", padded, scratch_bytes=padded)
        part = tape(expert, tokens=rows, item=item, device="cpu")
        y = _add_network(
            t, part, "expert", "padded", experts, rows * spec.bias, batched=True
        )
        y = t.step(f"taken = place* {y}' padded", computed * row)
    else:
        part = tape(expert, tokens=computed, item=item, device="cpu")
        y = _add_network(t, part, "expert", x, experts, computed * spec.bias)
    t.step(f"of_row = order* {weights}'", computed * item)
    y = _weigh(t, y, "of_row", computed * row)
    t.step("run = ends")
    total = _unweighed(t, moe, weights, routed, size, row, item)
    output = "first"
    t.sizes[output], t.gradients[output] = 0, size
    if moe.zero:
        _pass_gradient(t, output, total)
        output = "added"
    t.step(f"{output} = {y}'* token*")
    t.step("done = sorted order mask every given")
    return total, "first"

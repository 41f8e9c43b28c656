"""The bytes of experts on a CPU: the kernels that a mixture of ffn/experts.py runs, in
its order, as ffn/cost.py has them for a dense form. Pure.

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
    """The kernels of one forward call of a mixture whose experts get `loads` tokens.
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
    t.views = {weights}
    routed = X
    if moe.latent:
        routed = t.linear(X, "routed", size=routed_bytes, weight=projection)
    run = _grouped if moe.dispatch is Dispatch.GROUPED else _eager
    # an in-place sum has a gradient by another name
    y, summed = run(t, spec, loads, weights, routed, routed_bytes, item)
    if moe.latent:
        text = f"y = {y}* {summed}'"
        y = summed = t.step(text, model_bytes, weight_grad_bytes=projection)
    held = [weights, routed]
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
    returned = Kernel(inputs=(*held,), output="returned", grads=(summed,), adds=True)
    t.add(0, returned)
    return t


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
            product = f"{output}/product" if bias else output
            x = copied.inputs[0]
            text = f"{product} = {x}'* ends*"
            t.step(text, size, weight_grad_bytes=experts * (of_weight - bias))
            if bias:  # that of each row's expert is gathered, and added
                t.step(
                    f"{output} = {product}' sorted* {x}",
                    size,
                    adds=True,
                    weight_grad_bytes=experts * bias,
                    scratch_bytes=size,
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
    logits, choices = tokens * moe.experts, tokens * moe.top_k
    router = (spec.d_model + moe.router_bias) * moe.experts
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
        held + sums + chosen + moe.groups + max(moe.groups, moe.experts),
        2 * moe.experts,
        moe.experts * (1 + wide),
        moe.experts * (wide + train) + best,
    )
    return tokens * max(stages)


def _eager(
    t: Tape,
    spec: FFNSpec,
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
    row, choices = spec.expert_width * item, sum(loads)
    hit = [number for number, load in enumerate(loads) if load]
    missed = len(loads) - len(hit)
    y, where = t.step("zeros", size), ""
    t.sizes["first"], t.gradients["first"] = 0, size
    for name, (rows, columns) in expert.matrices.items():
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
        output = "first" if number == hit[0] else f"{e}/added"
        t.step(f"{output} = {weighed}'* {where}*")
    t.step(f"last = {where}")
    return y, "first"


def _grouped(
    t: Tape,
    spec: FFNSpec,
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
    t.step(f"share = order* {weights}'", choices * item)
    y = _weigh(t, y, "share", rows)
    t.step("run = ends")
    t.step("inverse", numbers, scratch_bytes=2 * numbers)
    t.step(f"placed = inverse* {y}'", rows)
    # the gradient of a sum over one choice is that of the sum itself
    total = t.step("summed = placed'", size, adds=size == rows)
    t.step(f"done = sorted every order {y}")
    return total, total

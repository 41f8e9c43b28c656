"""@like: a module of the user's own is held against the form that it is said to be. The modules compute by formulas
that are written out here, with their weights called and laid out as published code has them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from conftest import FakeLaunch, FakeWorker, KnownProber
from torch import Tensor, nn

from ffnbench import api, jsonable
from ffnbench.activations.user_activation import OwnActivation
from ffnbench.errors import FfnbenchError, Unsupported
from ffnbench.ffn.imported import build_imported
from ffnbench.ffn.like import as_form, layout_of
from ffnbench.ffn.modules import reference_output
from ffnbench.ffn.moe import MoESpec
from ffnbench.ffn.spec import FFNSpec, Gate, HFSpec, ImportedSpec, NetworkSpec
from ffnbench.ffn.weight_names import is_bias, said, stem
from ffnbench.metrics import ERROR
from ffnbench.plan import Arm, Plan
from ffnbench.planning.backends import lacks
from ffnbench.planning.compare import plan_compare
from ffnbench.planning.grammar import parse_variant
from ffnbench.planning.sides import plan_sides
from ffnbench.report.tables.compare import compare_table
from ffnbench.request import CompareRequest, SidesRequest
from ffnbench.worker.jobs import Jobs, Mismatch
from ffnbench.worker.loop import _answer

D, H = 12, 20  # d_model and d_ff: neither is the other's double
Weights = dict[str, Tensor]


class Written(nn.Module):
    """Parameters by name, where a dot makes a module of the part before it, and a formula over them."""

    def __init__(self, weights: Weights, formula: Callable[[Weights, Tensor], Tensor], kinds: str = "Module") -> None:
        super().__init__()
        self.formula = formula
        for name, value in weights.items():
            owner: nn.Module = self
            for part in name.split(".")[:-1]:
                if not hasattr(owner, part):
                    owner.add_module(part, type(kinds, (nn.Module,), {})())
                owner = getattr(owner, part)
            owner.register_parameter(name.split(".")[-1], nn.Parameter(value))

    def forward(self, x: Tensor) -> Tensor:
        return self.formula(dict(self.named_parameters()), x)


def drawn(*shapes: tuple[int, ...], seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) / shape[-1] ** 0.5 for shape in shapes]


def x_of(d: int = D, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(1, 16, d, generator=torch.Generator().manual_seed(7)).to(dtype)


def spec(activation: str = "silu", gate: Gate = Gate.INNER, d: int = D, **more: object) -> FFNSpec:
    return FFNSpec(d_model=d, d_ff=999, activation=activation, gate=gate, **more)  # type: ignore[arg-type]


def holds(module: nn.Module, form: FFNSpec, x: Tensor | None = None) -> float:
    """The relative error of the module's output against our reference on its weights."""
    x = x_of(form.d_model) if x is None else x
    with torch.no_grad():
        y = module(x).double()
    expected = reference_output(as_form(module, form, x), x)
    return float((y - expected).norm() / expected.norm())


GATE, UP, DOWN = drawn((H, D), (H, D), (D, H))
B_GATE, B_UP, B_DOWN = drawn((H,), (H,), (D,), seed=1)


def swiglu(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """By plain products; all weights as (out, in)."""
    return (F.silu(x @ gate.T) * (x @ up.T)) @ down.T


NAMED = {  # gate, up and down in published code
    "ours": ("gate.weight", "up.weight", "down.weight"),
    "llama": ("gate_proj.weight", "up_proj.weight", "down_proj.weight"),
    "meta": ("w1.weight", "w3.weight", "w2.weight"),
    "xformers": ("w1.weight", "w2.weight", "w3.weight"),
    "qwen 1": ("w2.weight", "w1.weight", "c_proj.weight"),
    "t5": ("wi_0.weight", "wi_1.weight", "wo.weight"),
    "timm": ("fc1_g.weight", "fc1_x.weight", "fc2.weight"),
    "dbrx": ("w1", "v1", "w2"),
    "nested": ("ff.net.gate.linear.weight", "ff.net.value.linear.weight", "ff.out.0.weight"),
    "raw": ("w_gate", "w_up", "w_down"),
    "letters": ("a", "b", "c"),
    "numbers": ("net.0.weight", "net.1.weight", "net.3.weight"),
    "gate last": ("proj_b.weight", "proj_a.weight", "proj_c.weight"),
    "gated": ("gated_mlp.v.weight", "gated_mlp.w.weight", "gated_mlp.o.weight"),
}


@pytest.mark.parametrize("turned", [False, True], ids=["rows are outputs", "turned"])
@pytest.mark.parametrize("width", [H, D], ids=["wide", "square"])
@pytest.mark.parametrize("names", NAMED.values(), ids=NAMED)
def test_three_matrices_are_found_by_name_and_shape(names: tuple[str, str, str], width: int, turned: bool) -> None:
    weights = drawn((width, D), (width, D), (D, width), seed=2)
    laid = [w.T.contiguous() if turned else w for w in weights]

    def formula(of: Weights, x: Tensor) -> Tensor:
        g, u, d = (of[name].T if turned else of[name] for name in names)
        return swiglu(x, g, u, d)

    module = Written(dict(sorted(zip(names, laid, strict=True))), formula)
    assert holds(module, spec()) < 1e-6
    ours = as_form(module, spec(), x_of())
    assert (ours.spec.d_ff, ours.spec.bias, ours.spec.d_model) == (width, False, D)
    storages = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    assert {parameter.untyped_storage().data_ptr() for parameter in ours.parameters()} == storages  # nothing is copied
    assert torch.equal(ours.gate.weight, weights[0])
    assert torch.equal(ours.up.weight, weights[1])


PACKINGS = {  # of gate and up in one matrix
    "gate first": lambda g, u: torch.cat([g, u]),
    "up first": lambda g, u: torch.cat([u, g]),
    "in turns": lambda g, u: torch.stack([g, u], 1).flatten(0, 1),
    "in turns, up first": lambda g, u: torch.stack([u, g], 1).flatten(0, 1),
}


def unpack(y: Tensor, how: str) -> tuple[Tensor, Tensor]:
    first, second = (y[..., 0::2], y[..., 1::2]) if "turns" in how else y.chunk(2, -1)
    return (second, first) if "up first" in how else (first, second)


@pytest.mark.parametrize("bias", [False, True], ids=["", "biased"])
@pytest.mark.parametrize("name", ["w12.weight", "fc1.weight", "Wi.weight", "net.0.proj.weight", "up_proj.weight"])
@pytest.mark.parametrize("how", PACKINGS)
def test_packed_gate_and_up(how: str, name: str, bias: bool) -> None:
    def formula(of: Weights, x: Tensor) -> Tensor:
        y = x @ of[name].T
        y = y + of[name.replace("weight", "bias")] if bias else y
        g, u = unpack(y, how)
        y = (F.silu(g) * u) @ of["out.weight"].T
        return y + of["out.bias"] if bias else y

    weights = {name: PACKINGS[how](GATE, UP), "out.weight": DOWN}
    if bias:
        weights |= {name.replace("weight", "bias"): PACKINGS[how](B_GATE, B_UP), "out.bias": B_DOWN}
    module = Written(weights, formula)
    assert holds(module, spec()) < 1e-6
    ours = as_form(module, spec(), x_of())
    assert torch.equal(ours.gate.weight, GATE)
    assert not bias or torch.equal(ours.up.bias, B_UP)


@pytest.mark.parametrize("how", PACKINGS)
@pytest.mark.parametrize("name", ["gate_up_proj.weight", "up_gate_proj.weight"])
def test_a_name_that_says_the_order_is_held_to_it(name: str, how: str) -> None:
    def formula(of: Weights, x: Tensor) -> Tensor:
        g, u = unpack(x @ of[name].T, how)
        return (F.silu(g) * u) @ of["down_proj.weight"].T

    module = Written({name: PACKINGS[how](GATE, UP), "down_proj.weight": DOWN}, formula)
    if ("up first" in how) == name.startswith("up"):
        assert holds(module, spec()) < 1e-6
    else:
        with pytest.raises(FfnbenchError, match="not what their names say"):
            as_form(module, spec(), x_of())


STACKS = {
    "two, out first": (torch.stack([GATE, UP]), lambda w, x: (x @ w[0].T, x @ w[1].T)),
    "two, in first": (torch.stack([UP.T, GATE.T]), lambda w, x: (x @ w[1], x @ w[0])),
    "pairs": (torch.stack([GATE.T, UP.T], -1), lambda w, x: (x @ w[..., 0], x @ w[..., 1])),
}


@pytest.mark.parametrize("how", STACKS)
def test_gate_and_up_stacked_in_three_dimensions(how: str) -> None:
    stack, both = STACKS[how]

    def formula(of: Weights, x: Tensor) -> Tensor:
        g, u = both(of["w"], x)
        return (F.silu(g) * u) @ of["wo"]

    assert holds(Written({"w": stack, "wo": DOWN.T}, formula), spec()) < 1e-6


def test_all_three_in_one_and_their_biases_in_another() -> None:
    biases = torch.stack([B_GATE, B_UP])

    def formula(of: Weights, x: Tensor) -> Tensor:
        g, u = (x @ of["weight"][i].T + of["bias"][i] for i in range(2))
        return (F.silu(g) * u) @ of["weight"][2] + of["bias_out"]

    weights = {"weight": torch.stack([GATE, UP, DOWN.T]), "bias": biases, "bias_out": B_DOWN}
    assert holds(Written(weights, formula), spec()) < 1e-6


class Conv1D(nn.Module):
    """As transformers' own: the weight is (in, out)."""

    def __init__(self, out: int, fan_in: int) -> None:
        super().__init__()
        self.weight, self.bias = (nn.Parameter(w) for w in drawn((fan_in, out), (out,), seed=3))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


class GPT2(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.c_fc, self.c_proj = Conv1D(width, D), Conv1D(D, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Convolved(nn.Module):
    """A 1x1 convolution over the tokens, as the first Transformers' code had it."""

    def __init__(self) -> None:
        super().__init__()
        self.w_1, self.w_2 = nn.Conv1d(D, H, 1), nn.Conv1d(H, D, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.w_2(self.w_1(x.mT).relu()).mT


class Lazy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.LazyLinear(H), nn.LazyLinear(D)

    def forward(self, x: Tensor) -> Tensor:
        return self.two(self.one(x).relu())


def sequence() -> nn.Module:
    return nn.Sequential(nn.Linear(D, H), nn.ReLU(), nn.Dropout(0.5), nn.Linear(H, D, bias=False), nn.Dropout(0.1))


def encoder_layer() -> nn.Module:
    module = nn.Module()
    module.linear1, module.linear2 = nn.Linear(D, D), nn.Linear(D, D)
    module.forward = lambda x: module.linear2(F.relu(module.linear1(x)))  # type: ignore[method-assign]
    return module


CLASSIC: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "gpt2": (lambda: GPT2(H), "gelu_tanh"), "gpt2, square": (lambda: GPT2(D), "gelu_tanh"),
    "convolved": (Convolved, "relu"), "lazy": (Lazy, "relu"), "sequence": (sequence, "relu"),
    "square": (encoder_layer, "relu"),
}  # fmt: skip


@pytest.mark.parametrize("case", CLASSIC)
def test_the_classic_form(case: str) -> None:
    """Also where dropout stands inside, which is off while outputs are compared, and where one layer has no bias."""
    make, activation = CLASSIC[case]
    module = make()
    training = module.training
    ours = as_form(module, spec(activation, Gate.NONE), x_of())
    assert module.training is training
    assert holds(module.eval(), spec(activation, Gate.NONE)) < 1e-6
    assert ours.spec.bias


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_the_dtype_is_kept(dtype: torch.dtype) -> None:
    module = Written(
        dict(zip(("w1", "w2", "w3"), (GATE, UP, DOWN), strict=True)), lambda of, x: swiglu(x, *of.values())
    )
    module = module.to(dtype)
    ours = as_form(module, spec(), x_of(dtype=dtype))
    assert {parameter.dtype for parameter in ours.parameters()} == {dtype}
    assert not any(parameter.requires_grad for parameter in ours.parameters())
    assert torch.equal(ours.gate.weight, module.w1)


BIASES = {
    "modules": ("gate.bias", "up.bias", "down.bias"), "raw": ("b_gate", "b_up", "b_down"),
    "after the name": ("gate_bias", "up_bias", "down_bias"), "unlike": ("bx", "by", "c"),
}  # fmt: skip


@pytest.mark.parametrize("names", BIASES.values(), ids=BIASES)
def test_biases_go_with_their_weights(names: tuple[str, str, str]) -> None:
    weights = ("gate.weight", "up.weight", "down.weight") if "." in names[0] else ("w_gate", "w_up", "w_down")

    def formula(of: Weights, x: Tensor) -> Tensor:
        g, u = (x @ of[weights[i]].T + of[names[i]] for i in range(2))
        return (F.silu(g) * u) @ of[weights[2]].T + of[names[2]]

    values = {
        **dict(zip(weights, (GATE, UP, DOWN), strict=True)),
        **dict(zip(names, (B_GATE, B_UP, B_DOWN), strict=True)),
    }
    module = Written(dict(reversed(values.items())), formula)
    assert holds(module, spec()) < 1e-6
    assert torch.equal(as_form(module, spec(), x_of()).up.bias, B_UP)


def test_limits_and_a_gate_at_the_output() -> None:
    def clamped(of: Weights, x: Tensor) -> Tensor:
        g, u = (8 * x @ of["gate_up_proj"]).unflatten(-1, (-1, 2)).unbind(-1)
        g, u = g.clamp(max=7), u.clamp(-7, 7)
        return ((u + 1) * g * torch.sigmoid(1.702 * g)) @ of["down_proj"]

    weights = {"gate_up_proj": 8 * PACKINGS["in turns"](GATE, UP).T, "down_proj": DOWN.T}
    oai = spec("quick_gelu", limit=7.0, up_offset=1.0)
    assert holds(Written(weights, lambda of, x: clamped(of, x / 8)), oai) < 1e-6
    (square,) = drawn((D, D), seed=4)
    weights = {"key.weight": UP, "value.weight": DOWN, "receptance.weight": square}

    def mixed(of: Weights, x: Tensor) -> Tensor:
        y = F.relu(x @ of["key.weight"].T).square() @ of["value.weight"].T
        return y * (x @ of["receptance.weight"].T)

    assert holds(Written(weights, mixed), spec("relu2", Gate.OUTPUT)) < 1e-6


@pytest.mark.parametrize("names", [("alpha_p", "alpha_n"), ("a", "b"), ("b", "a")])
def test_trained_scalars_of_an_activation(names: tuple[str, str]) -> None:
    """xielu has two: by the names of its paper, or by what comes out."""

    def formula(of: Weights, x: Tensor) -> Tensor:
        h = x @ of["up"].T
        a, b = F.softplus(of[names[0]]), 0.5 + F.softplus(of[names[1]])
        return torch.where(h > 0, a * h * h + 0.5 * h, b * (h.exp() - 1 - h) + 0.5 * h) @ of["down"].T

    weights = {"up": UP, "down": DOWN, names[1]: torch.tensor([0.2]), names[0]: torch.tensor([1.3])}
    assert holds(Written(weights, formula), spec("xielu", Gate.NONE)) < 1e-5
    slope = nn.Sequential(nn.Linear(D, H), nn.PReLU(init=-0.5), nn.Linear(H, D))
    assert holds(slope, spec("prelu", Gate.NONE)) < 1e-6


WRONG = {
    "another activation": lambda g, u, d, x: (F.gelu(x @ g.T) * (x @ u.T)) @ d.T,
    "a factor is missing": lambda g, u, d, x: F.silu(x @ g.T) @ d.T,
    "half of it": lambda g, u, d, x: 0.5 * swiglu(x, g, u, d),
    "a residual": lambda g, u, d, x: x + swiglu(x, g, u, d),
    "zeros": lambda g, u, d, x: torch.zeros_like(x),
    "nothing known": lambda g, u, d, x: x * torch.nan,
    "the activation on both": lambda g, u, d, x: (F.silu(x @ g.T) * F.silu(x @ u.T)) @ d.T,
}


@pytest.mark.parametrize("names", [NAMED["ours"], NAMED["xformers"]], ids=["ours", "xformers"])
@pytest.mark.parametrize("what", WRONG)
def test_another_function_is_far_off(what: str, names: tuple[str, str, str]) -> None:
    """Whichever way its weights are read."""
    weights = dict(zip(names, (GATE, UP, DOWN), strict=True))
    module = Written(weights, lambda of, x: WRONG[what](*of.values(), x))
    assert not holds(module, spec()) < 0.05


def test_gate_and_up_are_what_words_in_their_names_say() -> None:
    """By w1 and w2 nobody can tell; gate_proj that is not under the activation is another function."""

    def crossed(names: tuple[str, str, str]) -> nn.Module:
        """What is called gate is multiplied, and what is called up is activated."""
        weights = dict(zip(names, (UP, GATE, DOWN), strict=True))
        return Written(weights, lambda of, x: swiglu(x, of[names[1]], of[names[0]], of[names[2]]))

    for names in (NAMED["llama"], NAMED["t5"], NAMED["timm"], NAMED["raw"]):
        with pytest.raises(FfnbenchError, match=f"by its output gate is {names[1]}, up is {names[0]}"):
            as_form(crossed(names), spec(), x_of())
    assert holds(crossed(("w1", "w2", "w3")), spec()) < 1e-6


def test_gradients_have_the_places_of_their_weights() -> None:
    """The layout that finds the weights finds their gradients: those of our form by autograd, on packed weights."""

    def formula(of: Weights, x: Tensor) -> Tensor:
        u, g = (x @ of["w12.weight"].T).chunk(2, -1)
        return (F.silu(g) * u) @ of["w3.weight"].T

    module = Written({"w12.weight": PACKINGS["up first"](GATE, UP), "w3.weight": DOWN}, formula)
    x = x_of()
    module(x).square().sum().backward()
    layout = layout_of(module, spec(), x)
    theirs = layout.of({name: parameter.grad for name, parameter in module.named_parameters()})
    g, u, d = (w.clone().requires_grad_() for w in (GATE, UP, DOWN))
    swiglu(x, g, u, d).square().sum().backward()
    for name, expected in (("gate.weight", g.grad), ("up.weight", u.grad), ("down.weight", d.grad)):
        assert torch.allclose(theirs[name], expected, atol=1e-5), name


LINEAR = nn.Linear


def parts(**layers: nn.Module) -> nn.Module:
    """A module that holds these and gives what it gets."""
    module = nn.Module()
    for name, layer in layers.items():
        module.add_module(name, layer)
    module.forward = lambda x: x  # type: ignore[method-assign]
    return module


class Heavy(nn.Module):
    def __init__(self, value: Tensor) -> None:
        super().__init__()
        self.w = nn.Parameter(value, requires_grad=False)


MISFITS = {
    "classic as gated": (
        lambda: parts(fc1=LINEAR(D, H), fc2=LINEAR(H, D)), spec(),
        "its weights are fc1.weight (20, 12), fc2.weight (12, 20), where swiglu has gate and up (d_ff, 12), "
        "or both in one (2 d_ff, 12), and down (12, d_ff)",
    ),
    "gated as classic": (
        lambda: parts(w1=LINEAR(D, H), w2=LINEAR(D, H), w3=LINEAR(H, D)), spec("relu", Gate.NONE),
        "its weights are w1.weight (20, 12), w2.weight (20, 12), w3.weight (12, 20), where relu has up (d_ff, 12) "
        "and down (12, d_ff)",
    ),
    "widths that are not one": (
        lambda: parts(gate=LINEAR(D, H), up=LINEAR(D, 18), down=LINEAR(H, D)), spec(),
        "its weights are gate.weight (20, 12), up.weight (18, 12), down.weight (12, 20), where swiglu has",
    ),
    "an adapter": (
        lambda: parts(a=LINEAR(D, H), b=LINEAR(D, H), c=LINEAR(H, D), l=LINEAR(D, 4), m=LINEAR(4, D)), spec(),
        "l.weight (4, 12) and 1 more, where swiglu has",
    ),
    "nothing": (lambda: parts(), spec(), "it has no weights"),
    "a norm": (lambda: parts(norm=nn.LayerNorm(D), a=LINEAR(D, H), b=LINEAR(H, D)), spec("relu", Gate.NONE),
               "it has a norm inside, norm"),
    "a scale": (
        lambda: Written({"up.weight": UP, "up.bias": B_UP, "down.weight": DOWN, "down.bias": B_DOWN, "s": B_DOWN},
                        lambda of, x: x), spec("relu", Gate.NONE),
        "its s (12,), up.bias (20,), down.bias (12,) can't be the biases of up (20,), down (12,)",
    ),
    "no slope": (lambda: parts(a=LINEAR(D, H), b=LINEAR(H, D)), spec("prelu", Gate.NONE),
                 "the trained scalars of prelu are slope, those of the module none"),
    "a slope": (lambda: parts(a=LINEAR(D, H), act=nn.PReLU(), b=LINEAR(H, D)), spec("relu", Gate.NONE),
                "the trained scalars of relu are none, those of the module act.weight (1,)"),
    "whole numbers": (lambda: parts(a=Heavy(torch.ones(H, D, dtype=torch.int8)), b=LINEAR(H, D)),
                      spec("relu", Gate.NONE), "its a.w is of int8"),
    "five dimensions": (lambda: Written({"w": torch.ones(4, 5, 6)}, lambda of, x: x), spec(),
                        "its w is (4, 5, 6), which is no matrix of a form's"),
    "no tensor": (lambda: Written({"w": UP}, lambda of, x: (x, x)), spec(), "it does not give a tensor"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISFITS)
def test_what_does_not_fit_is_named_with_its_shape(case: str) -> None:
    make, form, message = MISFITS[case]
    with pytest.raises(FfnbenchError) as caught:
        as_form(make(), form, x_of())
    assert message in caught.value.message
    assert "\n" not in caught.value.message


def test_a_misspelt_key_is_near_it() -> None:
    with pytest.raises(FfnbenchError, match="takes no argument 'lik'") as caught:
        build_imported(ImportedSpec(target="torch.nn:Linear", d_model=D, d_ff=H, arguments=(("lik", "relu"),)))
    assert "did you mean 'like'" in caught.value.hint


def test_words_in_names() -> None:
    assert said("mlp.gate_up_proj.weight") == said("gateup") == ("gate", "up")
    assert said("Wgate") == said("gate.0.weight") == said("w_gate") == ("gate",)
    for silent in ("w1.weight", "gated.w2", "group.a", "upsample.weight", "output.dense.weight", "w12"):
        assert said(silent) == ()
    for weight, bias in (("w1", "b1"), ("fc1_weight", "fc1_bias"), ("fc1.weight", "fc1.bias"), ("W_gate", "b_gate")):
        assert stem(weight) == stem(bias)
        assert (is_bias(weight), is_bias(bias)) == (False, True)


MINE = """
import torch
import torch.nn.functional as F
from torch import nn

class Gated(nn.Module):
    act = staticmethod(F.silu)

    def __init__(self, d_model, d_ff):
        super().__init__()
        self.w12, self.w3 = nn.Linear(d_model, 2 * d_ff), nn.Linear(d_ff, d_model)

    def forward(self, x):
        g, u = self.w12(x).chunk(2, -1)
        return self.w3(self.act(g) * u)

class Wrong(Gated):
    act = staticmethod(F.gelu)

class Normed(Gated):
    def __init__(self, d_model, d_ff):
        super().__init__(d_model, d_ff)
        self.norm = nn.LayerNorm(d_ff)

class Dropping(Gated):
    def __init__(self, d_model, d_ff):
        super().__init__(d_model, d_ff)
        self.drop = nn.Dropout(0.1)

class Classic(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(x)))

class Other(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.gate, self.up = nn.Linear(d_model, d_ff), nn.Linear(d_model, d_ff)
        self.down = nn.Linear(d_ff, d_model)

    def forward(self, x):
        return self.down(F.silu(self.up(x)) * self.gate(x))

def act(x):
    return F.relu(x)
"""


def brief(plan: Plan) -> Plan:
    return replace(plan, protocol=replace(plan.protocol, warmup_s=0.0))


class HereWorker(FakeWorker):
    """Opens cases for real, in this process; the timing alone is scripted."""

    jobs: Jobs

    def ask(self, request: dict, timeout_s: float) -> dict:
        if request["do"] == "plan":
            self.jobs = Jobs(brief(jsonable.decode(Plan, request["plan"])))
        if request["do"] == "open":
            work = self.jobs.plan.case(request["label"]).workload
            torch.set_num_threads(work.threads)
            known = {"calls": 1} if request["do"] == "open" else {}  # so that nothing is timed to find out how many
            return _answer(getattr(self.jobs, request["do"]), torch, request | known)
        return super().ask(request, timeout_s)


class HereLaunch(FakeLaunch):
    def __call__(self, arm: object = None) -> FakeWorker:
        self.workers.append(HereWorker(self, len(self.workers)))
        return self.workers[-1]


class HereProber(KnownProber):
    def describe(self, target: str) -> OwnActivation | None:
        return OwnActivation(target=target) if target.endswith(":act") else None

    def within(self, arm: Arm) -> KnownProber:
        return self


@pytest.fixture
def typed(on_machine, in_process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A command in a folder with mine.py: exit code, stdout on one line, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    Path("mine.py").write_text(MINE)
    on_machine(HereLaunch(), HereProber)

    def run(*arguments: str) -> tuple[int, str, str]:
        code, out, err = in_process(*arguments)
        return code, " ".join(out.split()), err

    return run


SMALL = ("--d-model", "16", "--seq-len", "8", "--threads", "1", "--workers", "3", "--rounds", "2", "-q")


def test_the_error_stands_in_its_column_and_a_wrong_one_is_a_mismatch(typed) -> None:
    variants = (
        "mine.py:Gated@like=swiglu,alias=mine.py:Gated@like=SwiGLU,mine.py:Wrong@like=swiglu,"
        "mine.py:Normed@like=swiglu,mine.py:Classic@like=relu,c=mine.py:Classic@like=swiglu,mine.py:Other@like=swiglu"
    )
    code, out, err = typed("compare", "--variants", variants, *SMALL, "-o", "run.json")
    assert code == 0, err
    report = api.load("run.json")
    errors = {case.label: report.value(case.label, ERROR) for case in report.plan.cases}
    assert {label for label, error in errors.items() if error is not None} == {
        "Gated@like=swiglu", "alias", "Classic@like=relu",
    }  # fmt: skip
    assert all(error < 1e-6 for error in errors.values() if error is not None)
    assert "error" in [column.title for column in compare_table(report).columns]
    failures = {failure.case: (failure.kind.value, failure.message) for failure in report.failures}
    assert {kind for kind, _ in failures.values()} == {"mismatch"}
    told = {label: message for label, (_, message) in failures.items()}
    assert "differs from the float64 reference of ffnbench's own swiglu by" in told["Wrong@like=swiglu"]
    assert told["Normed@like=swiglu"] == "mine.py:Normed is not like swiglu: it has a norm inside, norm"
    assert told["c"].startswith("mine.py:Classic is not like swiglu: its weights are fc1.weight (")
    assert told["Other@like=swiglu"].endswith("by its output gate is up.weight, up is gate.weight, down is down.weight")
    assert all(message in out for message in told.values())
    assert "its output is held against ffnbench's own relu, on its weights" in out
    assert [case.ffn.like.form for case in report.plan.cases] == ["swiglu"] * 4 + ["relu"] + ["swiglu"] * 2
    code, again, _ = typed("report", "run.json")
    assert (code, "its output is held against ffnbench's own relu" in again) == (0, True)


def test_a_baseline_keeps_it(typed) -> None:
    """`check` opens the case again and finds that the code has become another function's."""
    saved = "compare", "--variants", "mine.py:Gated@like=swiglu", *SMALL, "-o", "base.json"
    assert typed(*saved)[0] == 0
    assert json.loads(Path("base.json").read_text())["plan"]["cases"][0]["ffn"]["like"]["activation"] == "silu"
    code, out, _ = typed("check", "base.json", "--trust", "mine.py:Gated", "--exact-only", "-q")
    assert code == 0, out
    now = jsonable.decode(Plan, json.loads(Path("base.json").read_text())["plan"])
    case = now.cases[0]
    ffn = replace(case.ffn, like=replace(case.ffn.like, activation="gelu"))
    jobs = Jobs(replace(now, cases=(replace(case, ffn=ffn),)))
    with pytest.raises(Mismatch, match="own geglu"):
        jobs.open(case.label, 1)


MISTAKES = [
    ("mine.py:Gated@like=swigul", "unknown variant 'swigul', in 'mine.py:Gated@like=swigul'", "did you mean 'swiglu'"),
    ("mine.py:Gated@like=none@like=relu", "'like' stands twice", "once"),
    ("mine.py:Gated@like=7", "unknown variant '7'", "list variants"),
    ("mine.py:Gated@like=mine.py:act", "'like' takes a form's name and not 'mine.py:act'", "@like=swiglu"),
    ("mine.py:Gated@like=hf:llama", "'like' takes a form's name and not 'hf:llama'", "@like=swiglu"),
    ("mine.py:Gated@like=mixtral-8x7b", "mixtral-8x7b has experts, which 'like' does not know", "without any"),
    ("mine.py:Gated@like=compile", "'compile' is a backend", "key"),
    ("mine.py:act@like=relu", "'like' says what a module computes, and mine.py:act is an activation", "leave it out"),
    ("swiglu@like=relu", "'like' says what code of yours computes, in 'swiglu@like=relu'", "ffnbench's own form"),
    ("llama3-8b@like=relu", "'like' says what code of yours computes", "leave it out"),
    ("hf:llama@like=swiglu", "'like' says what code of yours computes", "a model's config says that"),
    ("mine.py:Gated@like=relu@backend=packed", "only an inner gate can be packed with up", "swiglu has one"),
    ("mine.py:Gated@backend=packed", "can't tell its gate from its up", "@like=swiglu"),
]


@pytest.mark.parametrize(("text", "error", "hint"), MISTAKES, ids=[row[0] for row in MISTAKES])
def test_mistakes_are_two_lines(typed, text: str, error: str, hint: str) -> None:
    code, out, err = typed("compare", "--variants", text, *SMALL)
    lines = err.splitlines()
    assert (code, out, [line.partition(":")[0] for line in lines]) == (2, "", ["error", "hint"]), err
    assert error in lines[0]
    assert hint in lines[1]


def test_the_grammar_of_like() -> None:
    def like_of(name: str) -> NetworkSpec:
        request = CompareRequest(variants=f"mine.py:M@like={name}@depth=2", d_model=64, d_ff=96, match="none")
        return plan_compare(request, KnownProber(1.0)).cases[0].ffn

    swiglu_of = FFNSpec(d_model=64, d_ff=96, activation="silu", gate=Gate.INNER)
    assert like_of("swiglu") == ImportedSpec(
        target="mine.py:M", d_model=64, d_ff=96, arguments=(("depth", 2),), like=swiglu_of
    )
    names = {"llama3-8b": "swiglu", "gelu_new": "gelu_tanh", "mish_glu": "mish_glu", "swiglu_oai": "swiglu_oai",
             "swish": "silu", "none": "identity", "LiGLU": "bilinear", "bert-base": "gelu"}  # fmt: skip
    assert {name: like_of(name).like.form for name in names} == names
    assert parse_variant("a.b:M@like=relu").label == "M@like=relu"
    plain = ImportedSpec(target="a:B", d_model=8, d_ff=16)
    assert "like" not in jsonable.encode(plain)
    for one in (plain, like_of("swiglu_oai"), HFSpec(target="hf:x", d_model=8, d_ff=16)):
        assert jsonable.decode(type(one), jsonable.encode(one)) == one
        assert type(jsonable.decode(Plan, plan_with(one)).cases[0].ffn) is type(one)
    with pytest.raises(FfnbenchError, match="can't be like experts"):
        replace(plain, like=replace(swiglu_of, moe=MoESpec(experts=4, top_k=2)))
    with pytest.raises(FfnbenchError, match="another d_model"):
        replace(plain, like=swiglu_of)


def test_both_sides_of_an_ab_have_it() -> None:
    request = SidesRequest(variant="mypkg.mlp:M@like=geglu@depth=2", base_rev="main", d_model=16)
    probe = KnownProber(1.0)
    plan = plan_sides(request, (Arm(name="base"), Arm(name="head")), (probe, probe))
    assert [case.label for case in plan.cases] == ["base", "M@like=geglu@depth=2"]
    assert {case.ffn.like.form for case in plan.cases} == {"geglu"}
    assert {case.ffn.arguments for case in plan.cases} == {(("depth", 2),)}


def plan_with(ffn: NetworkSpec) -> dict:
    plan = plan_compare(CompareRequest(variants="relu"))
    return jsonable.encode(replace(plan, cases=(replace(plan.cases[0], ffn=ffn),)))


def test_gate_and_up_of_a_module_can_be_packed(tmp_path: Path) -> None:
    """With the same weights, which are trained as before; where it is no such form, no packed one is measured."""
    (tmp_path / "mine.py").write_text(MINE)

    def packed(name: str, mode: str) -> Jobs:
        text = f"{tmp_path}/mine.py:{name}@like=swiglu@backend=packed"
        request = CompareRequest(
            variants=text, d_model=16, d_ff=24, seq_len=8, threads=1, mode=mode, match="none", device="cpu"
        )
        return Jobs(brief(plan_compare(request, KnownProber(1.0))))

    jobs = packed("Gated", "train")
    label = jobs.plan.reference
    assert lacks(jobs.plan.cases[0].ffn, jobs.plan.cases[0].workload) == ""
    assert jobs.open(label, 1)["error"] < 1e-6
    subject = jobs.subjects[label]
    subject.call()
    assert {name: p.grad is not None for name, p in subject.module.named_parameters()} == dict.fromkeys(
        ("gate_up.weight", "gate_up.bias", "down.weight", "down.bias"), True
    )
    for name, why in (
        ("Wrong", "is not like swiglu: its output differs by"), ("Classic", "is not like swiglu: its weights are"),
        ("Dropping", "has dropout, which swiglu would leave out"),
    ):  # fmt: skip
        with pytest.raises(Unsupported, match=f"mine.py:{name} {why}"):
            packed(name, "forward").open(label.replace("Gated", name), 1)


@pytest.mark.parametrize(
    ("keys", "bound"), [("@mode=train", 1e-6), ("@dtype=bf16", 2e-2), ("@mode=backward@dtype=float64", 1e-14)]
)
def test_in_every_mode_and_dtype(tmp_path: Path, keys: str, bound: float) -> None:
    """Dropout inside is off while outputs are compared; a module in train mode stays in it."""
    (tmp_path / "mine.py").write_text(MINE)
    request = CompareRequest(
        variants=f"{tmp_path}/mine.py:Dropping@like=swiglu{keys}", d_model=16, d_ff=24, seq_len=8, threads=1,
        match="none", device="cpu",
    )  # fmt: skip
    jobs = Jobs(brief(plan_compare(request, KnownProber(1.0))))
    opened = jobs.open(jobs.plan.reference, 1)
    assert 0 < opened["error"] < bound
    assert jobs.subjects[jobs.plan.reference].module.training is ("mode" in keys)


@pytest.mark.parametrize("name", ["llama", "gpt2", "t5", "phi3"])
def test_modules_of_transformers_themselves(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    targets = {
        "llama": ("llama.modeling_llama:LlamaMLP", "silu", Gate.INNER),
        "gpt2": ("gpt2.modeling_gpt2:GPT2MLP", "gelu_tanh", Gate.NONE),
        "t5": ("t5.modeling_t5:T5DenseGatedActDense", "gelu_tanh", Gate.INNER),
        "phi3": ("phi3.modeling_phi3:Phi3MLP", "silu", Gate.INNER),
    }
    target, activation, gate = targets[name]
    assert transformers is not None
    spec_of = ImportedSpec(target=f"transformers.models.{target}", d_model=D, d_ff=H)
    module = build_imported(spec_of).eval()
    assert holds(module, spec(activation, gate)) < 1e-5


@pytest.mark.parametrize("name", ["SwiGLU", "Mlp", "GluMlp", "SwiGLUPacked"])
def test_modules_of_timm_themselves(name: str) -> None:
    pytest.importorskip("timm")
    module = build_imported(ImportedSpec(target=f"timm.layers:{name}", d_model=D, d_ff=H)).eval()
    forms = {"SwiGLU": "silu", "Mlp": "gelu", "GluMlp": "sigmoid", "SwiGLUPacked": "silu"}
    assert holds(module, spec(forms[name], Gate.NONE if name == "Mlp" else Gate.INNER)) < 1e-5

"""@like: a module of the user's own is held against the form that it is said to be. The
modules compute by formulas that are written out here, with their weights called and
laid out as published code has them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from fake_machine import KnownProber
from torch import Tensor, nn

from ffnbench.common import jsonable
from ffnbench.common.errors import FfnbenchError, Unsupported
from ffnbench.ffn.like import as_form, relative_error, tolerance_of
from ffnbench.ffn.modules import reference_output
from ffnbench.ffn.spec import FFNSpec, Gate, ImportedSpec, NetworkSpec
from ffnbench.messages import Check, Open
from ffnbench.plan import Plan
from ffnbench.planning.compare import plan_compare
from ffnbench.planning.workload import lack_in_one_line
from ffnbench.request import CompareRequest
from ffnbench.worker.jobs import Jobs

D, H = 12, 20  # d_model and d_ff: neither is the other's double
Weights = dict[str, Tensor]


class Written(nn.Module):
    """Parameters by name, where a dot makes a module of the part before it, and a
    formula over them.
    """

    def __init__(
        self,
        weights: Weights,
        formula: Callable[[Weights, Tensor], Tensor],
        kinds: str = "Module",
    ) -> None:
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
    return [
        torch.randn(shape, generator=generator) / shape[-1] ** 0.5 for shape in shapes
    ]


def x_of(d: int = D, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(1, 16, d, generator=torch.Generator().manual_seed(7)).to(dtype)


def spec(
    activation: str = "silu", gate: Gate = Gate.INNER, d: int = D, **more: object
) -> FFNSpec:
    return FFNSpec(d_model=d, d_ff=999, activation=activation, gate=gate, **more)  # type: ignore[arg-type]


def holds(module: nn.Module, form: FFNSpec, x: Tensor | None = None) -> float:
    """The relative error of the module's output against our reference on its
    weights.
    """
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
    "raw": ("w_gate", "w_up", "w_down"),
    "letters": ("a", "b", "c"),
    "gated": ("gated_mlp.v.weight", "gated_mlp.w.weight", "gated_mlp.o.weight"),
}


@pytest.mark.parametrize("names", NAMED.values(), ids=NAMED)
def test_three_matrices_are_found_by_name_and_shape(
    names: tuple[str, str, str],
) -> None:
    for width, turned in product((H, D), (False, True)):
        weights = drawn((width, D), (width, D), (D, width), seed=2)
        laid = [w.T.contiguous() if turned else w for w in weights]

        def formula(of: Weights, x: Tensor, turned: bool = turned) -> Tensor:
            return swiglu(x, *(of[name].T if turned else of[name] for name in names))

        module = Written(dict(sorted(zip(names, laid, strict=True))), formula)
        assert holds(module, spec()) < 1e-6
        ours = as_form(module, spec(), x_of())
        assert (ours.spec.d_ff, ours.spec.bias, ours.spec.d_model) == (width, False, D)
        storages = {
            parameter.untyped_storage().data_ptr() for parameter in module.parameters()
        }
        assert {
            parameter.untyped_storage().data_ptr() for parameter in ours.parameters()
        } == storages  # not copied
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


@pytest.mark.parametrize("how", PACKINGS)
def test_packed_gate_and_up(how: str) -> None:
    for name, bias in product(
        ("fc1.weight", "net.0.proj.weight", "up_proj.weight"), (False, True)
    ):

        def formula(
            of: Weights, x: Tensor, name: str = name, bias: bool = bias
        ) -> Tensor:
            y = x @ of[name].T
            g, u = unpack(y + of[name.replace("weight", "bias")] if bias else y, how)
            y = (F.silu(g) * u) @ of["out.weight"].T
            return y + of["out.bias"] if bias else y

        weights = {name: PACKINGS[how](GATE, UP), "out.weight": DOWN}
        if bias:
            weights |= {
                name.replace("weight", "bias"): PACKINGS[how](B_GATE, B_UP),
                "out.bias": B_DOWN,
            }
        module = Written(weights, formula)
        assert holds(module, spec()) < 1e-6
        ours = as_form(module, spec(), x_of())
        assert torch.equal(ours.gate.weight, GATE)
        assert not bias or torch.equal(ours.up.bias, B_UP)


class Conv1D(nn.Module):
    """As transformers' own: the weight is (in, out)."""

    def __init__(self, out: int, fan_in: int) -> None:
        super().__init__()
        self.weight, self.bias = (
            nn.Parameter(w) for w in drawn((fan_in, out), (out,), seed=3)
        )

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


class GPT2(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.c_fc, self.c_proj = Conv1D(width, D), Conv1D(D, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Lazy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.LazyLinear(H), nn.LazyLinear(D)

    def forward(self, x: Tensor) -> Tensor:
        return self.two(self.one(x).relu())


def sequence() -> nn.Module:
    return nn.Sequential(
        nn.Linear(D, H),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(H, D, bias=False),
        nn.Dropout(0.1),
    )


def encoder_layer() -> nn.Module:
    module = nn.Module()
    module.linear1, module.linear2 = nn.Linear(D, D), nn.Linear(D, D)
    module.forward = lambda x: module.linear2(F.relu(module.linear1(x)))  # type: ignore[method-assign]
    return module


CLASSIC: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "gpt2": (lambda: GPT2(H), "gelu_tanh"), "gpt2, square": (lambda: GPT2(D), "gelu_tanh"),
    "lazy": (Lazy, "relu"), "sequence": (sequence, "relu"),
    "square": (encoder_layer, "relu"),
}  # fmt: skip


@pytest.mark.parametrize("case", CLASSIC)
def test_the_classic_form(case: str) -> None:
    """Also where dropout stands inside, which is off while outputs are compared, and
    where one layer has no bias.
    """
    make, activation = CLASSIC[case]
    module = make()
    training = module.training
    ours = as_form(module, spec(activation, Gate.NONE), x_of())
    assert module.training is training
    assert holds(module.eval(), spec(activation, Gate.NONE)) < 1e-6
    assert ours.spec.bias


BIASES = {
    "modules": ("gate.bias", "up.bias", "down.bias"), "raw": ("b_gate", "b_up", "b_down"),
    "after the name": ("gate_bias", "up_bias", "down_bias"),
}  # fmt: skip


@pytest.mark.parametrize("names", BIASES.values(), ids=BIASES)
def test_biases_go_with_their_weights(names: tuple[str, str, str]) -> None:
    weights = (
        ("gate.weight", "up.weight", "down.weight")
        if "." in names[0]
        else ("w_gate", "w_up", "w_down")
    )

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


WRONG = {
    "another activation": lambda g, u, d, x: (F.gelu(x @ g.T) * (x @ u.T)) @ d.T,
    "a factor is missing": lambda g, u, d, x: F.silu(x @ g.T) @ d.T,
    "half of it": lambda g, u, d, x: 0.5 * swiglu(x, g, u, d),
    "a residual": lambda g, u, d, x: x + swiglu(x, g, u, d),
    "zeros": lambda g, u, d, x: torch.zeros_like(x),
    "nothing known": lambda g, u, d, x: x * torch.nan,
    "the activation on both": lambda g, u, d, x: (
        (F.silu(x @ g.T) * F.silu(x @ u.T)) @ d.T
    ),
}


@pytest.mark.parametrize(
    "names", [NAMED["ours"], NAMED["xformers"]], ids=["ours", "xformers"]
)
@pytest.mark.parametrize("what", WRONG)
def test_another_function_is_far_off(what: str, names: tuple[str, str, str]) -> None:
    """Whichever way its weights are read."""
    weights = dict(zip(names, (GATE, UP, DOWN), strict=True))
    module = Written(weights, lambda of, x: WRONG[what](*of.values(), x))
    assert not holds(module, spec()) < 0.05


def test_gate_and_up_are_what_they_compute_whatever_they_are_called() -> None:
    for names in (NAMED["llama"], NAMED["t5"], NAMED["xformers"]):
        weights = dict(zip(names, (UP, GATE, DOWN), strict=True))
        crossed = Written(
            weights,
            lambda of, x, names=names: swiglu(
                x, of[names[1]], of[names[0]], of[names[2]]
            ),
        )
        assert holds(crossed, spec()) < 1e-6
        assert torch.equal(as_form(crossed, spec(), x_of()).gate.weight, GATE)


def test_an_error_is_relative_to_what_is_expected_and_its_limit_is_that_of_the_dtype() -> (
    None
):
    """However large the numbers are; the norm by itself where nothing but zeros is
    expected.
    """
    expected = torch.tensor([3.0, 4.0])
    for size in (1e-6, 1.0, 1e6):
        assert relative_error(1.01 * size * expected, size * expected) == pytest.approx(
            0.01, rel=1e-4
        )
    assert relative_error(expected, torch.zeros(2)) == 5.0
    assert (
        tolerance_of(torch.float64)
        < tolerance_of(torch.float32)
        < tolerance_of(torch.bfloat16)
        < 0.1
    )
    assert tolerance_of(torch.int8) == tolerance_of(torch.float32)


def held(*layers: nn.Module) -> nn.Module:
    """A module that holds these and gives what it gets."""
    module = nn.Sequential(*layers)
    module.forward = lambda x: x  # type: ignore[method-assign]
    return module


MISFITS = (
    (lambda: held(nn.Linear(D, H), nn.Linear(H, D)), spec(),
     "its parameters are 0.weight (20, 12), 0.bias (20,), 1.weight (12, 20), 1.bias (12,), where swiglu has "
     "gate (d_ff, 12), up (d_ff, 12), down (12, d_ff), and biases of their rows"),
    (lambda: held(nn.Linear(D, H), nn.Linear(D, H), nn.Linear(H, D)), spec("relu", Gate.NONE),
     "where relu has up (d_ff, 12), down (12, d_ff)"),
    (lambda: held(nn.Linear(D, H), nn.Linear(D, 18), nn.Linear(H, D)), spec(), "1.weight (18, 12)"),
    (lambda: held(), spec(), "its parameters are none"),
    (lambda: held(nn.LayerNorm(D), nn.Linear(D, H), nn.Linear(H, D)), spec("relu", Gate.NONE), "0.weight (12,)"),
    (lambda: held(nn.Linear(D, H), nn.PReLU(), nn.Linear(H, D)), spec("prelu", Gate.NONE), "slope ()"),
    (lambda: Written({"w": torch.ones(3, 5, 6)}, lambda of, x: x), spec(), "w (3, 5, 6)"),
    (lambda: Written({"w": UP}, lambda of, x: (x, x)), spec(), "it does not give a tensor"),
)  # fmt: skip


def test_what_does_not_fit_is_named_with_its_shape() -> None:
    for make, form, message in MISFITS:
        with pytest.raises(FfnbenchError) as caught:
            as_form(make(), form, x_of())
        assert message in caught.value.message


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

def act(x):
    return F.relu(x)
"""


def brief(plan: Plan) -> Plan:
    return replace(plan, protocol=replace(plan.protocol, warmup_s=0.0))


def test_limits_and_a_gate_at_the_output() -> None:
    def clamped(of: Weights, x: Tensor) -> Tensor:
        g, u = (8 * x @ of["gate_up_proj"]).unflatten(-1, (-1, 2)).unbind(-1)
        g, u = g.clamp(max=7), u.clamp(-7, 7)
        return ((u + 1) * g * torch.sigmoid(1.702 * g)) @ of["down_proj"]

    weights = {
        "gate_up_proj": 8 * PACKINGS["in turns"](GATE, UP).T,
        "down_proj": DOWN.T,
    }
    oai = spec("quick_gelu", limit=7.0, up_offset=1.0)
    assert holds(Written(weights, lambda of, x: clamped(of, x / 8)), oai) < 1e-6
    (square,) = drawn((D, D), seed=4)
    weights = {"key.weight": UP, "value.weight": DOWN, "receptance.weight": square}

    def mixed(of: Weights, x: Tensor) -> Tensor:
        y = F.relu(x @ of["key.weight"].T).square() @ of["value.weight"].T
        return y * (x @ of["receptance.weight"].T)

    assert holds(Written(weights, mixed), spec("relu2", Gate.OUTPUT)) < 1e-6


def test_the_grammar_of_like() -> None:
    def like_of(name: str) -> NetworkSpec:
        request = CompareRequest(
            variants=f"mine.py:M@like={name}@depth=2", d_model=64, d_ff=96, match="none"
        )
        return plan_compare(request, KnownProber(1.0)).cases[0].ffn

    swiglu_of = FFNSpec(d_model=64, d_ff=96, activation="silu", gate=Gate.INNER)
    assert like_of("swiglu") == ImportedSpec(
        target="mine.py:M",
        d_model=64,
        d_ff=96,
        arguments=(("depth", 2),),
        like=swiglu_of,
    )
    names = {"llama3-8b": "swiglu", "gelu_new": "gelu_tanh", "mish_glu": "mish_glu", "swiglu_oai": "swiglu_oai",
             "swish": "silu", "none": "identity", "LiGLU": "bilinear"}  # fmt: skip
    assert {name: like_of(name).like.form_name for name in names} == names
    plain = ImportedSpec(target="a:B", d_model=8, d_ff=16)
    assert "like" not in jsonable.encode(plain)
    for one in (plain, like_of("swiglu_oai")):
        assert jsonable.decode(type(one), jsonable.encode(one)) == one
        assert type(jsonable.decode(Plan, plan_with(one)).cases[0].ffn) is type(one)


def plan_with(ffn: NetworkSpec) -> dict:
    plan = plan_compare(CompareRequest(variants="relu"))
    return jsonable.encode(replace(plan, cases=(replace(plan.cases[0], ffn=ffn),)))


def test_gate_and_up_of_a_module_can_be_packed(tmp_path: Path) -> None:
    """With the same weights, which are trained as before; where it is no such form, no
    packed one is measured.
    """
    (tmp_path / "mine.py").write_text(MINE)

    def packed(name: str, mode: str) -> Jobs:
        text = f"{tmp_path}/mine.py:{name}@like=swiglu@backend=packed"
        request = CompareRequest(
            variants=text,
            d_model=16,
            d_ff=24,
            seq_len=8,
            threads=1,
            mode=mode,
            match="none",
            device="cpu",
        )
        return Jobs(brief(plan_compare(request, KnownProber(1.0))))

    jobs = packed("Gated", "train")
    label = jobs.plan.reference
    assert lack_in_one_line(jobs.plan.cases[0].ffn, jobs.plan.cases[0].workload) == ""
    jobs.open(Open(label=label, calls=1))
    assert jobs.check(Check(label=label)).values["error"] < 1e-6
    subject = jobs.subjects[label]
    subject.call()
    assert {
        name: p.grad is not None for name, p in subject.module.named_parameters()
    } == dict.fromkeys(
        ("gate_up.weight", "gate_up.bias", "down.weight", "down.bias"), True
    )
    for name, why in (
        ("Wrong", "is not like swiglu: its output differs by"), ("Classic", "is not like swiglu: its parameters are"),
        ("Dropping", "has dropout, which swiglu would leave out"),
    ):  # fmt: skip
        with pytest.raises(Unsupported, match=f"mine.py:{name} {why}"):
            packed(name, "forward").open(
                Open(label=label.replace("Gated", name), calls=1)
            )

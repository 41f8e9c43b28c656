"""oneDNN under linear layers, and gate and up in one product: the same function, by
whichever way it is run.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ffnbench.ffn.spec import FFNSpec, Gate
from ffnbench.worker.backends import onednn
from ffnbench.worker.backends.building import build_module
from ffnbench.worker.backends.onednn import why_no_onednn

D, H = 24, 40
SWIGLU = FFNSpec(d_model=D, d_ff=H, activation="silu", gate=Gate.INNER)
needs_onednn = pytest.mark.skipif(
    bool(why_no_onednn()), reason="this torch has no oneDNN"
)

# torch's own functions, by the names that ffnbench gives them
THEIRS = {
    "relu": F.relu,
    "relu6": F.relu6,
    "leaky_relu": F.leaky_relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "silu": F.silu,
    "hardswish": F.hardswish,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "mish": F.mish,  # one that oneDNN is not asked for
}


def error(y: Tensor, expected: Tensor) -> float:
    return float((y.double() - expected).norm() / expected.norm())


def by_hand(module: nn.Module, x: Tensor, act) -> Tensor:
    """The form by its formula, in float64, from the weights that the module says it
    has.
    """
    w = {name: tensor.detach().double() for name, tensor in module.state_dict().items()}
    x = x.double()

    def linear(name: str, v: Tensor) -> Tensor:
        return v @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0.0)

    hidden = (
        act(linear("gate", x)) * linear("up", x)
        if "gate.weight" in w
        else act(linear("up", x))
    )
    return linear("down", hidden)


def run(module: nn.Module, x: Tensor) -> Tensor:
    onednn.pack(module, x)
    with torch.inference_mode():
        return module(x)


@needs_onednn
@pytest.mark.parametrize("name", THEIRS)
def test_every_fused_activation_is_its_own(name: str) -> None:
    """At inputs large enough that an approximation, another slope or another limit
    would show.
    """
    assert onednn.FUSED.keys() < THEIRS.keys()
    for gate, bias, tokens in (
        (Gate.NONE, True, 10),
        (Gate.INNER, False, 1),
        (Gate.INNER, True, 600),
    ):
        module = build_module(replace(SWIGLU, activation=name, gate=gate, bias=bias))
        for parameter in module.parameters():
            parameter.data *= 4
        x = 3 * torch.randn(1, tokens, D)
        expected = by_hand(module, x, THEIRS[name])
        assert error(run(module, x), expected) < 1e-6


class Mixed(nn.Module):
    """One layer is called, one is read, one makes its weight anew at each call, one is
    of another kind.
    """

    def __init__(self) -> None:
        super().__init__()
        self.called = nn.Linear(D, H)
        self.read = nn.Linear(H, H)
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(H, H))
        self.named = Named(H, D)

    def forward(self, x: Tensor) -> Tensor:
        return self.named(self.normed(F.linear(self.called(x), self.read.weight)))


class Named(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


@needs_onednn
def test_a_module_of_another_is_run_without_a_change() -> None:
    """The layers that are nn.Linear and are called; the others go on as they are, and
    all that it holds stays.
    """
    module, x = Mixed(), torch.randn(1, 6, D)
    expected, before = (
        module.double()(x.double()).detach(),
        {n: p.shape for n, p in module.named_parameters()},
    )
    module.float()
    packed = onednn.pack(module, x)
    assert (packed.layers, packed.unused) == (2, 1)
    with torch.inference_mode():
        assert error(module(x), expected) < 1e-6
    assert {n: p.shape for n, p in module.named_parameters()} == before
    assert type(module.named) is Named
    assert isinstance(module.called, nn.Linear)

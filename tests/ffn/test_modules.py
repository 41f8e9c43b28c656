from __future__ import annotations

import pytest
import torch

from ffnbench.common.choices import Init
from ffnbench.ffn.spec import FFNSpec
from ffnbench.worker.backends.building import build_module


def test_dropout_is_nothing_at_zero_and_in_eval() -> None:
    x = torch.randn(8, 16)
    assert build_module(FFNSpec(d_model=16, d_ff=64, activation="relu")).drop is None
    module = build_module(FFNSpec(d_model=16, d_ff=64, activation="relu", dropout=0.5))
    assert torch.equal(module.eval()(x), module(x))
    assert not torch.equal(module.train()(x), module.eval()(x))


def test_dropout_stands_after_the_activation() -> None:
    module = build_module(
        FFNSpec(d_model=16, d_ff=4096, activation="sigmoid", dropout=0.25)
    ).train()
    seen: list[torch.Tensor] = []
    module.down.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    module(torch.randn(64, 16))
    assert float((seen[0] == 0).float().mean()) == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize(
    ("init", "up_std", "down_std"),
    [
        (Init.TORCH, 512**-0.5 / 3**0.5, 2048**-0.5 / 3**0.5),  # U(+-1/sqrt(fan_in))
        (Init.HE_XAVIER, (2 / 512) ** 0.5, 0.02 * (2 / 2560) ** 0.5),
        (Init.NORMAL, 0.02, 0.02),
    ],
)
def test_initial_weights_have_the_declared_spread(
    init: Init, up_std: float, down_std: float
) -> None:
    torch.manual_seed(0)
    module = build_module(
        FFNSpec(d_model=512, d_ff=2048, activation="relu", bias=True, init=init)
    )
    assert float(module.up.weight.detach().std()) == pytest.approx(up_std, rel=0.01)
    assert float(module.down.weight.detach().std()) == pytest.approx(down_std, rel=0.01)
    assert bool((module.up.bias == 0).all()) == (init is not Init.TORCH)


def test_a_large_weight_repeats_its_draws_and_no_row() -> None:
    """4096 x 4096 numbers: as many different ones as fit, spread as nn.Linear spreads
    them, no two rows alike.
    """
    torch.manual_seed(0)
    layer = build_module(
        FFNSpec(d_model=4096, d_ff=4096, activation="relu", bias=True)
    ).up
    weight = layer.weight.detach()
    assert type(layer) is torch.nn.Linear
    assert layer.weight.requires_grad
    assert float(weight.std()) == pytest.approx(4096**-0.5 / 3**0.5, rel=0.01)
    assert float(weight.abs().max()) <= 4096**-0.5
    assert float(layer.bias.detach().std()) == pytest.approx(
        4096**-0.5 / 3**0.5, rel=0.05
    )
    assert len(weight.unique(dim=0)) == 4096

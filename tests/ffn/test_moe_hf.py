"""The same function from the same weights as the mixtures of transformers. Skips itself
without it.
"""

from __future__ import annotations

import pytest
import torch

from ffnbench.ffn.spec import Dispatch, FFNSpec, Gate, MoESpec, Scores, act
from ffnbench.worker.backends.building import build_module

transformers = pytest.importorskip("transformers")
D, H, E, K = 32, 48, 8, 2


def spec_of(**moe: object) -> FFNSpec:
    return FFNSpec(
        d_model=D,
        d_ff=H,
        activation="silu",
        gate=Gate.INNER,
        moe=MoESpec(**{"experts": E, "top_k": K, **moe}),
    )


def theirs_of(kind: str, name: str, **config: object) -> torch.nn.Module:
    from importlib import import_module

    modeling = import_module(f"transformers.models.{kind}.modeling_{kind}")
    configuration = import_module(f"transformers.models.{kind}.configuration_{kind}")
    of = next(
        getattr(configuration, n)
        for n in dir(configuration)
        if n.lower() == f"{kind.replace('_', '')}config"
    )
    module = getattr(modeling, name)(of(hidden_size=D, num_experts_per_tok=K, **config))
    generator = torch.Generator().manual_seed(0)
    for parameter in module.parameters():
        parameter.data = 0.5 * torch.randn(parameter.shape, generator=generator)
    return module.eval()


def filled(spec: FFNSpec, state: dict[str, torch.Tensor]) -> torch.nn.Module:
    module = build_module(spec)
    module.load_state_dict(state)
    return module


def experts_of(theirs: torch.nn.Module) -> dict[str, torch.Tensor]:
    gate, up = theirs.experts.gate_up_proj.chunk(2, dim=1)
    return {"gate": gate, "up": up, "down": theirs.experts.down_proj}


def state_of(
    router: torch.Tensor, experts: dict[str, torch.Tensor], **more: torch.Tensor
) -> dict[str, torch.Tensor]:
    named = {f"experts.{name}.weight": weight for name, weight in experts.items()}
    return {
        "router.weight": router,
        **named,
        **{name.replace("__", "."): value for name, value in more.items()},
    }


def mixtral() -> tuple[torch.nn.Module, FFNSpec, dict[str, torch.Tensor]]:
    theirs = theirs_of(
        "mixtral", "MixtralSparseMoeBlock", intermediate_size=H, num_local_experts=E
    )
    return theirs, spec_of(), state_of(theirs.gate.weight, experts_of(theirs))


def qwen2() -> tuple[torch.nn.Module, FFNSpec, dict[str, torch.Tensor]]:
    theirs = theirs_of(
        "qwen2_moe", "Qwen2MoeSparseMoeBlock", moe_intermediate_size=H, num_experts=E, norm_topk_prob=False,
        shared_expert_intermediate_size=24,
    )  # fmt: skip
    shared = {
        f"shared__{n}__weight": getattr(theirs.shared_expert, f"{n}_proj").weight
        for n in ("gate", "up", "down")
    }
    state = state_of(
        theirs.gate.weight,
        experts_of(theirs),
        shared_gate__weight=theirs.shared_expert_gate.weight,
        **shared,
    )
    return theirs, spec_of(normalised=False, shared_d_ff=24, shared_gate=True), state


def deepseek() -> tuple[torch.nn.Module, FFNSpec, dict[str, torch.Tensor]]:
    theirs = theirs_of(
        "deepseek_v3", "DeepseekV3MoE", moe_intermediate_size=H, n_routed_experts=E, n_shared_experts=2, n_group=4,
        topk_group=2, routed_scaling_factor=2.5,
    )  # fmt: skip
    shared = {
        f"shared__{n}__weight": getattr(theirs.shared_experts, f"{n}_proj").weight
        for n in ("gate", "up", "down")
    }
    state = state_of(theirs.gate.weight, experts_of(theirs), **shared)
    moe = {
        "scores": Scores.SIGMOID,
        "shared_d_ff": 2 * H,
        "routed_scale": 2.5,
        "groups": 4,
        "top_groups": 2,
    }
    return theirs, spec_of(**moe), state


def gpt_oss() -> tuple[torch.nn.Module, FFNSpec, dict[str, torch.Tensor]]:
    theirs = theirs_of("gpt_oss", "GptOssMLP", intermediate_size=H, num_local_experts=E)
    packed, bias = theirs.experts.gate_up_proj, theirs.experts.gate_up_proj_bias
    state = state_of(
        theirs.router.weight,
        {
            "gate": packed[..., ::2].mT, "up": packed[..., 1::2].mT, "down": theirs.experts.down_proj.mT,
        },
        router__bias=theirs.router.bias, experts__gate__bias=bias[:, ::2], experts__up__bias=bias[:, 1::2],
        experts__down__bias=theirs.experts.down_proj_bias,
    )  # fmt: skip
    spec = FFNSpec(
        d_model=D, d_ff=H, activation="quick_gelu", parameters=(("limit", 7.0),), gate=Gate.INNER, bias=True,
        up=act("clamp", limit=7, offset=1),
        moe=MoESpec(experts=E, top_k=K, router_bias=True),
    )  # fmt: skip
    return theirs, spec, state


@pytest.mark.parametrize("dispatch", list(Dispatch), ids=lambda d: d.value)
@pytest.mark.parametrize(
    "family", [mixtral, qwen2, deepseek, gpt_oss], ids=lambda f: f.__name__
)
def test_the_same_function_as_transformers(family, dispatch: Dispatch) -> None:
    from dataclasses import replace

    theirs, spec, state = family()
    capacity = None
    if dispatch is Dispatch.BATCHED:
        capacity = spec.moe.experts  # room for every token
    moe = replace(spec.moe, dispatch=dispatch, capacity=capacity)
    ours = filled(replace(spec, moe=moe), state)
    x = torch.randn(2, 30, D, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        expected = theirs(x)
        expected = expected[0] if isinstance(expected, tuple) else expected
        y = ours(x)
    assert sum(p.numel() for p in ours.parameters()) == sum(
        p.numel() for p in theirs.parameters()
    )
    assert float((y - expected).norm() / expected.norm()) < 1e-5

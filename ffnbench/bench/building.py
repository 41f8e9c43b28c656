"""A spec -> the nn.Module that it describes: one of ffnbench's forms, a model's of transformers, or the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ffnbench.ffn.attention import AttentionSpec
from ffnbench.ffn.attention_module import build_attention
from ffnbench.ffn.imported import build_imported
from ffnbench.ffn.modules import Pointwise, build_module
from ffnbench.ffn.spec import ActivationSpec, FFNSpec, HFSpec, ImportedSpec
from ffnbench.models.transformers import build_own
from ffnbench.plan import AnySpec

WEIGHTS = "base.pt"  # what a base writes into a folder for its head


def build(spec: AnySpec, *, device: Any, dtype: Any) -> nn.Module:
    """The module, its weights drawn from torch's global generator; raises FfnbenchError where that fails."""
    if isinstance(spec, FFNSpec):
        return build_module(spec, device=device, dtype=dtype)
    if isinstance(spec, AttentionSpec):
        return build_attention(spec, device=device, dtype=dtype)
    if isinstance(spec, ActivationSpec):
        return Pointwise(spec)
    return build_foreign(spec).to(device=device, dtype=dtype)


def carry(state: dict[str, Tensor], module: nn.Module) -> str:
    """Give the module these weights; why not, where names or shapes do not fit."""
    own = module.state_dict()
    if other := sorted(set(state) ^ set(own)):
        where = "base" if other[0] in state else "head"
        return f"only {where} has {other[0]}"
    for name, value in own.items():
        if value.shape != state[name].shape:
            return f"{name} is {tuple(state[name].shape)} in base and {tuple(value.shape)} in head"
    module.load_state_dict(state)
    return ""


def carried(folder: str, module: nn.Module) -> None:
    """Give the module the weights that a base has written there, where they fit."""
    carry(torch.load(Path(folder, WEIGHTS), weights_only=True)["state"], module)


def build_foreign(spec: ImportedSpec) -> nn.Module:
    """A module that ffnbench has no form of, on the device and in the dtype that its own code chooses."""
    module: nn.Module = build_own(spec.target) if isinstance(spec, HFSpec) else build_imported(spec)
    return module

"""A spec -> the nn.Module that it describes: one of ffnbench's forms, a model's of transformers, or the user's own."""

from __future__ import annotations

from typing import Any

from torch import nn

from ffnbench.ffn.attention import AttentionSpec
from ffnbench.ffn.attention_module import build_attention
from ffnbench.ffn.imported import build_imported
from ffnbench.ffn.modules import Pointwise, build_module
from ffnbench.ffn.spec import ActivationSpec, FFNSpec, HFSpec, ImportedSpec
from ffnbench.models.transformers import build_own
from ffnbench.plan import AnySpec


def build(spec: AnySpec, *, device: Any, dtype: Any) -> nn.Module:
    """The module, its weights drawn from torch's global generator; raises FfnbenchError where that fails."""
    if isinstance(spec, FFNSpec):
        return build_module(spec, device=device, dtype=dtype)
    if isinstance(spec, AttentionSpec):
        return build_attention(spec, device=device, dtype=dtype)
    if isinstance(spec, ActivationSpec):
        return Pointwise(spec)
    return build_foreign(spec).to(device=device, dtype=dtype)


def build_foreign(spec: ImportedSpec) -> nn.Module:
    """A module that ffnbench has no form of, on the device and in the dtype that its own code chooses."""
    module: nn.Module = build_own(spec.target) if isinstance(spec, HFSpec) else build_imported(spec)
    return module

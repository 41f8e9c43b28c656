"""A spec -> the nn.Module that it describes: one of ffnbench's forms, or the user's own."""

from __future__ import annotations

import random
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.attention import AttentionSpec
from ffnbench.ffn.attention_module import build_attention
from ffnbench.ffn.experts import MixtureOfExperts, impose
from ffnbench.ffn.imported import build_imported
from ffnbench.ffn.like import as_form
from ffnbench.ffn.modules import OwnForm, Pointwise, build_module
from ffnbench.ffn.moe import Routing
from ffnbench.ffn.spec import ActivationSpec, FFNSpec, ImportedSpec
from ffnbench.plan import AddedSpec, AnySpec, Workload
from ffnbench.targets import resolve

WEIGHTS = "base.pt"  # what a base writes into a folder for its head


def build(spec: AnySpec, *, device: Any, dtype: Any) -> nn.Module:
    """The module, its weights drawn from torch's global generator; raises FfnbenchError where that fails."""
    if isinstance(spec, FFNSpec):
        return build_module(spec, device=device, dtype=dtype)
    if isinstance(spec, AttentionSpec):
        return build_attention(spec, device=device, dtype=dtype)
    if isinstance(spec, ActivationSpec):
        return Pointwise(spec)
    if isinstance(spec, AddedSpec):
        added: nn.Module = spec.build(device=device, dtype=dtype)
        return added
    return build_foreign(spec).to(device=device, dtype=dtype)


def seed_all(seed: int, spec: AnySpec | None = None) -> None:
    """Every generator that a module may draw its weights from: torch's, Python's, and numpy's where it is loaded. Its
    code is imported before, since that may draw numbers too.
    """
    if isinstance(spec, ImportedSpec):
        resolve(spec.target)
    torch.manual_seed(seed)
    random.seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed % 2**32)


def in_float64(module: nn.Module, x: Tensor) -> Tensor | None:
    """The output of a module as it is written, run in float64; None where it can't be copied or run so."""
    try:
        with torch.no_grad():
            y: Tensor = deepcopy(module).double().eval()(x.double()).double()
    except Exception:  # code of the user's: a kernel for some dtypes alone, a lock that can't be copied
        return None
    return y


def impose_routing(module: nn.Module, work: Workload, seed: int) -> None:
    """Give the tokens of a workload their experts, where it says how they are spread."""
    if isinstance(module, MixtureOfExperts) and work.routing:
        impose(module, Routing(work.routing), tokens=work.tokens, seed=seed)


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
    """A module that ffnbench has no form of, on the device and in the dtype that its own code chooses. A lazy one makes
    its weights now, by a call with one token.
    """
    module: nn.Module = build_imported(spec)
    if lazy := [p for p in (*module.parameters(), *module.buffers()) if is_lazy(p)]:
        with torch.no_grad():
            module.eval()(torch.zeros(1, 1, spec.d_model, device=lazy[0].device, dtype=lazy[0].dtype))
        module.train()
    return module


def as_own(module: nn.Module, spec: AnySpec, x: Tensor) -> OwnForm | None:
    """A module of somebody else's as the form that it is said to be, on its own weights; None without one.

    x (..., d_model) is what it is called with where its weights can be read in several ways. Raises FfnbenchError where
    the weights are no such form's.
    """
    if not isinstance(spec, ImportedSpec) or spec.like is None:
        return None
    try:
        return as_form(module, spec.like, x)
    except FfnbenchError as problem:
        raise FfnbenchError(f"{spec.target} is not like {spec.like.name}: {problem.message}") from problem

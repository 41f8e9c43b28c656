"""Builds the nn.Module that a spec describes, one of ffnbench's forms or the user's
own, and brings it into the form that a backend runs. Runs in a worker; needs torch.

A backend may change the module once it is built (`module_for_backend`), and what is
called in its place once its input is there (`running.py: Implementation.prepare`).
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ffnbench.common.choices import Backend, Routing
from ffnbench.common.errors import FfnbenchError, Unsupported
from ffnbench.common.targets import resolve
from ffnbench.device.environment import torch_device
from ffnbench.ffn.imported import build_imported
from ffnbench.ffn.modules import build_dense
from ffnbench.ffn.spec import FFNSpec, ImportedSpec, StackSpec
from ffnbench.plan.backends import BACKENDS
from ffnbench.plan.plan import AnySpec, Case, Workload

# modules that were drawn before this process was forked, by spec, dtype and seed
DRAWN_MODULES: dict[tuple[AnySpec, str, int], nn.Module] = {}
# the layers without FFNs of the stacks that this process has
TRUNKS: WeakValueDictionary[Any, nn.Module] = WeakValueDictionary()


def build_module(spec: AnySpec, *, device: Any = None, dtype: Any = None) -> nn.Module:
    """Build the module of a spec, its weights drawn from torch's global generator;
    raises FfnbenchError where that fails.
    """
    if isinstance(spec, FFNSpec) and spec.moe is None:
        return build_dense(spec, device=device, dtype=dtype)
    if isinstance(spec, FFNSpec):
        from ffnbench.ffn.experts import MixtureOfExperts

        return MixtureOfExperts(spec, device=device, dtype=dtype)
    assert isinstance(spec, ImportedSpec)
    return build_imported_module(spec).to(device=device, dtype=dtype)


def draw(case: Case, seed: int) -> None:
    """Draw the weights of a case, for copies that children of this process make."""
    key = (case.ffn, case.workload.dtype, seed)
    if key not in DRAWN_MODULES:
        seed_all(seed)
        dtype = getattr(torch, case.workload.dtype)
        DRAWN_MODULES[key] = build_module(case.ffn, dtype=dtype)


def build_case(case: Case, seed: int) -> nn.Module:
    """Build the module of a case on its device, its weights drawn from the seed; or
    copy it, where the process that this one was forked from has drawn them. Either way
    one parameter after another is registered.
    """
    work = case.workload
    if isinstance(case.ffn, StackSpec):
        return _build_stack(case, case.ffn, seed)
    seed_all(seed, case.ffn)
    drawn = DRAWN_MODULES.get((case.ffn, work.dtype, seed))
    if drawn is None or work.device != "cpu":
        return build_module(
            case.ffn,
            device=torch_device(work.device),
            dtype=getattr(torch, work.dtype),
        )
    weights = list(drawn.parameters())
    copies = nn.ParameterList(weight.detach().clone() for weight in weights)
    return deepcopy(drawn, dict(zip(map(id, weights), copies, strict=True)))


def _build_stack(case: Case, spec: StackSpec, seed: int) -> nn.Module:
    """Build a stack whose layers have weights of their own, the FFNs of all layers the
    same numbers. The rest is shared with the other stacks of this process.
    """
    from ffnbench.ffn.stack_module import Block, Stack, Trunk

    device, dtype = torch_device(case.workload.device), case.workload.dtype
    blocks = []
    for number, attention in enumerate(spec.in_order):
        key = (number, attention, spec.norm, device, dtype)
        trunk = TRUNKS.get(key)
        if trunk is None:
            torch.manual_seed(seed + number)
            trunk = TRUNKS[key] = Trunk(
                attention, spec.norm, device=device, dtype=getattr(torch, dtype)
            )
        ffn: nn.Module = nn.Identity()
        if spec.ffn is not None:
            ffn = build_case(replace(case, ffn=spec.ffn), seed)
        blocks.append(Block(trunk, ffn))
    return Stack(*blocks)


def seed_all(seed: int, spec: AnySpec | None = None) -> None:
    """Seed every generator that a module may draw its weights from: torch's, Python's,
    and numpy's where it is loaded. The code of the spec is imported before, since that
    may draw numbers too.
    """
    if isinstance(spec, ImportedSpec):
        resolve(spec.target)
    torch.manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)


def in_float64(module: nn.Module, x: Tensor) -> Tensor | None:
    """The output of a copy of a module in float64, in eval mode; None where the module
    can't be copied or run in float64.
    """
    try:
        with torch.no_grad():
            y: Tensor = deepcopy(module).double().eval()(x.double()).double()
    except Exception:
        # code of the user's: a kernel for some dtypes alone, a lock that can't be
        # copied
        return None
    return y


def impose_routing(module: nn.Module, work: Workload, seed: int) -> None:
    """Have a mixture send each token to the experts that a workload's routing chooses,
    where it has one.
    """
    if not work.routing:
        return
    from ffnbench.ffn.experts import MixtureOfExperts, impose

    for each in module.modules():
        if isinstance(each, MixtureOfExperts):
            impose(each, Routing(work.routing), tokens=work.tokens, seed=seed)


def load_layer(module: nn.Module, folder: str, layer: int) -> None:
    """Give one of ffnbench's forms the weights of a layer of a model's folder, which
    the parent has read (models/published.py).
    """
    from ffnbench.models.published import layer_file

    state = torch.load(layer_file(folder, layer), weights_only=True)
    module.load_state_dict(state)


class FunctionModule(nn.Module):
    """A function as a module without parameters, for a target that gives a function in
    place of a module, such as a runtime of the user's own.
    """

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def build_imported_module(spec: ImportedSpec) -> nn.Module:
    """Build a module from code of the user's, on the device and in the dtype that this
    code chooses. A lazy module makes its weights now, by a call with one token.
    """
    built = build_imported(spec)
    module = built if isinstance(built, nn.Module) else FunctionModule(built)
    lazy = [
        tensor
        for tensor in (*module.parameters(), *module.buffers())
        if is_lazy(tensor)
    ]
    if lazy:
        token = torch.zeros(
            1, 1, spec.d_model, device=lazy[0].device, dtype=lazy[0].dtype
        )
        with torch.no_grad():
            module.eval()(token)
        module.train()
    return module


def module_for_backend(module: nn.Module, ffn: AnySpec, backend: Backend) -> nn.Module:
    """The module that a backend runs in place of this one, with the same weights: a
    runtime runs the form that code of the user's is said to be. Raises Unsupported
    where that code does not compute the same.
    """
    if not (BACKENDS[backend].is_runtime and isinstance(ffn, ImportedSpec)):
        return module
    from ffnbench.ffn.proof import nearest_proof, proof_of_like, tolerance_of

    assert ffn.like is not None
    try:
        proof = proof_of_like(module, ffn)
    except FfnbenchError as problem:
        raise Unsupported(problem.message) from problem
    if any(isinstance(part, nn.Dropout) and part.p for part in module.modules()):
        raise Unsupported(
            f"{ffn.target} has dropout, which {ffn.like.name} would leave out"
        )
    _, error = nearest_proof(module, [ffn.like])
    weight = next(module.parameters())
    if not error <= tolerance_of(weight.dtype):
        raise Unsupported(
            f"{ffn.target} is not like {ffn.like.name}: its output differs by {error:.1e}"
        )
    return proof.form_on({name: p.detach() for name, p in module.named_parameters()})


def why_no_onednn(dtype: torch.dtype | None = None) -> str:
    """Why oneDNN can't run here, or not in this dtype; "" if it can."""
    ops = torch.ops.mkldnn
    if not torch.backends.mkldnn.is_available():
        return "this torch is built without oneDNN"
    if not (
        hasattr(ops, "_linear_pointwise") and hasattr(ops, "_reorder_linear_weight")
    ):
        return f"torch {torch.__version__} does not offer oneDNN's linear layers for this processor"
    if dtype is torch.bfloat16 and not ops._is_mkldnn_bf16_supported():
        return "oneDNN has no bfloat16 products for this processor (it wants AVX-512 or AVX-NE-CONVERT)"
    has_float16 = getattr(ops, "_is_mkldnn_fp16_supported", None)
    if dtype is torch.float16 and not (has_float16 and has_float16()):
        return "oneDNN has no float16 products for this processor"
    if dtype is torch.float64:
        return "oneDNN has no float64 products"
    return ""

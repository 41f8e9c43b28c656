"""How a module is run: as it is written, or by one of the other backends. Runs in a worker; needs torch.

A backend may change the module once it is built (`changed`), and what is called in its place once its input is there
(`worker/jobs.py: prepare`).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ffnbench.backends import onednn
from ffnbench.backends.building import as_own
from ffnbench.backends.compiling import compiled_of, no_compiler
from ffnbench.errors import FfnbenchError, Unsupported
from ffnbench.ffn.like import output_of, relative_error, tolerance_of
from ffnbench.ffn.modules import reference_output
from ffnbench.ffn.packed import join
from ffnbench.ffn.spec import ImportedSpec
from ffnbench.plan import AnySpec, Backend, Workload

ORDERS = {Backend.PACKED.value: True, Backend.PACKED_UP_GATE.value: False}  # whether gate's rows are the first


def unavailable(backend: str, device: torch.device, dtype: torch.dtype | None = None) -> str:
    """Why a backend can't run on this machine; "" if it can, as far as a look tells."""
    if backend == Backend.COMPILE.value:
        return no_compiler(device)
    if backend == Backend.ONEDNN.value:
        return onednn.unavailable(dtype) if device.type == "cpu" else "oneDNN runs on the CPU alone"
    return ""


def changed(module: nn.Module, ffn: AnySpec, backend: str) -> nn.Module:
    """The module that a backend runs, with the same weights; raises Unsupported where its form lacks what it needs."""
    if backend not in ORDERS:
        return module
    if isinstance(ffn, ImportedSpec) and ffn.like is not None:
        module = _own(module, ffn)
    return join(module, gate_first=ORDERS[backend])


def _own(module: nn.Module, spec: ImportedSpec) -> nn.Module:
    """Our module on the weights of theirs; raises Unsupported where theirs does not compute the same."""
    weight = next(module.parameters(), torch.empty(0))
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 16, spec.d_model, generator=generator).to(weight.device, weight.dtype)
    try:
        ours = as_own(module, spec, x)
    except FfnbenchError as problem:
        raise Unsupported(problem.message) from problem
    assert ours is not None
    assert spec.like is not None
    if any(isinstance(part, nn.Dropout) and part.p for part in module.modules()):
        raise Unsupported(f"{spec.target} has dropout, which {spec.like.name} would leave out")
    error = relative_error(output_of(module, x.clone()), reference_output(ours, x))
    if not error <= tolerance_of(x.dtype):
        raise Unsupported(f"{spec.target} is not like {spec.like.name}: its output differs by {error:.1e}")
    return ours.requires_grad_()  # to be trained as any other


def forward_of(module: nn.Module, work: Workload, x: Tensor) -> Callable[[Tensor], Tensor]:
    """What is called in the module's place for inputs like x, where nothing is timed."""
    if work.compiled:
        return compiled_of(module, work)
    if work.backend == Backend.ONEDNN.value:
        onednn.pack(module, x)
    return module

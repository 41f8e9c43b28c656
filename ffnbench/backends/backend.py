"""How a module is run: as it is written, or by one of the other backends. Runs in a worker; needs torch.

A backend may change the module once it is built (`changed`), and what is called in its place once its input is there
(`prepare`). What that takes is told apart from what a call takes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ffnbench.backends import onednn
from ffnbench.backends.building import as_own
from ffnbench.backends.compiling import compile_now, compiled_of, no_compiler
from ffnbench.device.accelerator import Accelerator
from ffnbench.errors import FfnbenchError, Unsupported
from ffnbench.ffn.like import output_of, relative_error, tolerance_of
from ffnbench.ffn.modules import reference_output
from ffnbench.ffn.packed import join
from ffnbench.ffn.spec import ImportedSpec
from ffnbench.metrics import COMPILE, HELD, PACK
from ffnbench.plan import AnySpec, Backend, Workload

Facts = dict[str, Any]  # of an answer to `open`
ORDERS = {Backend.PACKED.value: True, Backend.PACKED_UP_GATE.value: False}  # whether gate's rows are the first


class Callee(Protocol):
    """What a backend makes ready: a module, its input, and how it is called (worker/meters.py has it)."""

    module: nn.Module
    x: Tensor
    run: Callable[[Tensor], Tensor] | None
    accelerator: Accelerator | None

    def call(self) -> Tensor:
        """One call as it is timed."""


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
    if isinstance(ffn, ImportedSpec) and ffn.ours is not None:
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
    if spec.like is not None:
        if any(isinstance(part, nn.Dropout) and part.p for part in module.modules()):
            raise Unsupported(f"{spec.target} has dropout, which {spec.like.name} would leave out")
        error = relative_error(output_of(module, x.clone()), reference_output(ours, x))
        if not error <= tolerance_of(x.dtype):
            raise Unsupported(f"{spec.target} is not like {spec.like.name}: its output differs by {error:.1e}")
    return ours.requires_grad_()  # to be trained as any other


def prepare(subject: Callee, work: Workload) -> Facts:
    """Make a subject ready to be called by its backend, and say what that took: seconds to compile or to pack, and
    the bytes of the weights that a call computes with. Raises Unsupported where it can't be run so.
    """
    weights = sum(parameter.nbytes for parameter in subject.module.parameters())
    if work.compiled:
        subject.run = compiled_of(subject.module, work)
        seconds, graphs = compile_now(subject.call, subject.x.device, subject.accelerator, freeze=work.freeze)
        # frozen weights are constants in layouts of the compiler's own
        return {COMPILE: seconds, "graphs": graphs, HELD: None if work.freeze else weights}
    if work.backend == Backend.ONEDNN.value:
        packed = onednn.pack(subject.module, subject.x.detach())
        called = f"{packed.layers - packed.unused} of {packed.layers} linear layers"
        unused = f"oneDNN runs {called}: the others are not called as modules"
        return {PACK: packed.seconds, HELD: packed.bytes, "notes": [unused] if packed.unused else []}
    return {HELD: weights}


def forward_of(module: nn.Module, work: Workload, x: Tensor) -> Callable[[Tensor], Tensor]:
    """What is called in the module's place for inputs like x, where nothing is timed."""
    if work.compiled:
        return compiled_of(module, work)
    if work.backend == Backend.ONEDNN.value:
        onednn.pack(module, x)
    return module

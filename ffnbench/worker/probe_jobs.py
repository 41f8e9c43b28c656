"""The jobs that need no plan: what a target, a device or a backend is, and how
many parameters and FLOPs a module has, which is counted by running it. In a worker.

A module is run with all tokens of its workload, since one that mixes tokens takes more
FLOPs for each, the more there are. It runs on the meta device, where tensors have
shapes and no data, so that one of 100 B parameters is counted in a moment. A module
that can't run without data runs on the device that it is measured on, since some
kernels run nowhere else, or on the CPU. Operations that torch's counter does not know
are named, and so are kernels of Triton, so that a fused kernel never counts as free.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from ffnbench.common.choices import Weights
from ffnbench.common.errors import FfnbenchError, Unsupported
from ffnbench.common.targets import one_line, resolve
from ffnbench.device.environment import about_device, accelerator_of, resolved_device
from ffnbench.ffn.activations import OwnActivation
from ffnbench.ffn.cost import RAISED, Cost
from ffnbench.ffn.imported import D_FF_NAMES, as_activation
from ffnbench.ffn.spec import FFNSpec, ImportedSpec
from ffnbench.plan.plan import Plan, Probe, Workload
from ffnbench.record.messages import DeviceFacts
from ffnbench.record.result import Timer
from ffnbench.worker.backends.building import DRAWN_MODULES, build_imported_module, draw
from ffnbench.worker.timing import empty_call

if TYPE_CHECKING:
    from ffnbench.device.accelerator import Accelerator

META = "torch's meta device"
UNNAMED = "kernels outside torch's dispatcher"
# operations that only move, make or look at data, or whose arithmetic is not counted
BOOKKEEPING = frozenset(
    {
        "clone",
        "copy_",
        "_to_copy",
        "detach",
        "empty",
        "empty_like",
        "zeros",
        "zeros_like",
        "ones",
        "ones_like",
        "full",
        "new_empty",
        "new_zeros",
        "cat",
        "stack",
        "contiguous",
        "bernoulli_",
        "native_dropout",
        "native_dropout_backward",
        "sum",
        "mean",
        "amax",
        "index_select",
        "scalar_tensor",
        "lift_fresh",
        "_unsafe_view",
        "fill_",
        "new_empty_strided",
        "_local_scalar_dense",
        "native_layer_norm",
        "native_layer_norm_backward",
        "_softmax",
        "_softmax_backward_data",
        "arange",
        "set_",
        "new_ones",
        "new_full",
        "full_like",
        "empty_strided",
        "split",
        "split_with_sizes",
        "_fused_rms_norm",
    }
)


class _UncountedOperations(TorchDispatchMode):
    """A context that collects in `unknown` the operations that are neither counted by
    torch, nor element-wise, nor bookkeeping, and the kernels that Triton launches.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.unknown: dict[str, None] = {}  # their names, in order
        # the class whose `run` launches every kernel that is written in Triton
        self._triton = getattr(
            getattr(sys.modules.get("triton"), "runtime", None), "JITFunction", None
        )
        self._launch = getattr(self._triton, "run", None)

    def __enter__(self) -> _UncountedOperations:
        if self._triton is not None:
            self._triton.run = lambda *args, **named: self._launched(*args, **named)
        super().__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        if self._triton is not None:
            self._triton.run = self._launch

    def _launched(self, kernel: Any, *args: Any, **named: Any) -> Any:
        if not named.get("warmup"):
            name = getattr(getattr(kernel, "fn", kernel), "__name__", "without a name")
            self.unknown[f"the Triton kernel {name}"] = None
        assert self._launch is not None
        return self._launch(kernel, *args, **named)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        # an operator of higher order: a kernel of Triton, an attention
        if not isinstance(func, torch._ops.OpOverload):
            if func not in flop_registry:
                self.unknown[str(func)] = None
            return func(*args, **(kwargs or {}))
        packet = func._overloadpacket
        name = packet.__name__
        is_counted = packet in flop_registry
        is_elementwise = torch.Tag.pointwise in func.tags
        is_bookkeeping = (
            func.is_view or name in BOOKKEEPING or name.endswith("_backward")
        )
        if not (is_counted or is_elementwise or is_bookkeeping):
            self.unknown[str(packet)] = None
        return func(*args, **(kwargs or {}))


def count(spec: ImportedSpec, workload: Workload) -> Cost:
    """The cost of a user's module, whose parameters and FLOPs are counted. Raises
    FfnbenchError where it can't be built, or its output has another shape than its
    input.
    """
    module, flops = _counted_by_running(spec, workload)
    module = module.to(dtype=getattr(torch, workload.dtype))
    parameters = list(module.parameters())
    total = sum(parameter.numel() for parameter in parameters)
    weight_bytes = sum(parameter.nbytes for parameter in parameters)
    unquantised: tuple[str, ...] = ()
    if workload.weights is not Weights.NONE:
        from ffnbench.worker.backends.quantised import bytes_held, matrices_left

        weight_bytes, unquantised = bytes_held(module, workload), matrices_left(module)
    return Cost(
        params=total,
        params_active=total,
        params_formula=None,
        flops_forward=flops.forward,
        flops_backward=flops.backward,
        flops_elementwise=None,
        weight_bytes=weight_bytes,
        counted=True,
        counted_how=flops.how,
        uncounted=flops.uncounted,
        width_note=width_note(spec, [tuple(p.shape) for p in parameters]),
        role_note=role_note(module, spec),
        unquantised=unquantised,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Flops:
    """FLOPs of the matrix products for a token, None where they are not known or there
    is no backward. `uncounted` names operations and kernels that were not counted, and
    `how` says how it was counted.
    """

    forward: int | None = None
    backward: int | None = None
    uncounted: tuple[str, ...] = ()
    how: str


def _counted_by_running(
    spec: ImportedSpec, workload: Workload
) -> tuple[nn.Module, Flops]:
    """Run the module on one device after the other until it can be counted. Return the
    module, and its FLOPs, with the reason in `how` where they could not be counted.
    """
    why = ""
    for device, accelerator in _devices_to_try(workload):
        try:
            if accelerator is not None:
                accelerator.make_current()
            with torch.device(device):
                module = build_imported_module(spec)
        except Exception as problem:
            # the constructor may look at data; one that is wrong fails on the CPU too
            if device.type == "cpu" and accelerator is None:
                raise
            why = one_line(problem)
            continue
        try:
            flops = _run(module, spec, device, workload)
        except FfnbenchError:
            raise
        except Exception as problem:
            # code that depends on data, a kernel that does not run on this device, or a
            # bug
            why = one_line(problem)
            continue
        if flops.forward or not any(weight.dim() > 1 for weight in module.parameters()):
            return module, flops
        # on the meta device another function stands in for a kernel: try the next one
        if device.type != "meta":
            none = "not counted: torch saw no matrix product"
            return module, Flops(uncounted=(*flops.uncounted, UNNAMED), how=none)
    return module, Flops(how=f"{RAISED} {why}")


def _devices_to_try(
    workload: Workload,
) -> Iterator[tuple[torch.device, Accelerator | None]]:
    """The devices on which a module is tried, each with its accelerator."""
    yield torch.device("meta"), None
    accelerator = accelerator_of(resolved_device(workload.device))
    if accelerator is not None:
        yield accelerator.device, accelerator
    yield torch.device("cpu"), None


def _run(
    module: nn.Module,
    spec: ImportedSpec,
    device: torch.device,
    workload: Workload,
) -> Flops:
    dtype = torch.float32
    if device.type != "cpu":
        dtype = getattr(torch, workload.dtype)
    shape = (workload.batch, workload.seq_len, spec.d_model)
    x = torch.randn(shape, device=device, dtype=dtype, requires_grad=True)
    module = module.to(dtype=dtype).train(workload.train)
    backward, tokens = None, workload.tokens
    with (
        _UncountedOperations() as operations,
        FlopCounterMode(display=False) as counter,
    ):
        y = module(x)
        check_output(y, x, spec.target)
        forward = counter.get_total_flops()
        if y.requires_grad:
            try:
                y.sum().backward()
                backward = (counter.get_total_flops() - forward) // tokens
            except RuntimeError:  # such as of a result that was changed in place
                if workload.train:
                    raise
    input_ = META if device.type == "meta" else f"{tokens:,} tokens"
    return Flops(
        forward=forward // tokens,
        backward=backward,
        uncounted=tuple(operations.unknown),
        how=f"counted by running it on {input_}",
    )


def check_output(y: object, x: Tensor, name: str) -> None:
    """Raise Unsupported unless the output `y` is a tensor of the shape and dtype of the
    input x, as that of an FFN is.
    """
    if not isinstance(y, Tensor):
        raise Unsupported(
            f"{name} returns {type(y).__name__}, not a tensor",
            "end forward with `return y`, the hidden states alone",
        )
    if y.shape != x.shape:
        raise Unsupported(
            f"{name} returns shape {tuple(y.shape)} for an input of {tuple(x.shape)}",
            "an FFN keeps the shape (batch, seq_len, d_model)",
        )
    if y.dtype != x.dtype:
        raise Unsupported(
            f"{name} returns {y.dtype} for an input of {x.dtype}",
            "cast the result back inside the module",
        )


def role_note(module: nn.Module, spec: ImportedSpec) -> str:
    """A sentence where the name of a weight contradicts its role in the form that
    `@like` names; an empty string where it does not, and where nothing is proven.
    """
    if spec.like is None:
        return ""
    from ffnbench.ffn.proof import proof_of_like

    try:
        return proof_of_like(module, spec).contradiction
    except Exception:  # said when it is measured
        return ""


def width_note(spec: ImportedSpec, shapes: list[tuple[int, ...]]) -> str:
    """A sentence on the width of a module whose matrices are not d_ff wide, an empty
    string where they are. `shapes` are those of its parameters.
    """
    for key, value in spec.arguments:
        if key in D_FF_NAMES:
            return f"its width is set by @{key}={value}"
    sizes = {size for shape in shapes if len(shape) >= 2 for size in shape[-2:]}
    widths, asked = sorted(sizes - {spec.d_model}), spec.d_ff
    if not widths or asked == spec.d_model:
        return ""
    if asked in widths:
        if asked % 2 == 0 and asked // 2 in widths:
            return f"reads d_ff {asked:,} as the packed width: each branch is {asked // 2:,} wide"
        return ""
    return f"was given d_ff {asked:,} and has matrices {', '.join(f'{w:,}' for w in widths[:3])} wide"


def describe(target: str) -> OwnActivation | None:
    """What a function declares as an activation, None for any other target. Raises
    FfnbenchError where it does not behave like an activation.
    """
    function = resolve(target)
    activation = as_activation(function, target)
    if activation is not None:
        from ffnbench.worker.activation_jobs import check_function

        check_function(function, target)
    return activation


class InProcess(Probe):
    """A plan's probe in this very process, for `ffnbench.build`."""

    def describe(self, target: str) -> OwnActivation | None:
        """What a function declares as an activation."""
        return describe(target)

    def count(self, spec: ImportedSpec, workload: Workload) -> Cost:
        """Parameters and FLOPs of a module."""
        return count(spec, workload)


def timer() -> Timer:
    """The seconds that measuring a call itself takes."""
    return Timer(empty_call_s=empty_call())


def device(name: str, label: str = "") -> DeviceFacts:
    """What a GPU is. `label` is a case that uses it, by whose arm a worker is found."""
    return about_device(name)


def preload(plan: Plan, draws: bool) -> None:
    """Prepare what the children of a starter will need for a plan: import code of the
    user's, and the compiler where it is used, and draw the weights of ffnbench's own
    forms on the CPU if it `draws` them. An import that fails is reported by the case
    that needs it.
    """
    DRAWN_MODULES.clear()
    for case in plan.cases:
        if isinstance(case.ffn, ImportedSpec):
            with suppress(Exception, SystemExit):
                resolve(case.ffn.target)
            continue
        if draws and isinstance(case.ffn, FFNSpec) and case.workload.device == "cpu":
            draw(case, plan.protocol.seed)
    if any(case.workload.compiled for case in plan.cases):
        for name in ("torch._dynamo", "torch._inductor.compile_fx"):
            with suppress(ImportError):
                import_module(name)

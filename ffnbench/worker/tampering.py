"""What a process was like before code of the user's was loaded: clocks and functions that measuring depends on, modes,
hooks, classes of parameters. What a module puts in their place is found here, put back, and told. Needs torch.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import reduce
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.overrides import _get_current_function_mode_stack, _pop_mode
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from torch.utils._python_dispatch import _pop_mode as _pop_dispatch_mode

PACKAGE = __name__.partition(".")[0]
CLOCKS = ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns", "process_time")
TORCH = {
    "torch": (
        "mul", "randint", "empty", "equal", "inference_mode", "matmul", "mm", "bmm", "addmm", "sigmoid", "tanh",
        "get_num_threads", "set_num_threads",
    ),
    "torch.Tensor": (
        "clone", "copy_", "set_", "backward", "data_ptr", "matmul", "mm", "__matmul__", "norm", "equal", "double",
    ),
    "torch.nn.functional": ("linear", "silu", "gelu", "relu", "sigmoid", "tanh", "softmax", "softplus", "dropout"),
    "torch.nn.Linear": ("forward",),
    "torch.nn.Module": ("__call__",),
    "torch.cuda": ("Event", "synchronize", "current_stream", "CUDAGraph", "Stream", "stream", "_sleep"),
    "torch.cuda.Event": ("record", "elapsed_time"),
    "torch.cuda.CUDAGraph": ("capture_begin", "capture_end", "replay"),
}  # fmt: skip
HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")  # of one module
GLOBAL_HOOKS = [
    value for name, value in vars(nn.modules.module).items() if name.startswith("_global_") and isinstance(value, dict)
]
Mode = tuple[str, Callable[[], list[Any]], Callable[[], Any]]
MODES: tuple[Mode, ...] = (
    ("the function modes of torch", _get_current_function_mode_stack, _pop_mode),
    ("the dispatch modes of torch", _get_current_dispatch_mode_stack, _pop_dispatch_mode),
)
Attribute = tuple[str, Any, str, Any]  # what it is called, its owner, its name there, and what it was
Hooks = tuple[str, dict[Any, Any], dict[Any, Any]]  # whose they are, where they stand, and what stood there


class Originals:
    """Remembers them when it is made; `replaced` tells what has another one in its place since."""

    def __init__(self) -> None:
        owners: list[tuple[str, Any, str]] = [("time", time, name) for name in CLOCKS]
        for path, names in TORCH.items():
            owner = reduce(getattr, path.split(".")[1:], torch)
            owners += [(path, owner, name) for name in names]
        clocks = {getattr(time, name) for name in (*CLOCKS, "sleep")}
        owners += [
            (path, module, name)
            for path, module in list(sys.modules.items())
            if path.partition(".")[0] == PACKAGE
            for name, value in vars(module).items()
            if isinstance(value, type(time.time)) and value in clocks
        ]
        functions = [(f"{path}.{name}", owner, name, getattr(owner, name)) for path, owner, name in owners]
        self._kept: dict[str, list[Attribute]] = {"": functions}  # by case
        self._modes = {name: len(_foreign(stack())) for name, stack, _ in MODES}
        self._hooks: dict[str, list[Hooks]] = {"": [("all modules", one, dict(one)) for one in GLOBAL_HOOKS]}

    def keep(self, label: str, module: nn.Module) -> None:
        """Remember the classes of a case's parameters, and the hooks of its modules; its first call is over."""
        named = module.named_parameters()
        self._kept[label] = [(f"the class of {label}'s {name}", p, "__class__", type(p)) for name, p in named]
        every = (getattr(part, name) for part in module.modules() for name in HOOKS)
        self._hooks[label] = [(label, one, dict(one)) for one in every]

    def forget(self, label: str) -> None:
        """Let go of a case's parameters."""
        self._kept.pop(label, None)
        self._hooks.pop(label, None)

    def replaced(self) -> str:
        """The name of one that is not what it was, "" where there is none; all are put back."""
        found = ""
        for shown, owner, name, original in chain.from_iterable(self._kept.values()):
            if getattr(owner, name, None) is not original:
                setattr(owner, name, original)
                found = found or shown
        for shown, stack, pop in MODES:
            while len(_foreign(stack())) > self._modes[shown]:
                pop()
                found = found or shown
        for whose, hooks, before in chain.from_iterable(self._hooks.values()):
            if hooks != before:
                hooks.clear()
                hooks.update(before)
                found = found or f"the hooks of {whose}"
        return found


def _foreign(stack: list[Any]) -> list[Any]:
    """The modes but for that of torch.set_default_device."""
    return [mode for mode in stack if not isinstance(mode, DeviceContext)]

"""What a process was like before code of the user's was loaded: clocks and functions that measuring depends on, modes,
hooks, classes of parameters. What a module puts in their place is found here, put back, and told. Needs torch.
"""

from __future__ import annotations

import sys
import time
from functools import reduce
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.overrides import _get_current_function_mode_stack, _pop_mode
from torch.utils._device import DeviceContext

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
HOOKS = [
    value for name, value in vars(nn.modules.module).items() if name.startswith("_global_") and isinstance(value, dict)
]
Attribute = tuple[str, Any, str, Any]  # what it is called, its owner, its name there, and what it was


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
        self._modes = len(_modes())
        self._hooks = [dict(one) for one in HOOKS]

    def keep(self, label: str, module: nn.Module) -> None:
        """Remember the classes of a case's parameters."""
        named = module.named_parameters()
        self._kept[label] = [(f"the class of {label}'s {name}", p, "__class__", type(p)) for name, p in named]

    def forget(self, label: str) -> None:
        """Let go of a case's parameters."""
        self._kept.pop(label, None)

    def replaced(self) -> str:
        """The name of one that is not what it was, "" where there is none; all are put back."""
        found = ""
        for shown, owner, name, original in chain.from_iterable(self._kept.values()):
            if getattr(owner, name, None) is not original:
                setattr(owner, name, original)
                found = found or shown
        while len(_modes()) > self._modes:
            _pop_mode()
            found = found or "the function modes of torch"
        for hooks, before in zip(HOOKS, self._hooks, strict=True):
            if hooks != before:
                hooks.clear()
                hooks.update(before)
                found = found or "the hooks of all modules"
        return found


def _modes() -> list[Any]:
    """The function modes but for that of torch.set_default_device."""
    return [mode for mode in _get_current_function_mode_stack() if not isinstance(mode, DeviceContext)]

"""Clocks and functions that measuring depends on, as they were before code of the user's was loaded.

The names that this package has imported are its own; what a module puts in their place is found here, put back, and
told. Standard library only, but for torch's own names where torch is loaded.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

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


class Originals:
    """Remembers them when it is made; `replaced` tells what has another one in its place since."""

    def __init__(self) -> None:
        owners: list[tuple[str, Any, str]] = [("time", time, name) for name in CLOCKS]
        if torch := sys.modules.get("torch"):
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
        self._kept = [(f"{path}.{name}", owner, name, getattr(owner, name)) for path, owner, name in owners]

    def replaced(self) -> str:
        """The name of one that is not what it was, "" where there is none; all are put back."""
        found = ""
        for shown, owner, name, original in self._kept:
            if getattr(owner, name, None) is not original:
                setattr(owner, name, original)
                found = found or shown
        return found


BURNS = 0.5  # CPUs while nothing is called: that is work, and no thread that looks whether there is any
APART_S, APART = 0.003, 0.15  # of an answer's way, and of its time, at most
FEWEST, TESTS = 3, 3


@dataclass(slots=True)
class ClockWatch:
    """The parent's clock beside that of a worker: what an answer says that it took, and when it came."""

    _apart: dict[str, list[bool]] = field(default_factory=lambda: defaultdict(list))

    def add(self, label: str, timed_s: float, answer: dict[str, Any]) -> None:
        """One sample; nothing is noted where the parent's clock was not read."""
        if "asked_s" in answer and "beside_s" in answer:
            self._apart[label].append(_apart(answer["asked_s"], timed_s + answer["beside_s"]))

    def disagree(self, label: str) -> bool:
        """Whether they did in every sample: a machine that is busy delays some answers, and not all."""
        seen = self._apart[label]
        return len(seen) >= FEWEST and all(seen)

    def test(self, tick: Callable[[], dict[str, Any]]) -> str:
        """Why a worker's clock is wrong, by waiting with it a few times; "" where one time it is right."""
        said = asked = 0.0
        for _ in range(TESTS):
            answer = tick()
            if "asked_s" not in answer:  # it could not wait
                return ""
            said, asked = answer["seconds"], answer["asked_s"]
            if not _apart(asked, said):
                return ""
        return f"clocks disagree: its process says {said:.2f} s, and {asked:.2f} s have passed"


def _apart(asked_s: float, said_s: float) -> bool:
    return abs(asked_s - said_s) > APART_S + APART * asked_s

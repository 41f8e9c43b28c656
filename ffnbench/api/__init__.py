"""What does a command do? A few short sentences each, for the terminal and for Python; the only room that joins rooms.

    compare      show(measure(plan of the request))
    block        show(measure(plan of the request))
    time         show(measure(plan of the request))

A request is planned and priced with the help of a prober, which looks at code of the user's; it is measured into a
report; an `OutputSink` shows it. A file is loaded when a command of it is called.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ffnbench.api.measuring import measure, measured_once
    from ffnbench.api.preparing import Prepared, prepare
    from ffnbench.api.saved import load, report
    from ffnbench.api.this_machine import backends, environment
    from ffnbench.api.variants import block, build, compare, cost, time_activations

__all__ = [
    "Prepared", "backends", "block", "build", "compare", "cost", "environment", "load", "measure",
    "measured_once", "prepare", "report", "time_activations",
]  # fmt: skip
_ELSEWHERE = {
    "measuring": ("measure", "measured_once"),
    "preparing": ("Prepared", "prepare"),
    "saved": ("load", "report"),
    "this_machine": ("backends", "environment"),
}  # all others are in variants.py


def __getattr__(name: str) -> Any:
    """A command, from its file, which is loaded now."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    file = next((file for file, names in _ELSEWHERE.items() if name in names), "variants")
    return getattr(import_module(f"ffnbench.api.{file}"), name)

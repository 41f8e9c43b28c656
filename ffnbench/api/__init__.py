"""What does a command do? A few short sentences each, for the terminal and for Python; the only room that joins rooms.

    compare      show(measure(plan of the request))
    block        show(measure(plan of the request))
    time         show(measure(plan of the request))
    check        show(decide(the baseline's plan, measured again))
    ab           show(decide(both sides in one plan, measured))
    bisect       ab, commit after commit

A request is planned and priced with the help of a prober, which looks at code of the user's; it is measured into a
report; an `OutputSink` shows it. A file is loaded when a command of it is called.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ffnbench.api.bisecting import bisect
    from ffnbench.api.checks import ab, check
    from ffnbench.api.inspection import draw_activations, facts, inspect, inspect_whole, plot_activations
    from ffnbench.api.measuring import measure, measured_once
    from ffnbench.api.preparing import Prepared, prepare
    from ffnbench.api.saved import history, load, plot, report, reports
    from ffnbench.api.this_machine import backends, environment, selftest
    from ffnbench.api.variants import block, build, compare, cost, time_activations, whole_model

__all__ = [
    "Prepared", "ab", "backends", "bisect", "block", "build", "check", "compare", "cost", "draw_activations",
    "environment", "facts", "history", "inspect", "inspect_whole", "load", "measure",
    "measured_once", "plot", "plot_activations", "prepare", "report", "reports", "selftest", "time_activations",
    "whole_model",
]  # fmt: skip
_ELSEWHERE = {
    "bisecting": ("bisect",),
    "checks": ("ab", "check"),
    "inspection": ("draw_activations", "facts", "inspect", "inspect_whole", "plot_activations"),
    "measuring": ("measure", "measured_once"),
    "preparing": ("Prepared", "prepare"),
    "saved": ("history", "load", "plot", "report", "reports"),
    "this_machine": ("backends", "environment", "selftest"),
}  # all others are in variants.py


def __getattr__(name: str) -> Any:
    """A command, from its file, which is loaded now."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    file = next((file for file, names in _ELSEWHERE.items() if name in names), "variants")
    return getattr(import_module(f"ffnbench.api.{file}"), name)

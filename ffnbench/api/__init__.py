"""What does a command do? A few short sentences each, for the terminal and for Python; the only room that joins rooms.

    compare      show(measure(plan of the request))
    block        show(measure(plan of the request))
    time         show(measure(plan of the request))
    check        show(decide(the baseline's plan, measured again))
    ab           show(decide(both sides in one plan, measured))

A request is planned and priced with the help of a prober, which looks at code of the user's; it is measured into a
report; an `OutputSink` shows it. A file is loaded when a command of it is called.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_WHERE = {
    "variants": ("compare", "cost", "block", "time_activations", "report", "reports", "load", "build", "selftest",
                "whole_model"),
    "this_machine": ("environment", "backends"),
    "checks": ("check", "ab"),
    "inspection": ("inspect", "inspect_whole", "facts", "plot_activations", "draw_activations"),
    "measuring": ("measure", "measured_once"),
    "preparing": ("prepare", "Prepared"),
}  # fmt: skip


def __getattr__(name: str) -> Any:
    for file, names in _WHERE.items():
        if name in names:
            return getattr(import_module(f"ffnbench.api.{file}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

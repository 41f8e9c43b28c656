"""ffnbench builds any Transformer feed-forward network from flags, counts it exactly
and measures it honestly.

Importing this package imports nothing heavy: the names below load on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ffnbench.activations.python import (
        activations,
        plot_activations,
        time_activations,
    )
    from ffnbench.block.python import block
    from ffnbench.common.errors import FfnbenchError as Error
    from ffnbench.compare.python import compare, cost
    from ffnbench.ffn.imported import activation
    from ffnbench.ffn.spec import FFNSpec
    from ffnbench.gate.python import ab, check
    from ffnbench.gate.shown_check import ShownCheck as Check
    from ffnbench.inspecting.python import inspect
    from ffnbench.python.build_and_load import build, load
    from ffnbench.report.shown_report import Answer
    from ffnbench.report.shown_report import ShownReport as Report

__version__ = "0.2.0"
__all__ = [
    "Answer",
    "Check",
    "Error",
    "FFNSpec",
    "Report",
    "__version__",
    "ab",
    "activation",
    "activations",
    "block",
    "build",
    "check",
    "compare",
    "cost",
    "inspect",
    "load",
    "plot_activations",
    "time_activations",
]
_HOMES = {
    "Answer": ("report.shown_report", "Answer"),
    "Check": ("gate.shown_check", "ShownCheck"),
    "Error": ("common.errors", "FfnbenchError"),
    "FFNSpec": ("ffn.spec", "FFNSpec"),
    "Report": ("report.shown_report", "ShownReport"),
    "activation": ("ffn.imported", "activation"),
    **{name: ("python.build_and_load", name) for name in ("build", "load")},
    **{name: ("compare.python", name) for name in ("compare", "cost")},
    **{name: ("gate.python", name) for name in ("ab", "check")},
    **{
        name: ("activations.python", name)
        for name in ("activations", "plot_activations", "time_activations")
    },
    "block": ("block.python", "block"),
    "inspect": ("inspecting.python", "inspect"),
}

# an import of a room sets its name here: done now and removed again, it does not
# replace the function of that name later
for _room in ("activations", "block", "compare"):
    import_module(f"ffnbench.{_room}")
    del globals()[_room]


def __getattr__(name: str) -> Any:
    """Load a public name on first use (PEP 562)."""
    if name in _HOMES:
        home, there = _HOMES[name]
        return getattr(import_module(f"ffnbench.{home}"), there)
    raise AttributeError(
        f"module 'ffnbench' has no attribute {name!r}",
        name=name,
        obj=import_module(__name__),
    )


def __dir__() -> list[str]:
    return sorted(__all__)

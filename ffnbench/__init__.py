"""ffnbench builds any Transformer feed-forward network from flags, counts it exactly
and measures it honestly.

Importing this package imports nothing heavy: the names below load on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ffnbench.app.commands import (
        ab,
        activations,
        block,
        check,
        compare,
        cost,
        inspect,
        plot_activations,
    )
    from ffnbench.app.python import build, load
    from ffnbench.common.errors import FfnbenchError as Error
    from ffnbench.ffn.imported import activation
    from ffnbench.ffn.spec import FFNSpec
    from ffnbench.gate.shown_check import ShownCheck as Check
    from ffnbench.report.answer import Answer
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
]
_HOMES = {
    "Answer": ("report.answer", "Answer"),
    "Check": ("gate.shown_check", "ShownCheck"),
    "Error": ("common.errors", "FfnbenchError"),
    "FFNSpec": ("ffn.spec", "FFNSpec"),
    "Report": ("report.shown_report", "ShownReport"),
    "activation": ("ffn.imported", "activation"),
    "build": ("app.python", "build"),
    "load": ("app.python", "load"),
    "inspect": ("app.python", "inspect_"),
    **{
        name: ("app.python", name)
        for name in (
            "ab",
            "activations",
            "block",
            "check",
            "compare",
            "cost",
            "plot_activations",
        )
    },
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

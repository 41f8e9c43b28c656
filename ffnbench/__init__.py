"""ffnbench builds any Transformer feed-forward network from flags, counts it exactly and measures it honestly.

Importing this package imports nothing heavy: the names below load on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ffnbench.version import __version__

__all__ = ["FFNSpec", "Report", "__version__", "activation", "build", "compare", "cost", "load"]

if TYPE_CHECKING:
    from ffnbench.activations.user_activation import activation
    from ffnbench.api import build, compare, cost, load
    from ffnbench.ffn.spec import FFNSpec
    from ffnbench.result import Report

_HOMES = {
    "activation": "activations.user_activation",
    "build": "api",
    "compare": "api",
    "cost": "api",
    "load": "api",
    "FFNSpec": "ffn.spec",
    "Report": "result",
}


def __getattr__(name: str) -> Any:
    """Load a public name on first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'ffnbench' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"ffnbench.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)

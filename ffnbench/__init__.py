"""ffnbench builds any Transformer feed-forward network from flags, counts it exactly and measures it honestly.

Importing this package imports nothing heavy: the names below load on first use. Their types stand in `__init__.pyi`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from ffnbench.python import CALLS

__version__ = "0.2.0"
_HOMES = {
    "Answer": ("report.answers", "Answer"),
    "Check": ("gate.shown", "ShownCheck"),
    "Error": ("errors", "FfnbenchError"),
    "FFNSpec": ("ffn.spec", "FFNSpec"),
    "Report": ("report.shown_report", "ShownReport"),
    "activation": ("ffn.user_activation", "activation"),
}


class _Window(ModuleType):
    """Some functions have the name of a room: importing the room must not put it in the function's place."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in CALLS and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Window


def __getattr__(name: str) -> Any:
    """Load a public name on first use (PEP 562)."""
    if name in CALLS:
        return getattr(import_module(f"ffnbench.{CALLS[name]}"), name)
    if name in _HOMES:
        home, there = _HOMES[name]
        return getattr(import_module(f"ffnbench.{home}"), there)
    if name == "__all__":
        return __dir__()
    if not name.startswith("_") and find_spec(f"ffnbench.{name}") is None:  # a room, which is about to be imported
        feature = import_module("ffnbench.features").calls().get(name)
        if feature is not None:
            return getattr(feature.file("python"), name)
    raise AttributeError(f"module 'ffnbench' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(["__version__", *_HOMES, *CALLS, *import_module("ffnbench.features").calls()])

"""How an answer is shown and written, and what becomes of it: what every command but a question of its own takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ffnbench.request import Texts


@dataclass(frozen=True, kw_only=True)
class Output:
    """How an answer is shown and written. `defaults` are what a reader should know of those that a file has set;
    `measure` is what a feature measures with in place of the core.
    """

    format: str = "table"
    json: bool = False
    verbose: bool = False
    columns: Texts = ""
    sort: str = ""
    out: tuple[str, ...] = ()
    quiet: bool = False
    wait: bool = False
    resume: bool = False
    on_unclear: str = "pass"
    update: bool = False
    append: bool = False
    defaults: tuple[str, ...] = ()
    measure: Callable[..., Any] | None = None

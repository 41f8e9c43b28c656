"""What can be asked of models."""

from __future__ import annotations

from dataclasses import dataclass

from ffnbench.request import Request


@dataclass(frozen=True, kw_only=True)
class InspectRequest(Request):
    """`ffnbench inspect`."""

    PLACED = ("model",)

    model: str = ""
    whole_model: bool = False
    length: int | None = None
    dtype: str = "float32"

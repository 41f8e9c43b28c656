"""What can be asked of what variants learn."""

from __future__ import annotations

from dataclasses import dataclass

from ffnbench.request import AddedRequest, Seconds, Texts


@dataclass(frozen=True, kw_only=True)
class TrainRequest(AddedRequest):
    """`ffnbench train`."""

    COMMAND = "train"

    d_model: int | None = None
    layers: int = 3
    context: int = 128
    batch: int = 24
    dtype: str = "float32"
    steps: int = 800
    seeds: int = 3
    lr: Texts = "3e-3"
    text: str | None = None
    budget: Seconds | None = None

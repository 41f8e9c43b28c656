"""Jobs of a worker: a model as transformers builds it, counted."""

from __future__ import annotations

from typing import Any

from ffnbench import jsonable
from ffnbench.extras.models.transformers import count_layers, count_whole


def hf_layers(source: str) -> dict[str, Any]:
    """Job: the FFNs of a model as transformers builds it."""
    return {"model": jsonable.encode(count_layers(source))}


def hf_whole(source: str) -> dict[str, Any]:
    """Job: all parameters of a model as transformers builds it."""
    return {"model": jsonable.encode(count_whole(source))}

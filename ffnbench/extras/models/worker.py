"""What a worker does for `inspect`: a model is built by transformers, and counted."""

from __future__ import annotations

from typing import Any

from ffnbench.common import jsonable
from ffnbench.extras.models.transformers import count_layers, count_whole


def hf_layers(jobs: object, source: str) -> dict[str, Any]:
    """The FFNs of a model as transformers builds it."""
    return {"model": jsonable.encode(count_layers(source))}


def hf_whole(jobs: object, source: str) -> dict[str, Any]:
    """All parameters of a model as transformers builds it."""
    return {"model": jsonable.encode(count_whole(source))}


VERBS = {"hf_layers": hf_layers, "hf_whole": hf_whole}

"""What a worker does for `inspect`: a model is built by transformers, and counted."""

from __future__ import annotations

from ffnbench.extras.models.counting import CountedModel, WholeModel
from ffnbench.extras.models.messages import CountLayers, CountWhole
from ffnbench.extras.models.transformers import count_layers, count_whole


def layers(jobs: object, request: CountLayers) -> CountedModel:
    """The FFNs of a model as transformers builds it."""
    return count_layers(request.source)


def whole(jobs: object, request: CountWhole) -> WholeModel:
    """All parameters of a model as transformers builds it."""
    return count_whole(request.source)


HANDLERS = {"CountLayers": (CountLayers, layers), "CountWhole": (CountWhole, whole)}

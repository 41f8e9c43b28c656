"""What a worker does for `inspect`: have transformers build a model, and count it."""

from __future__ import annotations

from ffnbench.extras.models.counting import CountedModel, WholeModel
from ffnbench.extras.models.messages import CountLayers, CountWhole
from ffnbench.extras.models.transformers import count_layers, count_whole


def count_layers_of(jobs: object, request: CountLayers) -> CountedModel:
    """The FFNs of a model as transformers builds it."""
    return count_layers(request.source)


def count_whole_of(jobs: object, request: CountWhole) -> WholeModel:
    """All parameters of a model as transformers builds it."""
    return count_whole(request.source)


HANDLERS = {
    "CountLayers": (CountLayers, count_layers_of),
    "CountWhole": (CountWhole, count_whole_of),
}

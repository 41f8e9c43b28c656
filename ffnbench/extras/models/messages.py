"""What a worker is asked for `inspect`: to have transformers build a model, and to
count it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ffnbench.extras.models.counting import CountedModel, WholeModel
from ffnbench.messages import WorkerRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class CountLayers(WorkerRequest[CountedModel]):
    """Count the FFNs of the model of a config.json, whose path is `source`."""

    answer = CountedModel
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CountWhole(WorkerRequest[WholeModel]):
    """Count all parameters of the model of a config.json, whose path is `source`."""

    answer = WholeModel
    source: str

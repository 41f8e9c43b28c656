"""The features that the core does not need: a folder each, and a row here. None knows another.

To delete a feature is to delete its row, its folder, its folder of tests (tests/extras/NAME), its page of docs and its
script in benchmarks/.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ffnbench.features import Feature

if TYPE_CHECKING:  # what `ffnbench.train` and the like are, for editors
    from ffnbench.extras.estimate.python import estimate as estimate
    from ffnbench.extras.models.python import inspect as inspect
    from ffnbench.extras.selftest.python import selftest as selftest
    from ffnbench.extras.train.python import train as train

FEATURES = (
    Feature(name="bisect", commands=("bisect",)),
    Feature(name="cluster", measures=True),
    Feature(
        name="estimate", commands=("estimate",), calls=("estimate",), listings=("hardware",), completes=("hardware",)
    ),
    Feature(name="history", commands=("history",)),
    Feature(name="models", commands=("inspect",), calls=("inspect",), requests=("CountLayers", "CountWhole")),
    Feature(name="page", suffixes=(".html",)),
    Feature(name="selftest", commands=("selftest",), calls=("selftest",)),
    Feature(name="train", commands=("train",), calls=("train",), kinds=("train",), requests=("Train",)),
)

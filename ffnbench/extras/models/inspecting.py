"""What is in a model: its FFNs by kind of layer, or all its parameters, counted by the
table or by transformers.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from ffnbench.common.errors import FfnbenchError
from ffnbench.extras.models.by_length import InspectRequest, count_by_length
from ffnbench.extras.models.counting import CountedModel, WholeModel, count_model
from ffnbench.extras.models.counting import whole_model as whole_of
from ffnbench.extras.models.layers import layers_view
from ffnbench.extras.models.messages import CountLayers, CountWhole
from ffnbench.extras.models.table import model_view, parts_view
from ffnbench.messages import Failed, WorkerRequest
from ffnbench.models.family_reader import (
    ASK,
    INSTALL,
    TRANSFORMERS_NOT_INSTALLED,
    Unanswered,
)
from ffnbench.models.presets import config_path, model_of
from ffnbench.report.formats import View
from ffnbench.run.worker_process import COUNT_TIMEOUT_S, WorkerLost
from ffnbench.run.world import World

T = TypeVar("T", CountedModel, WholeModel)


def model_answer(request: InspectRequest, world: World) -> View:
    """The answer to a request."""
    if request.length is not None:
        return layers_view(count_by_length(request))
    if request.whole_model:
        return parts_view(inspect_whole(request.model, world))
    return model_view(inspect_model(request.model, world))


def inspect_model(name: str, world: World) -> CountedModel:
    """The FFNs of a preset or of a config.json in numbers; what is not known is counted
    by transformers.
    """
    try:
        return count_model(model_of(name))
    except Unanswered as problem:
        return _counted_or_raise(
            _by_transformers(CountLayers(source=source_of(name)), world), problem
        )


def inspect_whole(name: str, world: World) -> WholeModel:
    """All parameters of a preset or of a config.json by part; what the table does not
    know transformers counts.
    """
    try:
        model = whole_of(model_of(name))
    except Unanswered as problem:
        return _counted_or_raise(
            _by_transformers(CountWhole(source=source_of(name)), world), problem
        )
    if model.params is not None:
        return model
    counted = _by_transformers(CountWhole(source=source_of(name)), world)
    if isinstance(counted, str):  # why they can't help
        return replace(model, note="; ".join(filter(None, (model.note, counted))))
    return counted


def source_of(path: str) -> str:
    """The absolute path of a config.json."""
    return str(Path(config_path(path)).expanduser().resolve())


def _by_transformers(request: WorkerRequest[T], world: World) -> T | str:
    """What a worker counts by transformers; why not, where they can't help."""
    worker = world.launch()
    try:
        answer = worker.ask(request, COUNT_TIMEOUT_S)
    except WorkerLost as lost:
        return f"building it: {lost}"
    finally:
        worker.close()
    if not isinstance(answer, Failed):
        return answer
    if answer.message == TRANSFORMERS_NOT_INSTALLED:
        return f"{answer.message}: {INSTALL}"
    return answer.message


def _counted_or_raise(counted: T | str, unknown: Unanswered) -> T:
    """What was counted; raises FfnbenchError of what is unknown where nothing was."""
    if isinstance(counted, str):
        hint = unknown.hint.removesuffix(ASK)  # they have been asked
        raise FfnbenchError(unknown.message, f"{hint}{counted}") from unknown
    return counted

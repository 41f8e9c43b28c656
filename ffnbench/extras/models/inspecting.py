"""What is in a model: its FFNs by kind of layer, or all its parameters. They are
counted in closed form by families.toml and rest.toml, or by transformers, which builds
what these two do not know.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from ffnbench.common.errors import FfnbenchError
from ffnbench.extras.models.by_length import InspectRequest, count_by_length
from ffnbench.extras.models.counting import (
    CountedModel,
    WholeModel,
    count_model,
    count_whole_model,
)
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


class NotCounted(Exception):
    """transformers can't count a model, for the reason that is the text."""


def model_answer(request: InspectRequest, world: World) -> View:
    """The answer of `inspect`: the layers at a length, all parameters, or the FFNs."""
    if request.length is not None:
        return layers_view(count_by_length(request))
    if request.whole_model:
        return parts_view(inspect_whole(request.model, world))
    return model_view(inspect_model(request.model, world))


def inspect_model(name: str, world: World) -> CountedModel:
    """Count the FFNs of a preset or of a config.json; transformers counts what
    families.toml does not know.
    """
    try:
        return count_model(model_of(name))
    except Unanswered as unknown:
        request = CountLayers(source=source_of(name))
        return _count_unknown(request, world, unknown)


def inspect_whole(name: str, world: World) -> WholeModel:
    """Count all parameters of a preset or of a config.json by part; transformers counts
    what the tables do not know.
    """
    try:
        model = count_whole_model(model_of(name))
    except Unanswered as unknown:
        request = CountWhole(source=source_of(name))
        return _count_unknown(request, world, unknown)
    if model.params is not None:
        return model
    try:
        return _count_by_transformers(CountWhole(source=source_of(name)), world)
    except NotCounted as problem:
        note = "; ".join(filter(None, (model.note, str(problem))))
        return replace(model, note=note)


def source_of(path: str) -> str:
    """The absolute path of a config.json."""
    return str(Path(config_path(path)).expanduser().resolve())


def _count_unknown(request: WorkerRequest[T], world: World, unknown: Unanswered) -> T:
    """Have transformers count what the tables do not know; raises FfnbenchError, which
    says what is unknown and why transformers did not help.
    """
    try:
        return _count_by_transformers(request, world)
    except NotCounted as problem:
        # the hint ends with the advice to ask transformers, which was done
        hint = unknown.hint.removesuffix(ASK)
        raise FfnbenchError(unknown.message, f"{hint}{problem}") from unknown


def _count_by_transformers(request: WorkerRequest[T], world: World) -> T:
    """Have a worker count by transformers; raises NotCounted."""
    worker = world.launch()
    try:
        answer = worker.ask(request, COUNT_TIMEOUT_S)
    except WorkerLost as lost:
        raise NotCounted(f"building it: {lost}") from lost
    finally:
        worker.close()
    if not isinstance(answer, Failed):
        return answer
    if answer.message == TRANSFORMERS_NOT_INSTALLED:
        raise NotCounted(f"{answer.message}: {INSTALL}")
    raise NotCounted(answer.message)

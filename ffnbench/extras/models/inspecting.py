"""What is in a model: its FFNs by kind of layer, or all its parameters, counted by the table or by transformers."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import TypeVar

from ffnbench import jsonable
from ffnbench.api import world
from ffnbench.api.preparing import NULL_SINK
from ffnbench.api.world import COUNT_TIMEOUT_S
from ffnbench.errors import FfnbenchError
from ffnbench.extras.models.by_length import count_by_length
from ffnbench.extras.models.counting import CountedModel, WholeModel, count_model
from ffnbench.extras.models.counting import whole_model as whole_of
from ffnbench.extras.models.layers import layers_view
from ffnbench.extras.models.request import InspectRequest
from ffnbench.extras.models.table import model_view, parts_view
from ffnbench.models.family_reader import ASK, INSTALL, NOT_INSTALLED, Unanswered
from ffnbench.models.presets import config_path, model_of
from ffnbench.report.output import NullSink
from ffnbench.request import Heads, spelling
from ffnbench.run.session import WorkerLost

T = TypeVar("T", CountedModel, WholeModel)


def show_model(request: InspectRequest, sink: NullSink = NULL_SINK) -> None:
    """The answer to a request; raises FfnbenchError for flags of attention without a length."""
    of_attention = [spelling(one.name) for one in fields(Heads) if getattr(request, one.name) is not None]
    if request.length is not None:
        view = layers_view(count_by_length(request))
        sink.show(lambda: view)
    elif of_attention:
        raise FfnbenchError(f"{of_attention[0]} changes what is counted at a length", "add --length 512")
    elif request.whole_model:
        inspect_whole(request.model, sink)
    else:
        inspect(request.model, sink)


def inspect(name: str, sink: NullSink = NULL_SINK) -> CountedModel:
    """The FFNs of a preset or of a config.json in numbers; what is not known is counted by transformers."""
    try:
        found = count_model(model_of(name))
    except Unanswered as problem:
        found = _known(_by_transformers("hf_layers", name, CountedModel), problem)
    sink.show(lambda: model_view(found))
    return found


def inspect_whole(name: str, sink: NullSink = NULL_SINK) -> WholeModel:
    """All parameters of a preset or of a config.json by part; what the table does not know transformers counts."""
    try:
        found = whole_of(model_of(name))
        if found.params is None:  # where transformers can't help the note says why
            more = _by_transformers("hf_whole", name, WholeModel)
            found = replace(found, note="; ".join(filter(None, (found.note, more)))) if isinstance(more, str) else more
    except Unanswered as problem:
        found = _known(_by_transformers("hf_whole", name, WholeModel), problem)
    sink.show(lambda: parts_view(found))
    return found


def _by_transformers(job: str, path: str, answer_as: type[T]) -> T | str:
    """What a worker counts by transformers; why not, where they can't help."""
    worker = world.MACHINE.launch()
    try:
        answer = worker.ask({"do": job, "source": str(Path(config_path(path)).expanduser().resolve())}, COUNT_TIMEOUT_S)
    except WorkerLost as lost:
        return f"building it: {lost}"
    finally:
        worker.close()
    if "failure" in answer:
        return f"{answer['message']}: {INSTALL}" if answer["message"] == NOT_INSTALLED else str(answer["message"])
    return jsonable.decode(answer_as, answer["model"])


def _known(found: T | str, unknown: Unanswered) -> T:
    """What was counted; raises FfnbenchError of what is unknown where nothing was."""
    if isinstance(found, str):
        known = unknown.hint.removesuffix(ASK)  # they have been asked
        raise FfnbenchError(unknown.message, f"{known}{found}") from unknown
    return found

"""The commands about models and activations: what they are, without timing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ffnbench import jsonable
from ffnbench.activations.facts import Facts
from ffnbench.api import world
from ffnbench.api.preparing import NULL_SINK
from ffnbench.api.world import COUNT_TIMEOUT_S
from ffnbench.errors import FfnbenchError
from ffnbench.ffn.spec import ActivationSpec
from ffnbench.models.family_reader import ASK, INSTALL, NOT_INSTALLED, Unanswered
from ffnbench.models.model import CountedModel, WholeModel, count_model
from ffnbench.models.model import whole_model as whole_of
from ffnbench.models.presets import config_path, model_of
from ffnbench.planning.activations import CHOSEN, every_activation, every_gated_form, parse_range, select
from ffnbench.planning.effort import check_timeout
from ffnbench.report.formats import Write
from ffnbench.report.output import NullSink, OutputSink
from ffnbench.report.tables.activations import facts_view
from ffnbench.report.tables.models import model_view, parts_view
from ffnbench.request import FactsRequest, PictureRequest
from ffnbench.run.prober import Prober
from ffnbench.run.session import WorkerLost

if TYPE_CHECKING:
    from matplotlib.figure import Figure

T = TypeVar("T", CountedModel, WholeModel)
CURVE_POINTS, SURFACE_POINTS = 1601, 161


def facts(request: FactsRequest, sink: NullSink = NULL_SINK) -> None:
    """What is true of activations, found in float64 by a worker."""
    with world.MACHINE.prober(check_timeout(request.timeout)) as prober:
        chosen = select(every_activation() if request.activations is None else request.activations, prober)
        found = {label: prober.facts(spec) for label, spec in chosen.items()}
    sink.show(lambda: facts_view(chosen, found))


def plot_activations(request: PictureRequest, sink: OutputSink) -> None:
    """Curves of activations or surfaces of gated forms, into files."""
    for path in sink.write(draw_activations(request)[1]):
        sink.tell(f"wrote {path}")


def draw_activations(request: PictureRequest) -> tuple[Figure, dict[str, Write]]:
    """The figure of activations, and what writes it by suffix."""
    from ffnbench.report.pictures.activations import picture

    low, high = parse_range(request.range_)
    with world.MACHINE.prober(check_timeout(request.timeout)) as prober:
        default = every_gated_form() if request.gated else CHOSEN
        chosen = select(default if request.activations is None else request.activations, prober, gated=request.gated)
        points = SURFACE_POINTS if request.gated else CURVE_POINTS
        curves = {label: prober.curve(spec, low, high, points) for label, spec in chosen.items()}
        found = {} if request.gated else _facts_where_finite(prober, chosen)
    return picture(request, chosen, curves, found)


def _facts_where_finite(prober: Prober, chosen: dict[str, ActivationSpec]) -> dict[str, Facts]:
    """Facts for the marks of a picture; none for a function that is finite where it is drawn, and not elsewhere."""
    found = {}
    for label, spec in chosen.items():
        try:
            found[label] = prober.facts(spec)
        except FfnbenchError:
            continue
    return found


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

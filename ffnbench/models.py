"""What `inspect` is: a preset or a config.json -> the FFNs of that model, counted.

Read by ffnbench's own table; a family outside it is built and counted by transformers, in a worker, where that is
installed.
"""

from __future__ import annotations

from pathlib import Path

from ffnbench import jsonable
from ffnbench.bench.session import Session, WorkerLost
from ffnbench.errors import FfnbenchError
from ffnbench.ffn.configs import UnknownFamily, read_config
from ffnbench.ffn.model import CountedModel, ModelSpec, count_model
from ffnbench.ffn.presets import PRESETS
from ffnbench.registry import did_you_mean

TIMEOUT_S = 300.0


def model_of(name: str) -> ModelSpec:
    """A preset by its name, or the model of a config.json; raises FfnbenchError where it is neither."""
    if name in PRESETS:
        return PRESETS.get(name)
    path = Path(name).expanduser()
    if not path.exists() and path.suffix != ".json" and "/" not in name:
        near = did_you_mean(name, PRESETS.names())
        raise FfnbenchError(
            f"{name!r} is neither a preset nor a file",
            " ".join(filter(None, (near, "give a config.json, or one of `ffnbench list presets`"))),
        )
    return read_config(name)


def inspect(name: str) -> CountedModel:
    """The FFNs of a preset or of a config.json in numbers."""
    try:
        return count_model(model_of(name))
    except UnknownFamily as problem:
        return _count_by_transformers(name, problem)


def _count_by_transformers(path: str, unknown: UnknownFamily) -> CountedModel:
    """Ask a worker; where transformers can't help, what was unknown is the error."""
    session = Session()
    try:
        answer = session.ask({"do": "hf_layers", "source": str(Path(path).expanduser().resolve())}, TIMEOUT_S)
    except WorkerLost as lost:
        raise FfnbenchError(unknown.message, f"{unknown.hint}; building it: {lost}") from lost
    finally:
        session.close()
    if "failure" in answer:
        raise FfnbenchError(unknown.message, f"{unknown.hint}; {answer['message']}")
    return jsonable.decode(CountedModel, answer["model"])

"""A published model by its name: a preset, or the model of a config.json, which
transformers builds in a process of its own (read.py).
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from ffnbench.common import jsonable
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.files import content_of
from ffnbench.common.names import did_you_mean
from ffnbench.models.model import ModelSpec
from ffnbench.models.presets import PRESETS

A_CONFIG = "give a config.json, or the folder that holds one"
# seconds after which a model's building is given up
READ_TIMEOUT_S = 300


def model_of(name: str) -> ModelSpec:
    """A preset by its name, or the model of a config.json; raises FfnbenchError where
    it is neither.

    A preset's own name wins over a file, and a file over other spellings of that name.
    """
    if name in PRESETS.names() or (name in PRESETS and not _file(name)):
        return PRESETS.get(name)
    return read_published(config_path(name))


def read_published(path: str) -> ModelSpec:
    """The model of a config.json, or of the folder that holds one; raises FfnbenchError
    where it can't be read, and where transformers is not installed.
    """
    data, file = read_file(path)
    return _read(json.dumps(data), file)


@cache
def _read(data: str, source: str) -> ModelSpec:
    """The model of a config's content, read by a process that has transformers."""
    if importlib.util.find_spec("transformers") is None:
        raise FfnbenchError(
            "a config.json is read by transformers, which is not installed",
            "pip install 'ffnbench[hf]'; `ffnbench list presets` shows what needs no file",
        )
    answer = _ask("ffnbench.models.read", source, content=data)
    return jsonable.decode(ModelSpec, answer["model"])


def _ask(module: str, *arguments: str, content: str = "") -> Any:
    """The answer of a module that runs as a process of its own, which prints JSON in
    its last line; raises FfnbenchError for an error that it tells.
    """
    # -P: a file of the current folder is no module of the process
    command = [sys.executable, "-P", "-m", module, *arguments]
    try:
        done = subprocess.run(
            command,
            input=content,
            capture_output=True,
            text=True,
            timeout=READ_TIMEOUT_S,
            env=os.environ | {"HF_HUB_OFFLINE": "1"},
        )
    except subprocess.TimeoutExpired as problem:
        raise FfnbenchError(
            f"transformers took longer than {READ_TIMEOUT_S} s to build the model",
            "count it from --d-model and --d-ff",
        ) from problem
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["it gave no reason"]
        raise FfnbenchError(f"transformers can't build the model: {last[0]}", A_CONFIG)
    answer = json.loads(done.stdout.splitlines()[-1])
    if "error" in answer:
        raise FfnbenchError(answer["error"], answer["hint"])
    return answer


def folder_of_weights(preset: str | None, ffns: Mapping[str, object]) -> str:
    """The folder of the model whose weights --layer takes. Raises FfnbenchError for
    --layer without such a folder, and where one of the networks, by their labels, is
    not of the model's own form.
    """
    if preset is None or preset in PRESETS:
        raise FfnbenchError(
            "--layer needs the folder of a model, with its weights",
            "for example --preset path/to/model --layer 0",
        )
    form = model_of(preset).main.form
    for label, ffn in ffns.items():
        if ffn != form:
            raise FfnbenchError(
                f"--layer has no weights for {label!r}",
                "they are those of the model's own form: --variants preset --weights none,int8,int4",
            )
    file = Path(config_path(preset)).expanduser().resolve()
    return str(file if file.is_dir() else file.parent)


def layer_file(folder: str, layer: int) -> Path:
    """The file of ffnbench's cache that holds the weights of a layer's FFN: one for
    each content of the folder.
    """
    files = sorted(Path(folder).glob("*.safetensors"))
    stamps = [(file.name, file.stat().st_mtime_ns) for file in files]
    key = hashlib.sha256(repr((folder, layer, stamps)).encode()).hexdigest()[:16]
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "ffnbench" / f"{key}.pt"


def read_layer_weights(folder: str, layer: int) -> None:
    """Write a layer's weights to the cache, where they are not there; raises
    FfnbenchError where the folder does not hold them.
    """
    read_file(folder)
    file = layer_file(folder, layer)
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        _ask("ffnbench.models.weights", folder, str(layer), str(file))


def read_file(path: str) -> tuple[dict[str, Any], str]:
    """The content and the path of a config.json, which is given by its path or by that
    of its folder; raises FfnbenchError where it can't be read.
    """
    file = Path(os.path.expanduser(path))
    if os.path.isdir(file):
        file /= "config.json"
        if file.is_fifo():  # only the folder was named; reading a pipe may never end
            raise FfnbenchError(f"{str(file)!r} is a pipe", A_CONFIG)
    try:
        data = jsonable.parse(content_of(file, A_CONFIG), ours=False)
    except ValueError as problem:
        raise FfnbenchError(
            f"{str(file)!r} is not JSON: {problem}", "give the config.json of a model"
        ) from problem
    if not isinstance(data, dict):
        raise FfnbenchError(
            f"{str(file)!r} holds no object", "a config.json begins with {"
        )
    if "schema" in data and "plan" in data:
        hint = f"`ffnbench report {shlex.quote(str(file))}` shows it"
        raise FfnbenchError(
            f"{str(file)!r} is a saved run, and no config of a model", hint
        )
    return data, str(file.resolve())


def config_path(name: str) -> str:
    """The path of a config that is named: by a file or folder, which comes first, else
    by a model in the hub's cache on this disk; raises FfnbenchError for neither.
    """
    found = _file(name)
    if found is not None:
        return found
    hint = "give a config.json, or one of `ffnbench list presets`"
    family = name.partition("-")[0] + "-"
    presets = [key for key in PRESETS.names() if key.startswith(family)]
    if "/" in name and not name.endswith(".json"):
        hint += "; `hf download ORG/NAME config.json` puts a model of the hub there"
    else:
        near = did_you_mean(name, presets) or did_you_mean(name, PRESETS.names())
        hint = f"{near} {hint}".lstrip()
    raise FfnbenchError(
        f"{name!r} is neither a preset nor a file, nor in the hub's cache on this disk",
        hint,
    )


def _file(name: str) -> str | None:
    """The file or folder of that name, else the config.json of a model of the hub by
    its last download to this disk; None where neither is there.
    """
    if os.path.exists(os.path.expanduser(name)):
        return name
    if importlib.util.find_spec("huggingface_hub") is None:
        return None
    from huggingface_hub import try_to_load_from_cache

    with suppress(ValueError):  # what can't be the name of a model
        found = try_to_load_from_cache(name, "config.json")
        return found if isinstance(found, str) else None
    return None

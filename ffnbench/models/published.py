"""A published model by its name: a preset, or the model of a config.json, which
transformers builds in a process of its own (read.py).
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ffnbench.common import jsonable
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.files import content_of
from ffnbench.common.names import did_you_mean, normalise
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
    if name in PRESETS:
        is_own_name = normalise(name).replace("_", "-") in PRESETS.names()
        if is_own_name or not (_exists(name) or cached_config(name)):
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


def config_folder(name: str) -> str:
    """The absolute path of the folder whose model `--preset` names."""
    path = Path(os.path.expanduser(config_path(name))).resolve()
    return str(path if path.is_dir() else path.parent)


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
    return config_folder(preset)


def layer_file(folder: str, layer: int) -> Path:
    """The file of ffnbench's cache that holds the weights of a layer's FFN: one for
    each content of the folder.
    """
    files = sorted(Path(folder).glob("*.safetensors"))
    stamps = [(file.name, file.stat().st_mtime_ns) for file in files]
    key = hashlib.sha256(repr((folder, layer, stamps)).encode()).hexdigest()[:16]
    home = os.environ.get("XDG_CACHE_HOME", "~/.cache")
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
    by a model in the hub's cache on this disk.

    Raises FfnbenchError for the name of a model that is not there. What looks like the
    path of a file is returned as it is, and its reader says what is wrong with it.
    """
    if _exists(name):
        return name
    cached = cached_config(name)
    if cached is not None:
        return str(cached)
    if "/" in name and is_name(name):
        raise FfnbenchError(
            f"{name!r} is no file here, and the hub's cache on this disk, {str(cache_folder())!r}, does not hold it",
            f"`hf download {name} config.json` puts it there; `ffnbench list presets` shows what needs no file",
        )
    if "/" not in name and Path(name).suffix != ".json":
        family = [
            key
            for key in PRESETS.names()
            if key.startswith(name.partition("-")[0] + "-")
        ]
        near = did_you_mean(name, family) or did_you_mean(name, PRESETS.names())
        raise FfnbenchError(
            f"{name!r} is neither a preset nor a file, nor in the hub's cache on this disk",
            f"{near} give a config.json, or one of `ffnbench list presets`".lstrip(),
        )
    return name


def _exists(name: str) -> bool:
    return os.path.exists(os.path.expanduser(name))


NAME_PART = r"[A-Za-z0-9_](?:[\w.-]{0,94}[\w-])?"
NAME = re.compile(rf"(?:{NAME_PART}/)?{NAME_PART}", re.ASCII)


def is_name(text: str) -> bool:
    """Whether it may be a model of the hub, ORG/NAME or NAME; no such name leads out of
    the folder of the cache.
    """
    if text.endswith(".json") or ".." in text or "--" in text:
        return False
    return NAME.fullmatch(text) is not None


def cache_folder() -> Path:
    """The folder of the hub's cache by the variables of the hub; it need not exist."""
    home = (
        os.environ.get("HF_HOME")
        or os.environ.get("XDG_CACHE_HOME", "~/.cache") + "/huggingface"
    )
    return Path(
        os.path.expandvars(os.environ.get("HF_HUB_CACHE") or home + "/hub")
    ).expanduser()


def cached_config(name: str) -> Path | None:
    """The config.json of a model in the cache: of the commit that was `main` at the
    last download, else of the only snapshot; None where neither is there.
    """
    if not is_name(name):
        return None
    model = cache_folder() / f"models--{name.replace('/', '--')}"
    main = model / "refs" / "main"
    if os.path.isfile(main):
        commit = content_of(main).decode("ascii", "replace").strip()
        config = model / "snapshots" / commit / "config.json"
        if os.path.isfile(config):
            return config
    configs = list(model.glob("snapshots/*/config.json"))
    if len(configs) != 1:
        return None
    return configs[0]

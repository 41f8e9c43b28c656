"""Hugging Face's config.json -> ModelSpec, by the table of families.toml. Never a wrong
number.

A model type outside the table, and a class with other layers than the row of its model
type says, raise Unanswered, since transformers itself may have the answer.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path

from ffnbench.common import jsonable
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.files import content_of
from ffnbench.models.family_reader import (
    ASK,
    PARTS,
    Config,
    Reader,
    Unanswered,
    by_own_names,
    defaults_in_words,
    families,
    refuse_other_names,
)
from ffnbench.models.model import LayerGroup, ModelSpec

A_CONFIG = "give a config.json, or the folder that holds one"


def read_file(path: str) -> tuple[Config, str]:
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
    return data, str(file)


def read_config(path: str) -> ModelSpec:
    """The model of a config.json or of the folder that holds one."""
    config, file = read_file(path)
    name, groups = type_of(config), tuple(read_groups(config))
    return ModelSpec(
        key=name,
        name=name,
        groups=groups,
        source=file,
        note=code_note(config, name),
        config=config,
        defaults=defaults_taken(config),
    )


def type_of(config: Config) -> str:
    """The model type of a config, as transformers calls it; raises FfnbenchError where
    it has none.
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise FfnbenchError(
            "the config has no model_type",
            'add the model\'s own, such as "model_type": "llama"',
        )
    return families().alias.get(model_type, model_type)


def read_groups(config: Config) -> list[LayerGroup]:
    """The layers of a config, equal ones in one group, in the order of the table;
    raises Unanswered or FfnbenchError.
    """
    model_type, table = type_of(config), families()
    stacks: list[list[LayerGroup]]
    if model_type in table.composites:
        parts = nested_configs(config, model_type)
        refuse_other_names(
            config, model_type, table.defaults[model_type], {}, list(parts.values())
        )
        stacks = [_groups_of_part(key, part) for key, part in parts.items()]
    elif model_type in table.stacks:
        stacks = [reader.groups() for reader in readers(config, model_type)]
    else:
        raise Unanswered(
            f"the model type {model_type!r} is not in the table, so its keys are not known",
            f"count its widths: `ffnbench cost swiglu --d-model 1024 --d-ff 2816`; {ASK}",
        )
    _refuse_other_parts(config, model_type)
    repeats = repeats_of_stacks(config, model_type) or (1,) * len(stacks)
    groups = []
    for times, stack in zip(repeats, stacks, strict=True):
        if times > 0:
            groups += [replace(group, count=times * group.count) for group in stack]
    if not groups:
        raise FfnbenchError(
            f"the {model_type} config has no layers", "is its number of layers 0?"
        )
    return groups


def readers(config: Config, model_type: str) -> list[Reader]:
    """A reader for each stack of a model type that is no composite."""
    if config.get("per_layer_config"):
        raise Unanswered(
            f"the {model_type} config changes keys for single layers, by per_layer_config",
            ASK,
        )
    own = families().defaults[model_type]
    other_names = families().other_names.get(model_type, {})
    sizes = {key: config.get(key, default) for key, default in own.items()}
    refuse_other_names(config, model_type, own, other_names, [sizes])
    config = by_own_names(config, other_names)
    return [
        Reader(config=config, model_type=model_type, stack=stack)
        for stack in families().stacks[model_type]
    ]


def defaults_taken(config: Config) -> str:
    """The numbers that a file leaves to its class, and those that nested configs leave
    to theirs, in words; "" for none.
    """
    model_type, table = type_of(config), families()
    if model_type in table.composites:
        of_parts = [
            defaults_taken(part) for part in nested_configs(config, model_type).values()
        ]
        return "; ".join(filter(None, of_parts))
    config = by_own_names(config, table.other_names.get(model_type, {}))
    return defaults_in_words(config, model_type, table.defaults[model_type])


def repeats_of_stacks(config: Config, model_type: str) -> tuple[int, ...] | None:
    """How often the class that a file names has each of the two stacks of its model
    type; None where it has each stack once. Raises as `refuse_other_classes` does.
    """
    names = refuse_other_classes(config, model_type)
    if len(families().stacks.get(model_type, ())) != 2:
        return None
    for name in names:
        for end, times in families().stacks_of.items():
            if name.endswith(end):
                return tuple(times)
    return None


def refuse_other_classes(
    config: Config, model_type: str, known_classes: object = None
) -> list[str]:
    """The classes that a file names under `architectures`. Raises Unanswered where one
    of them, or of `auto_map`, has other layers than its model type says, unless the
    module `known_classes` has it.
    """
    names = config.get("architectures") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise FfnbenchError(
            f"the {model_type} config has architectures {names!r:.60}",
            "a list with the name of a class",
        )
    for name in (*auto_map_classes(config), *names):
        if name in families().classes["other"] and not hasattr(known_classes, name):
            raise Unanswered(
                f"the {model_type} config is of the class {name}, whose layers are others than {model_type}'s",
                f"compare its class as a variant, FILE.py:CLASS; {ASK}",
            )
    return names


def nested_configs(config: Config, model_type: str) -> dict[str, Config]:
    """The nested configs of a composite by their keys, each with the model type by
    which it is read.
    """
    parts = {}
    for key, default in zip(PARTS, families().composites[model_type], strict=True):
        # older files have it under both keys, and transformers reads the first
        nested = config.get(f"{key}_dict") or config.get(key)
        if (
            nested is None
            and key == "text_config"
            and model_type in families().classes["text_at_top"]
        ):
            nested = {
                name: value
                for name, value in config.items()
                if name not in ("architectures", *PARTS)
            }
        if nested is None:
            raise Unanswered(
                f"the {model_type} config has no {key}",
                f"looked for the keys: {key}; {ASK}",
            )
        if not isinstance(nested, dict):
            raise FfnbenchError(
                f"the {model_type} config has a {key} that is no object: {nested!r:.60}",
                A_CONFIG,
            )
        own_type = nested.get("model_type", model_type)
        if own_type == model_type:  # it repeats that of the whole model
            own_type = default
        parts[key] = nested | {"model_type": own_type}
    return parts


def _groups_of_part(key: str, part: Config) -> list[LayerGroup]:
    """The layers of the nested config of that key; all but those of the text are of
    kind vision.
    """
    groups = read_groups(part)
    if key == "text_config":
        return groups
    return [
        replace(group, kind="vision moe" if group.ffn.moe else "vision")
        for group in groups
    ]


def _refuse_other_parts(config: Config, model_type: str) -> None:
    """Raise Unanswered for a nested model that the table does not name: it may hold
    FFNs too.
    """
    is_composite = model_type in families().composites
    for key, nested in config.items():
        if isinstance(nested, dict) and nested.get("model_type"):
            if is_composite and key.removesuffix("_dict") in PARTS:
                continue
            raise Unanswered(
                f"the {model_type} config has a {key} of type {nested['model_type']!r}, which the table does not know "
                "there",
                ASK,
            )


def auto_map_classes(config: Config) -> list[str]:
    """The classes of models that `auto_map` names, which come with the file and not
    with transformers; without their repository: `modeling_bert.JinaBertModel`.
    """
    mapped = config.get("auto_map")
    if not isinstance(mapped, dict):
        return []
    names = []
    for role, name in mapped.items():
        if str(role).startswith("AutoModel") and isinstance(name, str):
            names.append(name.rpartition("--")[2])
    return names


def code_note(config: Config, counted_as: str) -> str:
    """A sentence where `auto_map` names code that is not transformers' own; else ""."""
    code = ", ".join(dict.fromkeys(auto_map_classes(config)))
    if not code:
        return ""
    return f"auto_map: with trust_remote_code its code would be {code}; counted as {counted_as}"

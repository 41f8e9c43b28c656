"""Hugging Face's config.json -> ModelSpec, by the table of families.toml. Never a wrong
number.

A model type outside the table, and a class whose layers are others than its model
type's row says, raise Unanswered, since transformers itself may have the answer.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path

from ffnbench.common import jsonable
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.files import content_of
from ffnbench.common.names import did_you_mean
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
    """The content of a config.json, given as its path or as its folder's, and the path;
    raises FfnbenchError.
    """
    file = Path(os.path.expanduser(path))
    if os.path.isdir(file):
        file /= "config.json"
        if file.is_fifo():  # which nobody has named, and which would be waited for
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
    """The kinds of layers of a config, equal ones together, in the order of the
    table.
    """
    model_type, table = type_of(config), families()
    stacks: list[list[LayerGroup]]
    if model_type in table.composites:
        parts = nested_of(config, model_type)
        refuse_other_names(
            config, model_type, table.defaults[model_type], {}, list(parts.values())
        )
        stacks = [_of_part(key, read_groups(part)) for key, part in parts.items()]
    elif model_type in table.stacks:
        stacks = [reader.groups() for reader in readers(config, model_type)]
    else:
        hints = (did_you_mean(model_type, table.types), ASK)
        raise Unanswered(
            f"the model type {model_type!r} is not in the table, so its keys are not known",
            "; ".join(filter(None, hints)),
        )
    _refuse_other_parts(config, model_type)
    times = times_of(config, model_type) or (1,) * len(stacks)
    groups = []
    for n, stack in zip(times, stacks, strict=True):
        if n > 0:
            groups += [replace(group, count=n * group.count) for group in stack]
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
    """The numbers that a file leaves to its class, or its parts to theirs, in words; ""
    for none.
    """
    model_type, table = type_of(config), families()
    if model_type in table.composites:
        of_parts = [
            defaults_taken(part) for part in nested_of(config, model_type).values()
        ]
        return "; ".join(filter(None, of_parts))
    config = by_own_names(config, table.other_names.get(model_type, {}))
    return defaults_in_words(config, model_type, table.defaults[model_type])


def times_of(config: Config, model_type: str) -> tuple[int, ...] | None:
    """How often the class that a file names has each stack of a model type of two; None
    for once.
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
    """The classes that a file names; raises Unanswered where one has other layers than
    its model type's, and is none of the module of `known_classes`.
    """
    names = config.get("architectures") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise FfnbenchError(
            f"the {model_type} config has architectures {names!r:.60}",
            "a list with the name of a class",
        )
    for name in (*of_its_own(config), *names):
        if name in families().classes["other"] and not hasattr(known_classes, name):
            raise Unanswered(
                f"the {model_type} config is of the class {name}, whose layers are others than {model_type}'s",
                f"compare its class as a variant, FILE.py:CLASS; {ASK}",
            )
    return names


def nested_of(config: Config, model_type: str) -> dict[str, Config]:
    """The nested configs of a composite, each with the model type that it is read
    by.
    """
    parts = {}
    for key, default in zip(PARTS, families().composites[model_type], strict=True):
        # older files say it twice, and the first is meant
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
        named = nested.get("model_type", model_type)
        parts[key] = nested | {"model_type": default if named == model_type else named}
    return parts


def _of_part(key: str, groups: list[LayerGroup]) -> list[LayerGroup]:
    """The layers of a nested config: the text's keep their own kinds."""
    if key == "text_config":
        return groups
    return [
        replace(group, kind="vision moe" if group.ffn.moe else "vision")
        for group in groups
    ]


def _refuse_other_parts(config: Config, model_type: str) -> None:
    """A nested model that the table does not name may hold FFNs too."""
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


def of_its_own(config: Config) -> list[str]:
    """The classes of models that `auto_map` names, without their repository:
    `modeling_bert.JinaBertModel`.
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
    """One line where `auto_map` names code that is not transformers' own; or
    nothing.
    """
    code = ", ".join(dict.fromkeys(of_its_own(config)))
    if not code:
        return ""
    return f"auto_map: with trust_remote_code its code would be {code}; counted as {counted_as}"

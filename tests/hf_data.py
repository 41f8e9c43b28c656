"""Writes ffnbench/models/defaults.json from transformers: what its config classes have where a file leaves keys out.

`python tests/hf_data.py` writes it, `--check` only says whether it is as transformers has it. Everything is found by
building configs: a default is the class's own, before anything is derived from null; another name is one that changes
the same attribute to the same model; a nested config may stand flat where a key at the top reaches it.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import sys
import warnings
from typing import Any

from ffnbench.models.defaults import FILE
from ffnbench.models.families import Family, families, keys_read
from ffnbench.models.transformers import OLD_NAME, classes_of, keys_of_class

# of these, what no width, number of layers, switch or expert comes from: positions, windows, tokens, pictures, words
HARMLESS = re.compile(
    r"rope_|rotary|token_id|sliding_window|tie_|id2label|num_labels|^out_|segmentation_indices|layer_types|index_|dtype"
    r"|^global_|num_global_|full_attention|attention_windows|pooler_|frame_rate|adapter_|^image_(default|num|patch)"
    r"|^qkv_bias$|^model_type$|^per_layer_config$|^decoder$"  # the last three are told by the reader itself
)
OTHER_TYPES = ("llama", "siglip_vision_model", "dinov2")  # a class that takes all of them for its own looks at no name
BACKBONE = ("backbone", "backbone_kwargs")  # of every class with a backbone_config: a model by its name on the hub


def main(arguments: list[str]) -> int:
    """Write the file, or check it."""
    text = made()
    if "--check" in arguments:
        same = FILE.read_text(encoding="utf-8") == text
        print("as transformers has it" if same else "defaults.json differs: run python tests/hf_data.py")
        return 0 if same else 1
    FILE.write_text(text, encoding="utf-8", newline="\n")
    return 0


def made() -> str:
    """The text of defaults.json: one line a model type."""
    import transformers

    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    rows = {}
    for model_type, family in sorted(families().by_type.items()):
        if model_type in transformers.CONFIG_MAPPING:
            rows[model_type] = row_of(transformers.CONFIG_MAPPING[model_type], family, keys_read(model_type))
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(row, sort_keys=True)}" for name, row in rows.items())
    return f'{{"transformers": {json.dumps(transformers.__version__)}, "types": {{\n{lines}\n}}}}\n'


def row_of(kind: Any, family: Family, named: frozenset[str]) -> dict[str, Any]:
    """What stands in the file about one class; what is empty is left out."""
    keys = named | set(family.parts)
    own = defaults_of_class(kind)
    names, unsure = other_names(kind, keys)
    nested = parts(kind) if family.parts else {}
    read = keys | {part["instead"] for part in nested.values() if "instead" in part}
    asks = (old_names(kind) - read) | unsure
    row = {
        "values": {key: own[key] for key in keys if key in own and key not in {*family.parts, *names}},
        "without": sorted(key for key in keys if key not in own and key not in family.parts),
        "names": names,
        "asks": sorted(asks),
        "also": sorted(
            (keys_of_class(kind) & families().speaking.keys() | {*kind.sub_configs}) - read - names.keys() - asks
        ),
        "classes": sorted(classes_of(kind)),
        "parts": nested,
        "flat": flat(kind, family),
    }
    return {name: value for name, value in row.items() if value}


def defaults_of_class(kind: Any) -> dict[str, Any]:
    """Every key of a class and its default, as JSON has it; a class that fixes a value is no default."""
    found = {}
    for each in dataclasses.fields(kind):
        value = each.default_factory() if each.default is dataclasses.MISSING else each.default
        try:
            found[each.name] = json.loads(json.dumps(value))
        except (TypeError, ValueError):
            continue
    for other, name in kind.attribute_map.items():  # a field may carry the other name
        if other in found and name not in found:
            found[name] = found[other]
        elif name in found and other not in found:
            found[other] = found[name]
    return found


def other_names(kind: Any, keys: set[str]) -> tuple[dict[str, str], set[str]]:
    """Names that mean the same as the keys, and those of which transformers makes something else."""
    same: dict[str, str] = {}
    unsure = set()
    for other, name in sorted(kind.attribute_map.items()):
        pair = [each for each in (name, other) if each in keys]
        if not pair:
            continue
        key, alias = (name, other) if name in keys else (other, name)
        if key == alias:
            continue
        if alike(kind, key, alias, keys):
            same[alias] = key
        else:
            unsure.add(alias)
    return same, unsure


def alike(kind: Any, key: str, alias: str, keys: set[str]) -> bool:
    """Whether a file with the other name makes the config that one with the key makes."""
    default = defaults_of_class(kind).get(key)
    values: tuple[Any, ...] = (2, 6, 96, True, False, "relu", 2.0)
    tried = [value for value in values if type(value) is type(default)] or [2, 96]
    seen = 0
    for value in tried:
        made = [built(kind, {name: value}) for name in (key, alias)]
        if made[0] is None and made[1] is None:
            continue
        if None in made or any(getattr(made[0], k, None) != getattr(made[1], k, None) for k in keys):
            return False
        seen += 1
    return seen > 0


def built(kind: Any, values: dict[str, Any]) -> Any:
    """The config of these values; None where the class refuses them."""
    try:
        return kind(**values)
    except Exception:
        return None


def old_names(kind: Any) -> set[str]:
    """Keys of older files that the source of a class names."""
    found: set[str] = set()
    for each in kind.__mro__:
        if not each.__module__.startswith("transformers.models."):
            continue
        for member in vars(each).values():
            if inspect.isfunction(member) and "/transformers/models/" in (inspect.getsourcefile(member) or ""):
                found |= {next(filter(None, groups)) for groups in OLD_NAME.findall(inspect.getsource(member))}
    if "backbone_config" in defaults_of_class(kind):
        found |= set(BACKBONE)
    return {name for name in found if not HARMLESS.search(name)} - set(defaults_of_class(kind))


def parts(kind: Any) -> dict[str, Any]:
    """The nested configs of a class, and what it makes of one that is left out or that says little."""
    found = {}
    for key, spec in sorted(kind.sub_configs_defaults.items()):
        given = [*re.findall(r'"([\w-]+)"', source(kind)), kind.model_type, *OTHER_TYPES]
        types = {name: made for name in given if (made := type_made(kind, key, name)) not in (None, name)}
        part: dict[str, Any] = {"type": spec.model_type}
        if all(types.get(name) == spec.model_type for name in OTHER_TYPES) or hasattr(spec.config_class, "model_type"):
            part["fixed"] = True
        elif types:
            part["renamed"] = types
        part |= {"optional": True} if spec.optional else {}
        init = {name: value for name, value in spec.init_kwargs.items() if matters(spec.model_type, name)}
        part |= {"init": init} if init else {}
        part |= {"beneath": True} if beneath(kind, key, spec) else {}
        part |= {"instead": f"{key}_dict"} if instead(kind, key, spec) else {}
        found[key] = part
    return found


def source(kind: Any) -> str:
    """The code of a class that runs when it is made."""
    own = kind.__dict__.get("__post_init__")
    return inspect.getsource(own) if own and "/transformers/models/" in (inspect.getsourcefile(own) or "") else ""


def type_made(kind: Any, key: str, model_type: str) -> str | None:
    """The model type that a nested config comes to which names this one; None where the class refuses it."""
    config = built(kind, {key: {"model_type": model_type}})
    made = getattr(getattr(config, key, None), "model_type", None)
    return type(getattr(config, key)).model_type if made else None


def beneath(kind: Any, key: str, spec: Any) -> bool:
    """Whether what the class has for a nested config that is left out also stands beneath one that is there."""
    from transformers import CONFIG_MAPPING

    named = spec.model_type in CONFIG_MAPPING  # a part's class may have a type of its own (bark)
    plain = (spec.get_config_class(spec.model_type) if named else spec.config_class)()
    telling = {name for name, value in spec.init_kwargs.items() if getattr(plain, name, value) != value}
    made = getattr(built(kind, {key: {"model_type": spec.model_type}}), key, plain)
    return any(getattr(made, name, None) == spec.init_kwargs[name] for name in telling)


def instead(kind: Any, key: str, spec: Any) -> bool:
    """Whether `text_config_dict` and its like stand in the place of what the file says, as in CLIP."""
    if f'"{key}_dict"' not in source(kind) or not hasattr(spec.config_class, "model_type"):
        return False
    default = spec.config_class()
    numbers = [name for name, value in defaults_of_class(type(default)).items() if type(value) is int]
    says, other = ({name: 2 * getattr(default, name) for name in numbers[half::2]} for half in (0, 1))
    made, meant = built(kind, {key: says, f"{key}_dict": other}), built(spec.config_class, other)
    return made is not None and meant is not None and getattr(made, key).to_dict() == meant.to_dict()


def matters(model_type: str, key: str) -> bool:
    """Whether the table reads a key of a model type."""
    family = families().by_type.get(model_type)
    if family is None:
        return True
    return key == "model_type" or key in family.parts or key in keys_read(model_type)


def flat(kind: Any, family: Family) -> str | None:
    """The part that keys at the top reach where it is left out."""
    for key in family.parts:
        spec = kind.sub_configs_defaults.get(key)
        part = spec and families().by_type.get(spec.model_type)
        for name in sorted(keys_read(spec.model_type)) if part else ():
            config = built(kind, {name: 4242})
            if config is not None and getattr(getattr(config, key, None), name, None) == 4242:
                return str(key)
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What a config.json says that its class does not read: keys of other classes, and classes of other model types.

transformers passes over a key that its class does not have. What such a key says about width, layers, experts or gating
is then not so, or the file is another's: it is refused, unless it says what was counted anyway. The table and the
transformers route ask the same functions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Set
from typing import Any

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.variants import GATED
from ffnbench.models.families import families
from ffnbench.models.model import LayerGroup

Said = Mapping[str, Collection[Any]]  # field of a row -> the values that were read for it
HEADED = re.compile(r"(?P<stem>\w+?)(Model|For[A-Z]\w*|(With)?LMHeadModel|MTModel)")
STACK = frozenset({"d_ff", "layers", "stages"})  # what tells a nested config of layers from one of a projection


def refuse_foreign_keys(config: Mapping[str, Any], model_type: str, own: Collection[str], said: Said) -> None:
    """Raises FfnbenchError for a key that is none of its class's `own` and says another thing than what was read."""
    speaking = families().speaking
    for key, value in config.items():
        if key in own or value in (None, [], {}, ""):
            continue
        if isinstance(value, dict) and key.endswith("_config"):
            if any(speaking.get(name, frozenset()) & STACK for name in value):
                raise _foreign(model_type, key, "with layers of its own", own)
        elif key in speaking and not _says_the_same(value, speaking[key], said):
            raise _foreign(model_type, key, shown(value), own)


def _foreign(model_type: str, key: str, value: str, own: Collection[str]) -> FfnbenchError:
    speaking = families().speaking
    alike = sorted(name for name in own if speaking.get(name, frozenset()) & speaking.get(key, frozenset()))
    return FfnbenchError(
        f"the {model_type} config has {key} {value}, which is no key of its class and not what the class would build",
        (f"its class has {', '.join(alike[:3])}; " if alike else "")
        + f"take {key} out, or give the model_type it is of",
    )


def _says_the_same(value: Any, fields: frozenset[str], said: Said) -> bool:
    if value == 0 and not fields & {"bias", "gated"}:  # switched off, or none of them
        return True
    if isinstance(value, str):
        value = value in GATED or value.startswith("gated-")
    return any(value == each for field in fields for each in said.get(field, ()))


def said_by(groups: Iterable[LayerGroup]) -> dict[str, set[Any]]:
    """What layers that were read say."""
    found: dict[str, set[Any]] = {}
    layers: dict[str, int] = {}
    dense = {group.kind for group in groups if group.ffn.moe is None}
    for group in groups:
        ffn, moe = group.ffn, group.ffn.moe
        stack = group.kind.removesuffix("moe").strip() or "dense"
        layers[stack] = layers.get(stack, 0) + group.count
        shared = moe.shared_d_ff if moe else 0
        values = {
            "d_model": (ffn.d_model,), "d_ff": (ffn.d_ff, shared), "shared_d_ff": (shared,),
            "ratio": (ffn.d_ff / ffn.d_model,), "layers": (group.count,), "gated": (ffn.gated,), "bias": (ffn.bias,),
            "experts": (moe.experts if moe else 1,), "top_k": (moe.top_k if moe else 1,), "when": (moe is not None,),
            "shared": (shared // ffn.d_ff,), "first_dense": (group.count,) if moe is None else (),
            "layout": () if stack in dense and moe else (1,), "router_bias": (moe.router_bias,) if moe else (),
        }  # fmt: skip
        for field, each in values.items():
            found.setdefault(field, set()).update(each)
    found.setdefault("layers", set()).update(layers.values())
    return found


def class_named(config: Mapping[str, Any], model_type: str, known: Set[str]) -> str | None:
    """The class of `architectures`, where it matters which one it is; `known` are those of the model type.

    None where the file names none, or one that is the bare model with another head. Raises FfnbenchError for a class of
    another model type, and for what is no list of names.
    """
    names = config.get("architectures") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise FfnbenchError(
            f"the {model_type} config has architectures {shown(names)}", "a list with the name of a class"
        )
    classes, code = families().classes, of_its_own(config)
    for name in (*code, *names):
        if isinstance(classes.get(name), str):  # code of its own that is known
            return str(name)
    if not names or not known:
        return None
    name = str(names[0])
    if name in known:
        return name if name in classes else None
    if _stem(name) in map(_stem, known) and (name.endswith("WithLMHeadModel") or not known & classes.keys()):
        return None  # another head, or an older name of one
    whose = f"; its auto_map says whose code it would be: {', '.join(code)}" if code else ""
    raise FfnbenchError(
        f"the {model_type} config is of the class {name}, which is none of {model_type}'s{whose}",
        f"looked for the keys: architectures; without it the file is counted as {model_type}",
    )


def _stem(name: str) -> str:
    found = HEADED.fullmatch(re.sub("^(TF|Flax)", "", name))
    return found["stem"].lower() if found else name


def of_its_own(config: Mapping[str, Any]) -> list[str]:
    """The classes of models that `auto_map` names, without their repository: `modeling_bert.JinaBertModel`."""
    mapped = config.get("auto_map")
    given = mapped.items() if isinstance(mapped, dict) else ()
    return [
        value.rpartition("--")[2] for key, value in given if str(key).startswith("AutoModel") and isinstance(value, str)
    ]


def code_note(config: Mapping[str, Any], counted_as: str) -> str:
    """One line where `auto_map` names code that is not transformers' own; or nothing."""
    code = ", ".join(dict.fromkeys(of_its_own(config)))
    return f"auto_map: with trust_remote_code its code would be {code}; counted as {counted_as}" if code else ""


def shown(value: Any) -> str:
    """A value as JSON has it, cut."""
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."

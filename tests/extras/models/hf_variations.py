"""Files whose sizes are dropped, renamed, said twice: is any counted wrongly, and
nothing said?

A route is `table` or `transformers`. The truth is the model of transformers, built
without data and counted by exclusion (hf.by_exclusion), now and as it was before its
sizes were changed. An answer is right that is a refusal; or the count of the model that
is built now, if that is as it was before, or if the answer names each default that made
the difference. A size that its class takes from another one of the file is no default.
"""

from __future__ import annotations

import json
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hf

from ffnbench.common.errors import FfnbenchError

Data = dict[str, Any]
Dice = random.Random
# what model builders call sizes, in transformers, in other libraries and in papers:
# some of it nobody reads
ELSEWHERE = (
    "dim", "n_layers", "n_layer", "num_layers", "depth", "d_model", "n_embd", "n_embed", "embed_dim", "hidden_size",
    "num_hidden_layers", "d_ff", "n_inner", "ffn_dim", "hidden_dim", "intermediate_size", "ffn_hidden_size", "dff",
    "mlp_dim", "encoder_layers", "encoder_ffn_dim", "moe_intermediate_size", "num_experts", "num_local_experts",
    "n_routed_experts", "moe_num_experts", "num_experts_per_tok", "block_count", "modelWidth", "ff_width_x",
)  # fmt: skip
SIZE = (
    "layer",
    "depth",
    "size",
    "dim",
    "model",
    "embd",
    "inner",
    "ff",
    "expert",
    "blocks",
    "mlp_ratio",
    "heads",
)
SLOW = {"videomae", "esm"}
TIES_ALWAYS = {
    "mt5",
    "t5",
    "umt5",
}  # transformers' class, until it has read a file whose two matrices differ


@dataclass
class File:
    """A file, what was done to it, and the class's own names of the sizes that it no
    longer has.

    `foreign` are names that its class does not read; `twice` is said twice,
    differently.
    """

    data: Data
    done: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)


def places(data: Data) -> Iterator[Data]:
    """The file and its nested configs."""
    yield data
    yield from (
        part
        for key, part in data.items()
        if key.endswith("_config") and isinstance(part, dict)
    )


def sizes(part: Data) -> list[str]:
    return [k for k, v in part.items() if type(v) is int and v > 1 and any(word in k for word in SIZE)
            and "token" not in k and "vocab" not in k and "position" not in k]  # fmt: skip


def read_by_class(part: Data) -> set[str]:
    """What is there, and what the class of a part would read."""
    from transformers import CONFIG_MAPPING

    kind = part.get("model_type")
    own = CONFIG_MAPPING[kind].__dataclass_fields__ if kind in CONFIG_MAPPING else ()
    return {*part, *own, *aliases(part)}


def aliases(part: Data) -> dict[str, str]:
    from transformers import CONFIG_MAPPING

    kind = part.get("model_type")
    return CONFIG_MAPPING[kind].attribute_map if kind in CONFIG_MAPPING else {}


def drop(dice: Dice, file: File, part: Data, key: str) -> None:
    del part[key]
    file.gone.append(key)
    file.done.append(f"without {key}")


def rename(dice: Dice, file: File, part: Data, key: str) -> None:
    name = dice.choice([name for name in ELSEWHERE if name not in read_by_class(part)])
    part[name] = part.pop(key)
    file.gone.append(key)
    file.foreign.append(name)
    file.done.append(f"{key} as {name}")


def say_twice(dice: Dice, file: File, part: Data, key: str) -> None:
    own = read_by_class(part) - aliases(part).keys()
    name = dice.choice(
        [name for name in (*ELSEWHERE, *aliases(part)) if name not in own | part.keys()]
    )
    part[name] = part[key] * dice.choice((1, 2))
    file.done.append(f"{name} {part[name]} beside {key} {part[key]}")


def alias(dice: Dice, file: File, part: Data, key: str) -> None:
    known = {
        own: other
        for other, own in aliases(part).items()
        if own in part and type(part[own]) is int
    }
    if not known:
        return drop(dice, file, part, key)
    own = dice.choice(sorted(known))
    part[known[own]] = part.pop(own)
    file.done.append(f"{own} by its alias {known[own]}")
    if dice.random() < 0.3:
        part[own] = part[known[own]] * 2
        file.done.append(f"and {own} {part[own]}")
    return None


def double(dice: Dice, file: File, part: Data, key: str) -> None:
    part[key] *= 2
    file.done.append(f"{key} {part[key]}")


CHANGES: tuple[Callable[[Dice, File, Data, str], None], ...] = (
    drop,
    drop,
    rename,
    rename,
    rename,
    say_twice,
    alias,
)


def base(model_type: str, dice: Dice) -> Data:
    """A file with every key, and sizes that are none of the class's defaults where it
    can be built so.
    """
    data = hf.default(model_type)
    for part in places(data):
        for key in sizes(part):
            if any(
                word in key
                for word in (
                    "intermediate",
                    "ff",
                    "inner",
                    "hidden_size",
                    "d_model",
                    "n_embd",
                )
            ):
                part[key] *= 2
    return data if built(data) else hf.default(model_type)


def built(data: Data) -> tuple[int, int | None] | None:
    """Parameters of the FFNs and of all, as transformers builds it; None where it does
    not.
    """
    import torch
    import transformers
    from transformers import CONFIG_MAPPING, AutoModel

    from ffnbench.extras.models.transformers import build_whole

    try:
        with warnings.catch_warnings(), torch.device("meta"):
            warnings.simplefilter("ignore")
            config = CONFIG_MAPPING[data["model_type"]].from_dict(
                json.loads(json.dumps(data))
            )
            named = [
                getattr(transformers, name) for name in data.get("architectures", ())
            ]
            model = named[0](config) if named else AutoModel.from_config(config)
            counts = hf.by_exclusion(model)
            whole = None if named else build_whole(config).num_parameters()
    except Exception:
        return None
    if (
        whole
        and data["model_type"] in TIES_ALWAYS
        and data.get("tie_word_embeddings") is False
    ):
        whole += data["vocab_size"] * config.d_model
    return sum(size * count for size, count in counts.items()), whole


def answer(path: str, route: str) -> tuple[int, int | None, str]:
    """The same two by ffnbench, and the defaults that it names."""
    if route == "table":
        from ffnbench.extras.models.counting import count_model, whole_model
        from ffnbench.models.presets import model_of

        model = model_of(path)
        counted, whole = count_model(model), whole_model(model).params
    else:
        from ffnbench.extras.models.transformers import count_layers, count_whole

        counted, whole = count_layers(path), count_whole(path).params
    return (
        sum(layers.count * layers.params for layers in counted.layers),
        whole,
        counted.defaults,
    )


def matters(key: str, plain: Data) -> bool:
    """Whether the FFNs of a plain file depend on a key: with twice of it they are
    others.
    """
    data = json.loads(json.dumps(plain))
    for part in places(data):
        if type(part.get(key)) is int:
            part[key] *= 2
    now, before = built(data), built(plain)
    return now is not None and before is not None and now[0] != before[0]


def derived(key: str, plain: Data) -> bool:
    """Whether a class that finds no such key takes it from another one, as T5's decoder
    is as deep as its encoder.
    """
    from transformers import CONFIG_MAPPING

    kinds = [CONFIG_MAPPING[part["model_type"]].__dataclass_fields__ for part in places(plain)
             if part.get("model_type") in CONFIG_MAPPING]  # fmt: skip
    return any(key in kind and kind[key].default is None for kind in kinds)


def judged(
    file: File, plain: Data, before: tuple[int, int | None], folder: Path, route: str
) -> str:
    """`refused`, `right`, `named`, or what is wrong; "unbuildable" where there is no
    truth.
    """
    try:
        ffns, whole, named = answer(hf.written(folder, file.data), route)
    except FfnbenchError:
        return "refused"
    now = built(file.data)
    if now is None:
        return "unbuildable"
    if ffns != now[0]:
        return f"WRONG: FFNs {ffns:,}, transformers {now[0]:,}"
    if None not in (whole, now[1]) and whole != now[1]:
        return f"WRONG: all {whole:,}, transformers {now[1]:,}"
    said = {
        own
        for part in places(file.data)
        for other, own in aliases(part).items()
        if other in part
    }
    unnamed = [key for key in file.gone if f"{key} " not in named and key not in said]
    if now[0] != before[0] and (
        unnamed := [k for k in unnamed if matters(k, plain) and not derived(k, plain)]
    ):
        return f"WRONG: FFNs {ffns:,} for {before[0]:,}, unnamed {unnamed}"
    return "named" if now[0] != before[0] and file.gone else "right"


def types_of(route: str) -> list[str]:
    from transformers import CONFIG_MAPPING

    from ffnbench.models.family_reader import families

    table = [name for name in families().types if name not in SLOW]
    return table if route == "table" else sorted({*CONFIG_MAPPING} - SLOW)


def default_file(model_type: str) -> Data:
    from transformers import CONFIG_MAPPING

    data: Data = json.loads(
        json.dumps(CONFIG_MAPPING[model_type]().to_dict(), default=str)
    )
    return data


def variations(
    seed: str, count: int, route: str, folder: Path
) -> Iterator[tuple[str, File, str]]:
    """So many files of types drawn at random, and how each was answered."""
    dice = Dice(seed)
    types, bases = (
        types_of(route),
        dict[str, tuple[Data, tuple[int, int | None]] | None](),
    )
    given = 0
    while given < count:
        kind = dice.choice(types)
        if kind not in bases:
            bases[kind] = usable(kind, dice, route, folder)
        if bases[kind] is None:
            continue
        data, before = bases[kind]
        file = File(json.loads(json.dumps(data)))
        for change in ([double] if dice.random() < 0.3 else []) + dice.choices(
            CHANGES, k=dice.choice((1, 1, 2, 3))
        ):
            part = dice.choice(list(places(file.data)))
            if keys := [key for key in sizes(part) if key not in file.foreign]:
                change(dice, file, part, dice.choice(sorted(keys)))
            if change is double and (doubled := built(file.data)):
                before = doubled
        if not file.done:
            continue
        given += 1
        yield kind, file, judged(file, data, before, folder, route)


def usable(
    kind: str, dice: Dice, route: str, folder: Path
) -> tuple[Data, tuple[int, int | None]] | None:
    """A type's file and its truth; None where nothing can be built, or the oracle can't
    tell its FFNs apart.
    """
    try:
        data = base(kind, dice) if kind in types_of("table") else default_file(kind)
    except Exception:
        return None
    data.pop("architectures", None)
    before = built(data)
    if before is None or not before[0]:
        return None
    try:
        found = answer(hf.written(folder, data), route)[0]
    except FfnbenchError:
        return None
    except Exception as problem:
        print(f"{kind}: the plain file raises {problem!r}", file=sys.stderr)
        return None
    if found != before[0]:
        print(
            f"{kind}: the plain file has {found:,}, by exclusion {before[0]:,}",
            file=sys.stderr,
        )
        return None
    return data, before

"""Configs that differ from a type's default in any of its keys, beside transformers' own models of them.

`python tests/hf_vary.py one TYPE...` varies every key of the default config by itself, `pairs` two at once of those
that change the model's FFNs, `random` 2 to 6 of all, `foreign` those and a key of another family, `classes` the class
that `architectures` names; `all` is every type that the table reads (`classes`: that transformers has). `--seed N` and
`--count N`, the variations a type; `--routes both` asks the names of modules as well as the table. It prints one JSON
line a type, and a sum. `random` draws half of its keys from those that the classes of the type read (golden/keys.json),
and half from all.

A key of another family is one that changes the FFNs of that family's built model, and is no attribute of the config
that the type's class makes of the file without it. The model is then built as if it were not there, so that any answer
to a file with a number that is nowhere else in it is wrong; a switch may say what holds anyway. `foreign --write` finds
those keys anew and writes golden/foreign.json.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import signal
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from hf import Counts, agree, apart, by_exclusion, ours, theirs
from hf_sparse import COMMON

from ffnbench.errors import FfnbenchError
from ffnbench.models.configs import HF_ACTIVATIONS
from ffnbench.models.families import families
from ffnbench.models.transformers import build_empty, classes_of, count_layers

Data = dict[str, Any]
Where = tuple[str, ...]  # a key, or the way to one in a nested part
GOLDEN = Path(__file__).parent / "golden" / "keys.json"
FOREIGN = GOLDEN.with_name("foreign.json")
MOST = 4  # layers
LEFT_OUT = object()
COUNTS = re.compile(r"^(num_hidden_layers|n_layers?|num_layers|depth|((num_)?(encoder|decoder)_layers))$")
FILLED: dict[str, Data] = {  # of the rest, what the default leaves out and no model can be built without
    "autoformer": {"prediction_length": 4, "context_length": 12, "lags_sequence": [1, 2]},
    "chameleon": {"vocabulary_map": {"<image>": 3}},
    "dbrx": {"attn_config": {"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 10000.0}},
    "deepseek_v2": {"num_experts_per_tok": 2},  # the class's default is no model's
    "dots1": {"n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1},
    "esm": {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 2},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128, "num_experts": 4, "moe_topk": 2},
    "hunyuan_vl_text": {"head_dim": 128},
    "informer": {"prediction_length": 4, "context_length": 12, "lags_sequence": [1, 2]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 16},
    "ministral": {"head_dim": 128},
    "moonshine_streaming": {"num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 40},
    "nemotron": {"head_dim": 128, "num_key_value_heads": 8},
    "t5gemma2_decoder": {"dropout_rate": 0.0},
    "t5gemma2_text": {"dropout_rate": 0.0},
    "time_series_transformer": {"prediction_length": 4, "context_length": 12, "lags_sequence": [1, 2]},
    "videomae": {"image_size": 32},  # its table of positions is made by Python
}
WIDTHS = re.compile(r"hidden_size$|d_model$|n_embd$|embed_dim$|^dim$|heads?$|vocab|head_dim$")
# with activations of their own, which may be learned
ELSEWHERE = {
    "conv_activation",
    "feat_extract_activation",
    "hidden_size_per_layer_input",
    "nemo_activation",
    "num_upscale_blocks",
}
SKIPPED = frozenset({"model_type", "transformers_version", "architectures", "dtype", "_name_or_path"})


class TookTooLong(Exception):
    """One build that hangs costs itself alone."""


def kind_of(model_type: str) -> Any:
    """transformers' config class."""
    from transformers import CONFIG_MAPPING

    return CONFIG_MAPPING[model_type]


def built(kind: Any, data: Data, seconds: float = 4) -> Counts:
    """The FFNs of a config's model; raises TookTooLong after so many seconds of computing."""

    def stop(*_: Any) -> None:
        raise TookTooLong

    signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        return theirs(kind.from_dict(json.loads(json.dumps(data))))
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def small(model_type: str) -> tuple[Data, Counts]:
    """The default config with at most four layers, one of each kind of the default's at least, and its FFNs.

    The whole default where no such config was found.
    """
    kind = kind_of(model_type)
    default = kind._decode_special_floats(json.loads(kind().to_json_string())) | FILLED.get(model_type, {})
    default["model_type"] = model_type
    all_kinds = built(kind, default, 60)
    for layers in (2, 3, MOST):
        try:
            data = shrunk(default, layers)
            found = built(kind, data)
        except Exception:
            continue
        if found.keys() == all_kinds.keys():
            return data, found
    return default, all_kinds


def shrunk(data: Data, layers: int) -> Data:
    """With that many layers: lists of one entry a layer keep one of each kind, numbers of layers become as small."""
    data = {k: shrunk(v, layers) if isinstance(v, dict) and "model_type" in v else v for k, v in data.items()}
    if "stage_names" in data or "out_indices" in data:
        data = {k: v for k, v in data.items() if k not in ("stage_names", "out_features", "out_indices")}
    counts = {key: value for key, value in data.items() if COUNTS.match(key) and isinstance(value, int)}
    own = data.get("per_layer_config") or {}
    for number in set(counts.values()):
        lists = {key: value for key, value in data.items() if isinstance(value, list) and len(value) == number}
        alike = [json.dumps([[v[i] for v in lists.values()], own.get(str(i))]) for i in range(number)]
        keep = sorted(sorted(range(number), key=lambda i: (alike.index(alike[i]) != i, i))[:layers])
        data |= {key: [value[i] for i in keep] for key, value in lists.items()}
        data |= {key: len(keep) for key, value in counts.items() if value == number}
        if own:
            data["per_layer_config"] = {str(i): own[str(k)] for i, k in enumerate(keep) if str(k) in own}
    for key, value in data.items():
        if key in counts or isinstance(value, bool):
            continue
        if (
            isinstance(value, int)
            and value > 1
            and re.search(r"first_k_dense|(period|interval|step|freq|pattern)$", key)
        ):
            data[key] = 1 if key.startswith("first") else 2
        elif isinstance(value, int) and value > 1 and key.endswith("_offset"):
            data[key] = 1
        elif re.search(r"ind(ex|ic)|moe_layers|only_layers|layer_ids", key) and numbers(value):
            data[key] = [each for each in value if each < layers] or [layers - 1]
    return data


def numbers(value: Any) -> bool:
    """A list of some whole numbers."""
    return isinstance(value, list) and {type(each) for each in value} == {int}


def leaves(data: Data, at: Where = ()) -> Iterator[tuple[Where, Any]]:
    """Every key with its value, those of nested parts too."""
    for key, value in data.items():
        if key in SKIPPED:
            continue
        if isinstance(value, dict) and value and all(isinstance(each, str) for each in value):
            yield from leaves(value, (*at, key))
        else:
            yield (*at, key), value


def changed(data: Data, change: dict[Where, Any]) -> Data:
    """A copy with other values; lists of an entry a layer are as long as there are layers then."""
    data = json.loads(json.dumps(data))
    for (*way, key), value in change.items():
        inner = data
        for step in way:
            inner = inner[step]
        if value is LEFT_OUT:
            inner.pop(key, None)
        else:
            for name, of_each in list(inner.items()) if COUNTS.match(key) and value else ():
                if (*way, name) not in change and isinstance(of_each, list) and len(of_each) == inner.get(key):
                    inner[name] = (of_each * MOST)[:value]
            inner[key] = value
    return data


def words(kind: Any, key: str) -> list[str]:
    """The words that a type's source holds a key against, or that its annotation allows."""
    import importlib
    import inspect

    found: list[str] = []
    for name in (kind.__module__, kind.__module__.replace("configuration_", "modeling_")):
        try:
            text = inspect.getsource(importlib.import_module(name))
        except (ImportError, OSError):
            continue
        for match in re.finditer(rf"\b{re.escape(key)}\b([^\n]*)", text):
            if re.search(r"==|!=| in |Literal", match[1]):
                found += re.findall(r"[\"'](\w[\w-]*)[\"']", match[1])
    return sorted({*found})


def values(kind: Any, where: Where, value: Any, data: Data) -> list[Any]:
    """Other values that a key may have."""
    key = where[-1]
    said = annotation(kind, key)
    null = [None] if "None" in said or not said else []
    if isinstance(value, bool):
        return [not value]
    if COUNTS.match(key):
        return [v for v in range(MOST + 1) if v != value]
    if isinstance(value, int):
        sizes = (value * 2, max(1, value // 2), value + 64, value * 4)  # heads and groups still divide them
        if not WIDTHS.search(key):
            sizes = (*sizes, value + 1, 1, 2, 3, 0)
        return [v for v in sizes if v != value] + null
    if isinstance(value, float):
        return [v for v in (value * 2, value / 2, 0.25, 1.0) if v != value] + null
    if isinstance(value, str):
        named = words(kind, key)
        if value.lower() in HF_ACTIVATIONS or re.search(r"act(ivation)?(_fn|_function)?$", key):
            named = [*HF_ACTIVATIONS, *named]
        if {*data, key} & ELSEWHERE:
            named = [name for name in named if name not in ("prelu", "xielu")]
        if key == "feed_forward_proj":
            named = ["relu", "gelu", "gated-gelu", "gated-silu", "gated-relu", "silu"]
        return [v for v in (*named, "other") if v != value]
    if isinstance(value, list):
        kinds = [*dict.fromkeys(map(json.dumps, value))]
        swapped = [json.loads(kinds[(kinds.index(json.dumps(each)) + 1) % len(kinds)]) for each in value]
        first = [json.loads(w) for w in kinds[:1]] * len(value)
        named = [[word] * len(value) for word in words(kind, key)]
        return [v for v in (value[::-1], value[:-1], value[1:], swapped, first, [], None, *named) if v != value]
    if value is None:
        named = words(kind, key)
        width = next((data[k] for k in ("hidden_size", "d_model", "n_embd") if isinstance(data.get(k), int)), 64)
        of_kind = {
            "int": [1, 2, 64, width, 2 * width], "bool": [True, False], "float": [0.5, 2.0], "list": [[0], [1], []],
            "str": named, "dict": [{}],
        }  # fmt: skip
        some = [v for word, choices in of_kind.items() if re.search(rf"\b{word}\b", said or word) for v in choices]
        return some or [1, "other"]
    return [{}, *null]


def annotation(kind: Any, key: str) -> str:
    """What a config's class says about the type of a key; nothing where it says nothing."""
    field = getattr(kind, "__dataclass_fields__", {}).get(key)
    return (
        ""
        if field is None
        else str(getattr(field.type, "__name__", "") if isinstance(field.type, type) else field.type)
    )


def drawn(rng: random.Random, kind: Any, where: Where, value: Any, data: Data) -> Any:
    """One of them; now and then the key is left out."""
    if rng.random() < 0.08:
        return LEFT_OUT
    return rng.choice(values(kind, where, value, data))


def read_keys(model_type: str) -> list[str]:
    """The keys that the type's classes read, by the golden list; none before there is one."""
    if not GOLDEN.exists():
        return []
    return str(json.loads(GOLDEN.read_text(encoding="utf-8"))["keys"].get(model_type, "")).split()


def changes(mode: str, model_type: str, data: Data, base: Counts, count: int, seed: int) -> Iterator[dict[Where, Any]]:
    """What to change, one variation after another."""
    rng = random.Random(f"{seed} {mode} {model_type}")
    kind, known = kind_of(model_type), dict(leaves(data))
    known |= {(alias,): data.get(key) for alias, key in kind.attribute_map.items() if alias not in data}
    known |= {(key,): None for key in read_keys(model_type) if key not in data and (key,) not in known}
    if mode == "one":
        for where, value in known.items():
            others = values(kind, where, value, data)
            for other in rng.sample(others, min(count, len(others))):
                yield {where: other}
        return
    if mode == "pairs":
        matter = []
        for where, value in known.items():
            others = values(kind, where, value, data)
            for other in rng.sample(others, min(3, len(others))):
                try:
                    if built(kind, changed(data, {where: other})) != base:
                        matter.append((where, other))
                except (Exception, TookTooLong):
                    continue
        both = [
            dict(pair)
            for pair in ((a, b) for i, a in enumerate(matter) for b in matter[:i])
            if pair[0][0] != pair[1][0]
        ]
        yield from rng.sample(both, min(count, len(both)))
        return
    read = [where for where in known if where[-1] in set(read_keys(model_type))]
    for _ in range(count):
        wanted = rng.randint(2, 6)
        some: dict[Where, Any] = {}
        while len(some) < min(wanted, len(known)):
            where = rng.choice(read if read and rng.random() < 0.5 else list(known))
            some.setdefault(where, drawn(rng, kind, where, known[where], data))
        yield some


def shown(change: dict[Where, Any]) -> str:
    """As it is printed."""
    return ", ".join(f"{'.'.join(w)}={'-' if v is LEFT_OUT else json.dumps(v)}" for w, v in change.items())


def by_names(data: Data) -> Counts:
    """As `ffnbench inspect` counts where the table has no answer."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "config.json"
        file.write_text(json.dumps(data), encoding="utf-8")
        found: Counts = Counter()
        for layers in count_layers(str(file)).layers:
            found[layers.params] += layers.count
        return found


ROUTES = {"table": ours, "names": by_names}


def held(data: Data, expected: Counts | None, routes: Iterable[str], tally: Counter[str]) -> list[str]:
    """What each route says of a file; nothing at all may be said where `expected` is None."""
    wrong = []
    for route in routes:
        try:
            found = ROUTES[route](data)
        except FfnbenchError:
            tally[f"{route} refused"] += 1
            continue
        good = expected is not None and agree(found, expected)
        tally[f"{route} {'same' if good else 'wrong'}"] += 1
        wrong += [] if good else [f"{route}: {dict(found)} against {dict(expected or {})}"]
    return wrong


def vary(model_type: str, mode: str, count: int, seed: int, routes: Iterable[str]) -> dict[str, Any]:
    """How many variations of a type read as built, are refused, can't be built, and which are wrong."""
    kind = kind_of(model_type)
    tally: Counter[str] = Counter()
    wrong, matter = [], set()
    try:
        data, base = small(model_type)
    except (Exception, TookTooLong) as problem:
        return {"status": "unbuildable", "why": f"{type(problem).__name__}: {problem}"[:200]}
    rng = random.Random(f"{seed} foreign {model_type}")
    for change in changes("random" if mode == "foreign" else mode, model_type, data, base, count, seed):
        other, key = changed(data, change), None
        try:
            expected = built(kind, other)
            if mode == "foreign":
                key, value = foreign_key(kind, other, rng)
                other = other | {key: value}
                if built(kind, other) != expected:
                    raise TookTooLong  # not passed over after all
        except (Exception, TookTooLong):
            tally["unbuildable"] += 1
            continue
        tally["built"] += 1
        if expected != base:
            matter |= {".".join(where) for where in change}
        found = held(other, None if key and type(other[key]) is int else expected, routes, tally)
        wrong += [f"{shown(change)} {key and {key: other[key]}}: {each}" for each in found]
    answer = {"status": "wrong" if wrong else "exact", "tally": tally, "wrong": wrong}
    return answer | ({"matter": sorted(matter)} if mode == "one" else {}) | {"layers": sum(base.values())}


def foreign_key(kind: Any, data: Data, rng: random.Random) -> tuple[str, Any]:
    """A key of another family, with a value that nothing in the file has."""
    config = kind.from_dict(json.loads(json.dumps(data)))
    text = json.dumps(data)
    pool = {k: v for k, v in json.loads(FOREIGN.read_text(encoding="utf-8"))["keys"].items() if not hasattr(config, k)}
    key = rng.choice(sorted(pool))
    some = pool[key] if bool in map(type, pool[key]) else [13, 17, 1111, 4243]  # and no ratio of what is there
    free = [value for value in some if type(value) is bool or not re.search(rf"\b{value}\b", text)]
    return key, rng.choice(free)


def telling_keys() -> dict[str, list[Any]]:
    """Keys at the top of common types' configs that change the FFNs of their models, with values that do."""
    found: dict[str, list[Any]] = {}
    for model_type in [
        *COMMON,
        "dinov2_with_registers",
        "ctrl",
        "xlnet",
        "dbrx",
        "ernie4_5_moe",
        "switch_transformers",
    ]:
        try:
            (data, base), kind = small(model_type), kind_of(model_type)
        except (Exception, TookTooLong):
            continue
        for key, value in data.items():
            if type(value) is not int and type(value) is not bool:
                continue
            for other in [not value] if type(value) is bool else [3, 7, 2 * value, value + 192]:
                try:
                    tells = built(kind, data | {key: other}) != base
                except (Exception, TookTooLong):
                    continue
                if tells and other not in found.setdefault(key, []):
                    found[key].append(other)
    return {key: sorted(some) for key, some in sorted(found.items()) if some}


def write_foreign() -> None:
    """Write the keys, and files of common types with one of them each that transformers passes over."""
    import transformers

    made: dict[str, Any] = {"transformers": transformers.__version__, "keys": telling_keys(), "files": []}
    FOREIGN.write_text(json.dumps(made), encoding="utf-8")
    rng = random.Random("foreign")
    for model_type in COMMON * 4:
        kind, data = kind_of(model_type), {"model_type": model_type}
        default = json.loads(kind().to_json_string())
        key, value = foreign_key(kind, default, rng)
        if type(value) is int:
            made["files"].append({"config": data | {key: value}, "key": key})
    text = json.dumps(made).replace('}, {"config"', '},\n{"config"')
    FOREIGN.write_text(text + "\n", encoding="utf-8", newline="\n")


def classes(model_type: str, routes: Iterable[str]) -> dict[str, Any]:
    """Every class of a type by `architectures`, on a small config, and one that is none of its."""
    kind, tally = kind_of(model_type), Counter[str]()
    try:
        data, _ = small(model_type)
        named = classes_of(kind)
    except (Exception, TookTooLong) as problem:
        return {"status": "unbuildable", "why": f"{type(problem).__name__}: {problem}"[:200]}
    wrong = []
    for name, each in named.items():
        file = data | {"architectures": [name]}
        try:
            expected = by_exclusion(build_empty(kind.from_dict(json.loads(json.dumps(file))), each))
        except Exception:
            tally["unbuildable"] += 1
            continue
        tally["built"] += 1
        wrong += [f"{name}: {told}" for told in held(file, expected, routes, tally)]
    other = "LlamaForCausalLM" if model_type != "llama" else "GPT2LMHeadModel"
    wrong += [f"{other}: {told}" for told in held(data | {"architectures": [other]}, None, routes, tally) if named]
    return {"status": "wrong" if wrong else "exact", "tally": tally, "wrong": wrong}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=["one", "pairs", "random", "foreign", "classes"])
    parser.add_argument("types", nargs="*")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=15)
    parser.add_argument("--routes", choices=["table", "names", "both"], default="table")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    if asked.write:
        write_foreign()
        return
    from transformers import CONFIG_MAPPING

    types = [name for name, family in sorted(families().by_type.items()) if family.stacks and name in CONFIG_MAPPING]
    types = sorted(CONFIG_MAPPING) if asked.mode == "classes" else types
    routes = [*ROUTES] if asked.routes == "both" else [asked.routes]
    total: Counter[str] = Counter()
    for name in types if asked.types == ["all"] else asked.types:
        if asked.mode == "classes":
            line = apart(lambda name: classes(name, routes), name, seconds=300)
        else:
            line = apart(lambda name: vary(name, asked.mode, asked.count, asked.seed, routes), name, seconds=300)
        total.update(line.get("tally", {line["status"]: 1}))
        print(json.dumps(line), flush=True)
    print(json.dumps({"type": "all", "seed": asked.seed, "tally": total}), flush=True)


if __name__ == "__main__":
    import torch  # noqa: F401 - before the forks, which then need not
    import transformers.modeling_utils

    transformers.logging.set_verbosity_error()
    main()

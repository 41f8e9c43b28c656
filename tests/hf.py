"""Our reading of a config.json beside transformers' own model of it, for one model type after another.

`python tests/hf.py exact TYPE...`, `vary TYPE...` or `attention TYPE...` prints one JSON line a type; `all` is every
type of transformers.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import warnings
from collections import Counter
from typing import Any

from ffnbench.errors import FfnbenchError
from ffnbench.ffn import cost
from ffnbench.models.configs import read_groups
from ffnbench.models.families import Or, Stack, families
from ffnbench.models.transformers import IN_A_LAYER, build_empty, feed_forwards

Counts = Counter[int]  # parameters of an FFN -> how many layers have one like it


def ours(data: dict[str, Any]) -> Counts:
    """By the table of families."""
    found: Counts = Counter()
    for group in read_groups(data):
        found[cost.params(group.ffn)] += group.count
    return found


def theirs(config: Any) -> Counts:
    """By building the model."""
    return Counter(found.params for found in feed_forwards(build_empty(config)))


def attention(model_type: str) -> dict[str, Any]:
    """As `vary` does: the attention of the default config, and of such as differ from it in one key."""
    from transformers import CONFIG_MAPPING

    kind = CONFIG_MAPPING[model_type]
    default = json.loads(kind().to_json_string())
    if "head_dim" in default and default["head_dim"] is None:
        default |= {"head_dim": 48}
    tally: Counter[str] = Counter()
    wrong = []
    for name, data in [("default", default), *heads_varied(model_type, default)]:
        try:
            expected = built_attentions(kind.from_dict(json.loads(json.dumps(data))))
            found: Counts = Counter()
            groups = read_groups(data)
        except Exception:
            tally["unbuildable"] += 1
            continue
        if any(group.attention is None for group in groups):
            tally["unknown"] += 1
            continue
        for group in groups:
            crosses = group.kind == "decoder" and any(other.kind == "encoder" for other in groups)
            found[group.attention.params] += group.count * (2 if crosses else 1)  # type: ignore[union-attr]
        tally["same" if found == expected else "wrong"] += 1
        if found != expected:
            wrong.append(f"{name}: {dict(found)} against {dict(expected)}")
    return {"status": "wrong" if wrong or not tally["same"] else "exact", "tally": tally, "wrong": wrong}


def heads_varied(model_type: str, default: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Every truth value turned, every key of the attention changed and left out."""
    keys = {"head_dim", "num_key_value_heads", "kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "v_head_dim"}
    keys |= {stack.attention.heads for stack in stacks_of(model_type) if stack.attention} | {"d_kv"}
    found = [(f"{k}={not v}", default | {k: not v}) for k, v in default.items() if isinstance(v, bool)]
    for key in sorted(keys & default.keys()):
        value = default[key]
        if isinstance(value, int):
            found += [(f"{key}={new}", default | {key: new}) for new in (value * 2, value // 2, 2, 1) if new]
        found.append((f"without {key}", {k: v for k, v in default.items() if k != key}))
        found.append((f"{key}=null", default | {key: None}))
    return found


def built_attentions(config: Any) -> Counts:
    """Parameters of the attentions of a built model, without norms and tables of positions."""
    from torch import nn

    found: Counts = Counter()
    inside: tuple[str, ...] = ()
    for name, module in build_empty(config).named_modules():
        named = type(module).__name__.endswith("Attention") and IN_A_LAYER.search(name)
        if not named or (inside and name.startswith(inside)):
            continue
        inside = (*inside, f"{name}.")
        parts = [m for m in module.modules() if not isinstance(m, nn.Embedding) and "Norm" not in type(m).__name__]
        found[sum(p.numel() for m in parts for n, p in m.named_parameters(recurse=False) if n != "sinks")] += 1
    return found


def exact(model_type: str) -> dict[str, Any]:
    """The default config as transformers writes it: `exact`, `refused` by our table, `wrong`, or `unbuildable`."""
    from transformers import CONFIG_MAPPING

    try:
        config = CONFIG_MAPPING[model_type]()
        data, expected = json.loads(config.to_json_string()), theirs(config)
    except Exception as problem:
        return {"status": "unbuildable", "why": str(problem)[:200]}
    if not expected:
        return {"status": "no FFN"}
    try:
        found = ours(data)
    except FfnbenchError as problem:
        return {"status": "refused", "why": problem.message}
    return {"status": "exact" if found == expected else "wrong", "ours": found, "theirs": expected}


def vary(model_type: str) -> dict[str, Any]:
    """Configs that differ from the default in one key each: how many read as built, refused, and which are wrong."""
    from transformers import CONFIG_MAPPING

    kind = CONFIG_MAPPING[model_type]
    default = json.loads(kind().to_json_string())
    tally: Counter[str] = Counter()
    wrong = []
    for name, data in variations(model_type, default):
        try:
            expected = theirs(kind.from_dict(json.loads(json.dumps(data))))
        except Exception:
            tally["unbuildable"] += 1
            continue
        try:
            found = ours(data)
        except FfnbenchError:
            tally["refused"] += 1
            continue
        tally["same" if found == expected else "wrong"] += 1
        if found != expected:
            wrong.append(f"{name}: {dict(found)} against {dict(expected)}")
    return {"status": "wrong" if wrong else "exact", "tally": tally, "wrong": wrong}


def variations(model_type: str, default: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Every truth value turned, every number that the table reads changed, every key that it reads left out."""
    found = []
    for key, value in default.items():
        if isinstance(value, bool):
            found.append((f"{key}={not value}", default | {key: not value}))
    for key in sorted(keys_of(model_type) & default.keys()):
        value = default[key]
        if isinstance(value, int) and not isinstance(value, bool):
            found += [(f"{key}={new}", default | {key: new}) for new in (value + 64, value * 2, 2) if new != value]
        if isinstance(value, float):
            found.append((f"{key}={value + 1}", default | {key: value + 1}))
        found.append((f"without {key}", {k: v for k, v in default.items() if k != key}))
        found.append((f"{key}=null", default | {key: None}))
    return found


def keys_of(model_type: str) -> set[str]:
    """Every key that the table names for a type."""
    keys: set[str] = {"first_k_dense_replace", "decoder_sparse_step", "mlp_layer_types"}
    for stack in stacks_of(model_type):
        parts: list[Stack | Any] = [stack] + ([stack.experts] if stack.experts else [])
        for part in parts:
            for name in part.__dataclass_fields__:
                value = getattr(part, name)
                if isinstance(value, Or):
                    keys.add(value.key)
                elif isinstance(value, str) and name not in ("kind", "acts_as", "layout"):
                    keys.add(value)
        keys |= {key for key, _ in stack.assumes} | set(stack.absent)
    return keys


def stacks_of(model_type: str) -> tuple[Stack, ...]:
    """Its stacks by the table of families."""
    return families().by_type[model_type].stacks


def apart(work: Any, model_type: str, seconds: float = 120) -> dict[str, Any]:
    """One type in a fork of its own, so that a hang or a crash costs that type alone."""
    fork = multiprocessing.get_context("fork")
    read, write = fork.Pipe(False)

    def child() -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        warnings.simplefilter("ignore")
        try:
            write.send(work(model_type))
        except BaseException as problem:
            write.send({"status": "crashed", "why": f"{type(problem).__name__}: {problem}"[:200]})

    process = fork.Process(target=child)
    process.start()
    result: dict[str, Any] = read.recv() if read.poll(seconds) else {"status": "timeout"}
    process.kill()
    process.join()
    return {"type": model_type, **result}


if __name__ == "__main__":
    import torch  # noqa: F401 - before the forks, which then need not
    import transformers.modeling_utils

    transformers.logging.set_verbosity_error()
    work, types = {"exact": exact, "vary": vary, "attention": attention}[sys.argv[1]], sys.argv[2:]
    for name in sorted(transformers.CONFIG_MAPPING.keys()) if types == ["all"] else types:
        print(json.dumps(apart(work, name)), flush=True)

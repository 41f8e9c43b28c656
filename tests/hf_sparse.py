"""Sparse files beside what transformers builds of them: most keys left out, some changed, nested configs left out.

`python tests/hf_sparse.py SEED FILES TYPE...` draws so many files for each type (`all`: every type of the table), all
of which transformers can build, and prints one JSON line a type. `python tests/hf_sparse.py golden` writes
tests/golden/sparse.json with the answers of transformers: a hundred types at their defaults, two hundred sparse files.
What is drawn from are the fields of the config classes, not the table of families.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import operator
import random
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from hf import agree, apart, built_attentions, theirs

from ffnbench.errors import FfnbenchError
from ffnbench.ffn import cost
from ffnbench.models.configs import Unanswered, read_groups
from ffnbench.models.families import families

GOLDEN = Path(__file__).parent / "golden" / "sparse.json"
LAYERS = ("layer", "depth", "blocks")  # in the name of a key: drawn small, so that models stay small
TRIES = 12  # of drawing a file that can be built
COMMON = [  # of the golden types; the rest of the hundred are drawn
    "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi", "phi3", "gpt2", "gpt_neox", "gptj",
    "falcon", "opt", "bert", "roberta", "distilbert", "modernbert", "t5", "mt5", "bart", "whisper", "vit", "dinov2",
    "clip", "siglip", "llava", "paligemma", "gemma3", "qwen2_vl", "qwen2_5_vl", "llama4", "llama4_text", "mistral3",
    "mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3", "gpt_oss", "jamba", "olmoe", "granite", "cohere",
    "starcoder2", "stablelm", "smollm3", "wav2vec2", "sam_vision_model", "depth_anything",
]  # fmt: skip


def draw(kind: Any, rng: random.Random) -> dict[str, Any]:
    """A sparse file of a config class: it holds few of the fields, some of them changed, some under another name."""
    from transformers import CONFIG_MAPPING

    parts = kind.sub_configs_defaults
    other: dict[str, list[str]] = {}
    for alias, name in kind.attribute_map.items():
        other.setdefault(name, []).append(alias)
    share = rng.choice((0.0, 0.1, 0.3, 0.6))
    found: dict[str, Any] = {}
    for each in dataclasses.fields(kind):
        value = each.default_factory() if each.default is dataclasses.MISSING else each.default
        if each.name in parts or isinstance(value, dict | list | tuple) or each.name in NOT_DRAWN:
            continue
        layers = any(word in each.name for word in LAYERS) and isinstance(value, int) and not isinstance(value, bool)
        if rng.random() > (0.9 if layers and value > 4 else share):
            continue
        new = changed(value, rng) if rng.random() < 0.4 else value
        if layers and value > 4:
            new = rng.choice((1, 2, 3, 4))
        names = [each.name, *(other.get(each.name, ()) if rng.random() < 0.3 else ())]
        found[rng.choice(names)] = new
    for key, spec in parts.items():
        if rng.random() < 0.3 or spec.optional:
            continue
        any_type = not hasattr(spec.config_class, "model_type") and rng.random() < 0.3
        named = rng.choice([*OTHER_TYPES["vision" in key], kind.model_type]) if any_type else spec.model_type
        known = named in CONFIG_MAPPING and named != kind.model_type
        found[key] = draw(CONFIG_MAPPING[named] if known else spec.get_config_class(spec.model_type), rng)
        if any_type or rng.random() < 0.7:
            found[key] = {"model_type": named} | found[key]
        if f'"{key}_dict"' in inspect.getsource(kind) and rng.random() < 0.4:
            found[f"{key}_dict"] = draw(spec.get_config_class(spec.model_type), rng)
    return found


OTHER_TYPES = (("llama", "qwen2", "mistral", "bert"), ("siglip_vision_model", "clip_vision_model", "pixtral", "dinov2"))
NOT_DRAWN = {  # set by the base class; they say nothing about a model's layers
    "transformers_version", "architectures", "output_hidden_states", "return_dict", "dtype", "chunk_size_feed_forward",
    "id2label", "label2id", "problem_type", "vocab_size", "pad_token_id", "bos_token_id", "eos_token_id",
}  # fmt: skip


def changed(value: Any, rng: random.Random) -> Any:
    """Another value of the kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice((value * 2, max(1, value // 2), value + 64, 2, 64))
    if isinstance(value, float):
        return rng.choice((value, value * 2))
    return rng.choice(("relu", "gelu", "silu")) if value in ("relu", "gelu", "silu", "gelu_new", "swish") else value


def ours(data: dict[str, Any]) -> dict[str, Any]:
    """The same by the table; no attention where one of them is not known."""
    ffns: Counter[int] = Counter()
    attentions: Counter[int] = Counter()
    groups = read_groups(data)
    for group in groups:
        ffns[cost.params(group.ffn)] += group.count
        crosses = group.kind == "decoder" and any(other.kind == "encoder" for other in groups)
        if group.attention:
            attentions[group.attention.params] += group.count * (2 if crosses else 1)
    known = all(group.attention for group in groups)
    return {"ffn": ffns, "attention": attentions if known else None}


def drawn(model_type: str, rng: random.Random) -> tuple[dict[str, Any], Counter[int]] | None:
    """A file and its truth; None where none of several can be built."""
    from transformers import CONFIG_MAPPING

    kind = CONFIG_MAPPING[model_type]
    for _ in range(TRIES):
        data = {"model_type": model_type} | draw(kind, rng)
        try:
            data = json.loads(json.dumps(data))
            expected = theirs(kind.from_dict(json.loads(json.dumps(data))))
        except Exception:
            continue
        if expected:
            return data, expected
    return None


def sparse(model_type: str, *, seed: str, files: int) -> dict[str, Any]:
    """How many files read as built, how many are left to transformers, how many are refused, and which are wrong."""
    from transformers import CONFIG_MAPPING

    rng, tally, wrong, why = random.Random(f"{seed} {model_type}"), Counter[str](), [], Counter[str]()
    for _ in range(files):
        found = drawn(model_type, rng)
        if found is None:
            tally["unbuildable"] += 1
            continue
        data, expected = found
        try:
            read = ours(data)
        except FfnbenchError as problem:
            tally["asked" if isinstance(problem, Unanswered) else "refused"] += 1
            why[problem.message[:120]] += 1
            continue
        built = {"ffn": expected}
        if read["attention"] is not None:
            built["attention"] = built_attentions(CONFIG_MAPPING[model_type].from_dict(json.loads(json.dumps(data))))
        bad = [key for key in built if not (agree if key == "ffn" else operator.eq)(read[key], built[key])]
        tally["wrong" if bad else "same"] += 1
        tally["attention same"] += "attention" in built and "attention" not in bad
        wrong += [f"{key}: {dict(read[key])} against {dict(built[key])}: {json.dumps(data)}" for key in bad]
    return {"status": "wrong" if wrong else "done", "tally": tally, "wrong": wrong, "why": why}


def golden() -> None:
    """Write the answers of transformers that the default run of the tests holds the table against."""
    from transformers import CONFIG_MAPPING, __version__

    rng = random.Random("golden")
    known = [name for name in families().by_type if name in CONFIG_MAPPING]
    rest = [name for name in known if name not in COMMON]
    lines = []
    for model_type in [*COMMON, *rng.sample(rest, len(rest))]:
        if len(lines) < 100 and (ffn := apart(at_defaults, model_type).get("ffn")):
            lines.append({"config": {"model_type": model_type}, "ffn": ffn})
    names = [*COMMON * 2, *rng.sample(rest, len(rest))]
    for number, model_type in enumerate(names):
        if len(lines) < 300 and (found := apart(partial(one_file, seed=f"golden {number}"), model_type)).get("ffn"):
            lines.append({"config": found["config"], "ffn": found["ffn"]})
    text = ",\n".join(json.dumps(line) for line in lines)
    GOLDEN.write_text(f'{{"transformers": "{__version__}", "files": [\n{text}\n]}}\n', encoding="utf-8", newline="\n")


def at_defaults(model_type: str) -> dict[str, Any]:
    """The truth of a file that says its model type and nothing else."""
    from transformers import CONFIG_MAPPING

    return {"ffn": theirs(CONFIG_MAPPING[model_type]())}


def one_file(model_type: str, *, seed: str) -> dict[str, Any]:
    """One sparse file that the table reads or refuses, with its truth."""
    found = drawn(model_type, random.Random(f"{seed} {model_type}"))
    return {} if found is None else {"config": found[0], "ffn": found[1]}


if __name__ == "__main__":
    import torch  # noqa: F401 - before the forks, which then need not
    import transformers.modeling_utils

    transformers.logging.set_verbosity_error()
    if sys.argv[1] == "golden":
        golden()
        sys.exit()
    seed, files, types = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    for name in sorted(families().by_type) if types == ["all"] else types:
        print(json.dumps(apart(partial(sparse, seed=seed, files=files), name, seconds=600)), flush=True)

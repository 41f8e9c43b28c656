"""Every command that a hint names works when it is typed: hints are got by mistakes,
and their commands are run.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_words import PACKAGE, words_of

COMMAND = re.compile(r"`ffnbench ([^`]*)`")
ELSEWHERE = {
    "Unfinished",
    "Option",
    "Argument",
    "Key",
    "Note",
}  # of the machine, of a help, of an answer: no hints of a mistake
LINEAR = {
    "model_type": "qwen3_next", "num_hidden_layers": 2, "hidden_size": 64, "hidden_act": "silu", "num_experts": 4,
    "num_experts_per_tok": 2, "moe_intermediate_size": 64, "shared_expert_intermediate_size": 64,
    "layer_types": ["linear_attention"] * 2,
}  # fmt: skip
ANSWERS = (
    "stats/",
    "report/sentences.py",
    "report/notes.py",
    "report/listing.py",
    "gate/decision.py",
    "gate/shown_check.py",
)
PYTHON_ALONE = ("plan.py",)
LLAMA = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "vocab_size": 100,
}  # fmt: skip
MISTAKES = """
help
help cost
presets
models
run.json
config.json
mistral
swiglu vs relu
--d-model 64 compare relu
-v
comprae
cost --budget 5m
cost --seq-len
cost --varients relu
cost --sort latency
cost swigul
cost llama
cost --hardware h1000
cost 768
cost relu@foo=1
cost --dtype float23
cost relu@rule=foo
cost --preset ada/none
cost --preset llama3
cost --preset run.json
report config.json
report run.json glu.json
report other.json
report mlp.py
activations foo
activations swiglu
activations --dtype float32,bf16 --d-model 1,2
block swiglu,relu
block linear.json --heads 4
block swiglu --backend packed
block --backend eager,packed
ab mlp.py:Mine,relu HEAD
ab mlp.py:Mine HEAD --d-model 64,128
check run.json counts.json
check run.json found.json
relu swiglu --quick
plot-activations foo
bench relu swiglu
plot run.json
version
compare relu --control
block swiglu@weights=int8
compare relu --launch ssh
block llama3-8b --whole-model
""".strip().splitlines()


def hints() -> Iterator[tuple[str, str]]:
    """Where each text with a command stands, and the text; what is filled in is a
    `{}`.
    """
    for file in sorted(PACKAGE.rglob("*.py")):
        name, nodes = (
            str(file.relative_to(PACKAGE)),
            list(ast.walk(ast.parse(file.read_text(encoding="utf-8")))),
        )
        silent = {one.value for one in nodes if isinstance(one, ast.Expr)}  # docstrings
        silent |= {
            part
            for one in nodes
            if isinstance(one, ast.JoinedStr)
            for part in one.values
        }
        for call in (
            one
            for one in nodes
            if isinstance(one, ast.Call) and getattr(one.func, "id", "") in ELSEWHERE
        ):
            silent |= set(ast.walk(call))
        answers = name.startswith((*ANSWERS, *PYTHON_ALONE)) or name.endswith(
            "/table.py"
        )
        for one in nodes if not answers else ():
            if one not in silent and COMMAND.search(words_of(one)):
                yield f"{name}:{one.lineno}", words_of(one)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_fakes) -> None:
    """A folder with what a newcomer has: a saved run, configs of models, a file of
    code.
    """
    monkeypatch.chdir(tmp_path)
    Path("mlp.py").write_text("import torch\n")
    Path("empty").mkdir()
    Path("config.json").write_text(json.dumps(LLAMA))
    Path("linear.json").write_text(json.dumps(LINEAR))
    Path("other.json").write_text("{}")
    assert (
        on_fakes(
            "compare relu,swiglu --d-model 64 --workers 5 --rounds 4 -q -o run.json"
        )[0]
        == 0
    )
    assert on_fakes("check run.json run.json -o found.json")[0] == 0
    assert on_fakes("cost relu,swiglu --d-model 32 -o counts.json")[0] == 0
    assert on_fakes("cost glu --d-model 32 -o glu.json")[0] == 0


@pytest.mark.parametrize(
    ("typed", "leads_to"),
    [
        ("flops relu", "`ffnbench cost relu`"), ("show run.json", "`ffnbench report run.json`"),
        ("doctor", "`ffnbench env`"), ("plot run.json", "`ffnbench report run.json -o run.png`"),
        ("schema", "docs/result.schema.json"), ("compare --bs 4", "--batch"), ("compare --n-embd 64", "--d-model"),
        ("cost --ffn-dim 64", "--d-ff"), ("compare --tokens 64", "--seq-len"), ("cost --output run.csv", "--out"),
        ("compare --ref relu", "first variant"), ("compare --reference relu", "first variant"),
        ("ab mlp.py:Mine HEAD --head-python python", "head's environment"),
        ("block relu --head-dim 64", "config.json"), ("block relu --causal", "config.json"),
        ("compare --shard 1/2", "--on slurm"), ("check run.json --export bencher", "-o junit.xml"),
        ("cost --force", "move the file"), ("compare --dropout 0.1", "relu@dropout=0.1"),
        ("plot-activations --dpi 300", "Figure"), ("ab mlp.py:Mine HEAD --bias", "@bias=true"),
        ("cost --seed 1", "`ffnbench compare` has it"),
    ],
)  # fmt: skip
def test_what_is_gone_leads_to_what_does_it_now(
    here, on_fakes, typed: str, leads_to: str
) -> None:
    code, out, err = on_fakes(typed)
    assert (code, out) == (2, "")
    assert leads_to in err.partition("\nhint: ")[2]


@pytest.mark.parametrize(
    ("typed", "says", "leads_to"),
    [
        ("compare swiglu@weights=none,int8", "not a variant", "--weights none,int8"),
        ("cost swiglu@weights=int4@group=0", "not 0", "such as 64"),
        ("compare swiglu@weights=int8@group=64", "nothing reads @group", "@weights=int4"),
        ("cost relu@dtype=bf16@matmul_precision=high", "nothing reads @matm", "leave @dtype"),
        ("cost relu@reduced_reductions=false", "nothing reads @reduced", "@dtype=bf16"),
        ("cost swiglu@multiple_of=16 --d-ff 256", "nothing reads @multiple_of", "leave one"),
        ("cost relu,geglu@multiple_of=16 --d-ff 256 --match none", "nothing reads @multiple_of", "leave one"),
        ("compare swiglu@spin=true", "nothing reads @spin", "@backend=ort"),
        ("block swiglu@weights=int8", "of an FFN alone", "`ffnbench compare`"),
        ("block swiglu --weights int8", "no such option", "`ffnbench compare` has it"),
    ],
)  # fmt: skip
def test_ways_to_run_that_are_typed_amiss(
    here, on_fakes, typed: str, says: str, leads_to: str
) -> None:
    code, out, err = on_fakes(typed, "--d-model 64")
    assert (code, out) == (2, "")
    error, _, hint = err.partition("\nhint: ")
    assert says in error
    assert leads_to in hint


def test_the_command_of_every_hint_works_when_it_is_typed(here, on_fakes) -> None:
    told: dict[str, str] = {}
    for line in MISTAKES:
        code, out, err = on_fakes(line)
        assert (code, out) == (2, ""), line
        told[line] = err.partition("\nhint: ")[2]
        assert told[line], line
    missed = [
        (where, text) for where, text in hints()
        if not any(re.search(re.escape(text).replace(r"\{\}", ".*"), hint) for hint in told.values())
    ]  # fmt: skip
    assert not missed
    for typed in sorted(
        {typed for hint in told.values() for typed in COMMAND.findall(hint)}
    ):
        code, _, err = on_fakes(*shlex.split(typed))
        assert code in (0, 3), (typed, err)

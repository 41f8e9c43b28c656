"""The schema of result files: a validator that is not ours holds it against every run
there is, and our reader.
"""

from __future__ import annotations

import copy
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from gate_world import machine
from jsonschema import Draft202012Validator
from paths import ROOT, committed_runs
from repositories import two_sides
from result_schema import schema_text

from ffnbench.common.errors import FfnbenchError
from ffnbench.report.store import read_report, report_text

SCHEMA = ROOT / "docs" / "result.schema.json"
VALID = Draft202012Validator(json.loads(SCHEMA.read_text()))
FILES = [*committed_runs(), ROOT / "tests" / "golden" / "runs" / "cuda.json"]
SMALL = "--d-model 16 --threads 1 --workers 3 --rounds 2"
FRESH = {  # a file of every kind of plan, and of what is special in one
    "compare": f"compare relu,swiglu,swiglu@moe=4x2@routing=skewed --metrics latency,routing {SMALL}",
    "groups": f"compare relu,swiglu --seq-len 1,16 --mode forward,train {SMALL}",
    "model": "compare --preset gpt2 --backend eager,compile --precision 5 --threads 1 --metrics latency",
    "own": f"compare relu,mypkg.mlp:SwiGLU@like=swiglu@bias=false {SMALL}",
    "baseline": f"compare relu,swiglu --runs 3 {SMALL}",
    "failed": f"compare relu,gelu {SMALL}",
    "counted": "cost relu,swiglu --seq-len 1,16",
    "block": "block llama3-8b --seq-len 16,64 --workers 3 --rounds 2 --threads 1",
    "latent": "block deepseek-v3 --cost-only",
    "activations": "activations --time gelu,swish@beta=0.5 --elements 64,128 --workers 3 --rounds 2",
    "sides": "ab mypkg.mlp:SwiGLU --base-env A:1 --d-model 16 --threads 1 --budget 15",
}  # fmt: skip


VALUES = (
    None,
    True,
    False,
    -1,
    0,
    1,
    7,
    2.5,
    "",
    "no such",
    "1",
    [],
    {},
    [[]],
    [1],
    {"a": 1},
)


def made(name: str, folder: Path, on_fakes) -> dict:
    """What a command writes; of `ab` the run in it."""
    two_sides(folder)
    launch = machine()
    launch.trouble = {("open", "gelu"): "oom"} if name == "failed" else {}
    code, _, err = on_fakes(FRESH[name], "-o run.json", launch=launch)
    assert code == (3 if name == "failed" else 0), err
    data = json.loads((folder / "run.json").read_text())
    return data["now"] if name == "sides" else data


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_committed_run_is_of_the_schema_and_is_written_again_as_it_was(
    path: Path,
) -> None:
    data = json.loads(path.read_text())
    VALID.validate(data)
    assert json.loads(report_text(read_report(path))) == data


@pytest.mark.parametrize("name", FRESH)
def test_a_fresh_run_is_of_the_schema_and_a_changed_one_where_the_reader_takes_it(
    name: str, tmp_path: Path, on_fakes
) -> None:
    """What is refused by our reader alone is about several fields, or about a network
    that there can't be.
    """
    data = made(name, tmp_path, on_fakes)
    VALID.validate(data)
    data["samples"] = data.get("samples", [])[:6]
    dice, refused = random.Random(name), 0
    for _ in range(12):
        changed, how = mutated(data, dice)
        problem = refusal(changed, tmp_path / "changed.json")
        refused += bool(problem)
        if VALID.is_valid(changed):
            assert not re.search(r"expected|is missing|unknown field", problem), (
                how,
                problem,
            )
        else:
            assert problem, (how, next(VALID.iter_errors(changed)).message)
    assert refused > 4


def places(value: Any, way: tuple = ()) -> list[tuple]:
    """The way to everything in it."""
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [
        found
        for key, item in inner
        for found in ((*way, key), *places(item, (*way, key)))
    ]


def mutated(data: dict, dice: random.Random) -> tuple[dict, tuple]:
    """A copy that has another value somewhere, lacks one, or has one more; and
    which.
    """
    changed = copy.deepcopy(data)
    *way, last = dice.choice(places(changed))
    at: Any = changed
    for step in way:
        at = at[step]
    how, value = (
        dice.choice(("put", "put", "take", "add")),
        copy.deepcopy(dice.choice(VALUES)),
    )
    if how == "put":
        at[last] = value
    elif how == "take":
        del at[last]
    elif isinstance(at, dict):
        at["nobody"] = value
    else:
        at.append(value)
    return changed, (how, *way, last, value)


def refusal(data: Any, path: Path) -> str:
    """What our reader says against a file; nothing where it takes it."""
    path.write_text(json.dumps(data))
    try:
        read_report(path)
    except FfnbenchError as problem:
        return problem.message
    return ""


def test_the_docs_have_the_schema_of_the_code() -> None:
    Draft202012Validator.check_schema(VALID.schema)
    assert schema_text() == SCHEMA.read_text(), "python tests/report/result_schema.py"

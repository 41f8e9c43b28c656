"""The schema of result files: a validator that is not ours holds it against every run
there is, and our reader.
"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from mutations import mutated
from paths import ROOT, committed_runs
from result_schema import schema_text

from ffnbench.common.errors import FfnbenchError
from ffnbench.report.store import read_report, report_text

SCHEMA = ROOT / "docs" / "result.schema.json"
VALID = Draft202012Validator(json.loads(SCHEMA.read_text()))
GOLDEN = sorted((ROOT / "tests" / "golden" / "runs").glob("*.json"))
CHECKS = ("ab.json",)  # which hold their run beside what was decided
RUNS = [path for path in GOLDEN if path.name not in CHECKS]


@pytest.mark.parametrize("path", [*committed_runs(), *RUNS], ids=lambda path: path.stem)
def test_every_saved_run_is_of_the_schema_and_is_written_again_as_it_was(
    path: Path,
) -> None:
    data = json.loads(path.read_text())
    assert json.loads(report_text(read_report(path))) == data
    VALID.validate(short(data))


def short(run: dict) -> dict:
    """A run with few of its samples."""
    return {**run, "samples": run.get("samples", [])[:40], "repeats": []}


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_a_changed_run_is_of_the_schema_where_the_reader_takes_it(
    path: Path, tmp_path: Path
) -> None:
    """What is refused by our reader alone is about several fields, or about a network
    that there can't be.
    """
    data = short(json.loads(path.read_text()))
    dice, refused = random.Random(path.stem), 0
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

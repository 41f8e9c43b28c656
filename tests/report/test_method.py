"""The number of the method, and of the schema: a file of another is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from gate_world import edited, machine, saved

TODAY = 6  # written by hand: whoever raises it says in plan/plan.py what it means


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda run: run.update(schema=1), "another ffnbench (schema 1"),
        (lambda run: run.update(seal="910d"), "unknown field 'seal'"),
        (lambda run: run["plan"]["protocol"].update(method=TODAY - 1), f"method {TODAY - 1},"),
        (lambda run: run["plan"]["protocol"].update(method=TODAY + 1), f"method {TODAY + 1},"),
    ],
)  # fmt: skip
def test_a_file_of_another_version_is_to_be_measured_again(
    edit: Callable[[dict], object], says: str, tmp_path: Path, on_fakes
) -> None:
    baseline = edited(saved(tmp_path / "baseline.json"), edit)
    for command in ("report", "check", "check --exact-only"):
        launch = machine({})
        code, out, err = on_fakes(command, baseline, launch=launch)
        problem, hint = err.splitlines()
        assert (code, out, launch.log) == (2, "", [])
        assert says in problem
        assert hint == "hint: measure again with this version"

"""The number of the method, and of the schema: a file of another is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from gate_world import edited, machine, saved

TODAY = 6  # written by hand: whoever raises it says in plan/plan.py what it means


@pytest.mark.parametrize("command", ["report", "check", "check --exact-only"])
@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda run: run.update(schema=1), "another ffnbench (schema 1; this one reads 2)"),
        (lambda run: run.update(schema=3), "another ffnbench (schema 3; this one reads 2)"),
        (lambda run: run.update(seal="910d"), "unknown field 'seal'"),
        *(
            (
                lambda run, number=number: run["plan"]["protocol"].update(method=number),
                f"measured with method {number}, and this ffnbench measures with {TODAY}",
            )
            for number in (TODAY - 1, TODAY + 1)
        ),
    ],
)  # fmt: skip
def test_a_file_of_another_version_is_to_be_measured_again(
    command: str, edit: Callable[[dict], object], says: str, tmp_path: Path, on_fakes
) -> None:
    baseline, launch = saved(tmp_path / "baseline.json"), machine({})
    verb, _, flags = command.partition(" ")
    assert on_fakes(verb, baseline, *flags.split(), launch=launch)[0] == 0
    edited(baseline, edit)
    launch = machine({})
    code, out, err = on_fakes(verb, baseline, *flags.split(), launch=launch)
    problem, hint = err.splitlines()
    assert (code, out, launch.log) == (2, "", [])
    assert problem.startswith("error: ")
    assert says in problem
    assert hint == "hint: measure again with this version"

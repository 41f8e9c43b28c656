"""Whatever is measured can be saved, shown again, drawn and checked: every kind of
plan, through the real commands.
"""

from __future__ import annotations

import csv
import io
import json
import shlex
from pathlib import Path

import pytest
from fake_machine import FakeLaunch
from paths import ROOT

from ffnbench.api.saved_runs import load_recomputed
from ffnbench.plan import Kind

STARTS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}
COMMANDS = {
    Kind.COMPARE: "compare --d-model 64 --variants relu,gelu,swiglu --quick",
    Kind.BLOCK: "block --d-model 64 --seq-len 64,256 --quick",
    Kind.ACTIVATIONS: "activations --time --activations gelu,silu --elements 1000,4096 --dtype float32,bf16 --quick",
}


def seconds(label: str, worker: int, number: int) -> float:
    """Each label its own time, with a little scatter that differs from worker to
    worker.
    """
    return (
        1e-3
        * (3 + len(label) % 5)
        * (1 + 0.001 * ((worker * 7 + number * 3 + len(label)) % 5))
    )


@pytest.fixture
def call(on_machine, in_process):
    """A command in this process, on workers that are not real; gives exit code, stdout,
    stderr.
    """
    on_machine(FakeLaunch(seconds))
    return in_process


@pytest.mark.parametrize("kind", COMMANDS)
def test_what_is_measured_is_saved_shown_drawn_and_checked(
    kind: Kind, call, tmp_path: Path
) -> None:
    files = [tmp_path / f"run{suffix}" for suffix in (".json", ".csv", ".md", *STARTS)]
    code, shown, err = call(
        *shlex.split(COMMANDS[kind]), "-q", *(f"-o{file}" for file in files)
    )
    assert code == 0, err
    saved = str(files[0])
    assert call("report", saved) == (0, shown, "")
    assert call("report", saved, "--format", "csv")[1] == files[1].read_text()
    rows = list(csv.DictReader(io.StringIO(files[1].read_text())))
    assert all(
        float(next(row[key] for key in row if key.endswith("latency_s"))) > 0
        for row in rows
    )
    for file in files[3:]:
        assert file.read_bytes()[: len(STARTS[file.suffix])] == STARTS[file.suffix]
    assert json.loads(files[0].read_text())["plan"]["command"].startswith(
        f"ffnbench {COMMANDS[kind].split()[0]} "
    )
    again = (
        [] if kind == Kind.COMPARE else [saved]
    )  # measured again once, by the shortest
    code, checked, err = call("check", saved, *again, "-q")
    assert code == 0, err
    assert "exact rows are equal" in checked
    assert " latency " in " ".join(checked.split())


# Saved runs


RESULTS = ROOT / "results"


def test_figures_that_were_edited_are_said_to_be(tmp_path: Path) -> None:
    data = json.loads((RESULTS / "amd-epyc-2cpu" / "compare.json").read_text())
    data["comparisons"][1]["ratio"]["value"] *= 0.9
    (tmp_path / "run.json").write_text(json.dumps(data))
    assert (
        "are computed again from the samples"
        in load_recomputed(str(tmp_path / "run.json"))[1]
    )


def test_a_folder_that_was_made_for_nothing_does_not_stay(call, tmp_path: Path) -> None:
    code, _, _ = call(
        "compare", "--variants", "swigul", "-o", f"{tmp_path}/new/deeper/"
    )
    assert code == 2
    assert list(tmp_path.iterdir()) == []

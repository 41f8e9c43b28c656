"""The flags of jobs stand on every command that measures groups, and nowhere where the folder is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from ffnbench import features

MEASURE = ("compare", "block", "activations")


@pytest.mark.parametrize("command", ["cost", "report", "check", "ab"])
def test_what_measures_no_groups_has_none_of_them(command: str, in_process) -> None:
    code, _, err = in_process(command, "--on", "local")
    assert (code, "--on" in err.splitlines()[0]) == (2, True), err


@pytest.mark.parametrize("name", ["on", "slurm"])
def test_no_file_sets_them(name: str, in_process, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for table in ("tool.ffnbench", "tool.ffnbench.compare"):
        Path("pyproject.toml").write_text(f"[{table}]\n{name} = 'local'\n")
        code, _, err = in_process("compare", "relu")
        assert (code, err.count("\n"), f"sets {name}: no file may do that" in err) == (2, 2, True), err


def test_without_the_folder_nothing_measures_elsewhere(in_process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "features", lambda: ())
    for command in MEASURE:
        code, _, err = in_process(command, "relu", "--on", "local")
        assert (code, err.count("\n"), err.startswith("error: nothing here measures groups")) == (2, 2, True), err

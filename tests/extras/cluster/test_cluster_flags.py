"""The flags of jobs stand on every command that measures groups, and nowhere where the folder is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from ffnbench import features
from ffnbench.cli.commands import described

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
        assert (code, err.count("\n"), f"unknown key '{name}'" in err) == (2, 2, True), err


def test_without_the_folder_they_are_unknown(in_process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "features", lambda: ())
    for name in MEASURE:
        for of in ("measurers", "added", "fields"):
            monkeypatch.delitem(vars(described(name)), of, raising=False)
    try:
        code, _, err = in_process("compare", "relu", "--on", "local")
    finally:
        for name in MEASURE:
            for of in ("measurers", "added", "fields"):
                vars(described(name)).pop(of, None)
    assert (code, err.count("\n"), err.startswith("error: no such option: --on")) == (2, 2, True), err

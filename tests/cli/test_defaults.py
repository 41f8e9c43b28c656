"""`[tool.ffnbench]` of a pyproject.toml: what holds, what gives way, what no file may
say.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from shell import COMMANDS, options_of

from ffnbench.app.command import GIVES_WAY_TO, SETTABLE


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A repository with a pyproject.toml of that text; the current folder is one below
    it.
    """
    (tmp_path / ".git").mkdir()
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")

    def write(*lines: str, table: str = "tool.ffnbench", folder: str = ".") -> Path:
        path = tmp_path / folder / "pyproject.toml"
        path.write_text("\n".join((f"[{table}]", *lines, "")))
        return path

    return write


def asked(call, *words: str) -> dict:
    code, out, err = call(*words, "--json")
    assert code == 0, err
    plan = json.loads(out)["plan"]
    return {
        "command": plan["command"],
        "notes": [
            note["text"] for note in plan.get("notes", []) if not note.get("label")
        ],
    }


def test_a_default_holds_typed_flags_win_and_both_are_recorded(call, project) -> None:
    project('seq-len = "2Ki"', "batch = 3", 'dtype = "bf16"')
    found = asked(call, "cost")
    assert found["command"] == "ffnbench cost --batch 3 --seq-len 2Ki --dtype bf16"
    told = "defaults from pyproject.toml: seq_len 2Ki, batch 3, dtype bf16"
    assert found["notes"] == [told]
    assert told in " ".join(call("compare")[1].split())
    found = asked(
        call,
        "cost",
        "gelu",
        "--seq-len",
        "16",
        "--dtype",
        "float32",
        "--batch=1",
    )
    assert found["command"] == "ffnbench cost gelu --seq-len 16"
    assert found["notes"] == []


def test_a_commands_own_table_wins_over_that_of_all_and_env_shows_both(
    call, project
) -> None:
    path = project("seq_len = 64", "budget = '20s'")
    path.write_text(
        path.read_text()
        + "[tool.ffnbench.cost]\nseq_len = 32\n[tool.ffnbench.compare]\nprecision = '2%'\n"
    )
    assert "--seq-len 32" in asked(call, "cost")["command"]
    found = asked(call, "compare", "--d-model", "64")
    assert found["command"].endswith(
        "--d-model 64 --seq-len 64 --precision 2% --budget 20s"
    )
    assert f"defaults from,{path}" in call("env", "-f", "csv")[1]
    path.unlink()
    assert "defaults" not in call("env", "-f", "csv")[1]


def test_the_nearest_table_counts_and_none_beyond_the_repository(
    call, project, tmp_path, monkeypatch
) -> None:
    project("seq_len = 64")
    project("line-length = 1", table="tool.ruff", folder="below")
    assert "--seq-len 64" in asked(call, "cost")["command"]
    project("seq_len = 65", folder="below")
    assert "--seq-len 65" in asked(call, "cost")["command"]
    (tmp_path / "below" / "inner").mkdir()
    (tmp_path / "below" / "inner" / ".git").touch()  # as a worktree has it
    monkeypatch.chdir(tmp_path / "below" / "inner")
    assert "--seq-len" not in asked(call, "cost")["command"]


def test_a_default_gives_way_without_a_word(call, project) -> None:
    for line, typed, flag, holds in (
        ("precision = 0.5", ["--quick"], "--precision", False),
        ("budget = 15", ["--workers", "5"], "--budget", False),
        ("d_model = 64", ["--preset", "gpt2"], "--d-model", False),
        ("d_ff = 64", ["--preset", "gpt2"], "--d-ff", False),
        ("format = 'csv'", [], "--match", False),
    ):
        project(line)
        found = asked(call, "compare", *typed)
        assert (flag in found["command"]) == holds, line
        assert bool(found["notes"]) == holds, line


def test_what_is_wrong_in_a_file_is_told_with_the_file(call, project) -> None:
    for line, says, hint in (
        ("seqlen = 3", "can't set 'seqlen' to 3", "did you mean 'seq_len'"),
        (
            "seq_len = 'many'",
            "--seq-len: 'many' is not a whole number",
            "pyproject.toml sets seq_len",
        ),
        ("dtype = 'float23'", "unknown dtype 'float23'", "pyproject.toml sets dtype"),
        (
            "verbose = 'yes'",
            "--verbose can't be 'yes'",
            "true or false; pyproject.toml sets verbose",
        ),
        ("seq_len = true", "--seq-len can't be True", "pyproject.toml sets"),
        ("seq_len = 2026-01-01", "can't set 'seq_len' to", "seq_len = 128"),
        ("variants = 'relu,mine=a.b:C'", "can't set 'variants'", "seq_len = 128"),
        ("a = = 3", "cannot read", "TOML"),
        ("compar.seq_len = 1", "can't set 'compar'", "seq_len = 128"),
        ("cost.sequence = 1", "can't set 'sequence' to 1", "'seq_len'"),
    ):
        project(f"# ffnbench\n{line}")
        code, out, err = call("cost")
        assert (code, out, err.count("\n")) == (2, "", 2), line
        assert says in err.splitlines()[0]
        assert "pyproject.toml" in err
        assert hint in err.splitlines()[1]


def test_a_file_sets_flags_alone_and_none_that_runs_writes_or_trusts(
    call, project
) -> None:
    flags = {name for command in COMMANDS for name in options_of(command)}
    assert set(SETTABLE) <= flags
    assert GIVES_WAY_TO.keys() <= set(SETTABLE)
    for name in sorted(flags - set(SETTABLE)):
        project(f"{name} = 'x'")
        code, _, err = call("list")
        assert code == 2
        assert f"can't set '{name}'" in err
    for name in (
        "trust",
        "out",
        "base_python",
        "base_env",
        "update",
        "append",
        "resume",
        "on",
        "preset",
    ):
        assert name not in SETTABLE

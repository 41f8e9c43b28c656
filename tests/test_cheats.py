"""Modules that cheat: their table is whole, a few are caught by real workers, and what is said of them."""

from __future__ import annotations

import ast
import json
from dataclasses import replace

import cheats as script
from conftest import ROOT, KnownProber
from exam import judge
from exam.judge import (
    CHEATS,
    OWN_CODE,
    REFERENCE,
    Asked,
    Judgement,
    broken_by_cheats,
    groups,
)

from ffnbench.plan import Mode
from ffnbench.result import FailureKind

BY_NAME = {cheat.name: cheat for cheat in CHEATS}


def row(name: str = "zeros", **facts: object) -> Judgement:
    settings: dict[str, object] = {
        "cheat": name, "does": "zeros", "failure": "suspect", "message": "the output of a call differs by 1",
        "judging_s": 1.0, "wall_s": 20.0, **facts,
    }  # fmt: skip
    return Judgement(**settings)  # type: ignore[arg-type]


def test_the_table_has_every_cheat_and_names_none_twice() -> None:
    """Every class of the file but the honest one and its private parts."""
    tree = ast.parse((ROOT / "benchmarks" / "exam" / "cheats.py").read_text(encoding="utf-8"))
    classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")}
    kinds = [cheat.kind for cheat in CHEATS]
    assert sorted(kinds) == sorted(classes - {"Swiglu"})
    assert len(BY_NAME) == len(CHEATS)
    assert {cheat.mode for cheat in CHEATS} == {Mode.FORWARD.value, Mode.TRAIN.value}
    assert all(len(cheat.does) <= 36 and len(cheat.name) <= 24 for cheat in CHEATS)


def test_each_run_is_of_one_mode_and_what_changes_its_process_is_alone() -> None:
    found = list(groups(CHEATS))
    assert sorted(cheat.name for of in found for cheat in of) == sorted(BY_NAME)
    for of in found:
        assert len({(cheat.mode, cheat.cuda) for cheat in of}) == 1
        assert len(of) == 1 or not any(cheat.alone for cheat in of)
        assert len(of) <= judge.TOGETHER


SOME = ("cache by address", "only first calls", "zeros", "lazy result")


def test_a_few_are_caught_by_real_workers() -> None:
    """Through the real runner, a real worker and a real judge: memory, another function, no tensor."""
    some, probe = [BY_NAME[name] for name in SOME], KnownProber(1.0)
    plan = judge.cheats_plan(some, seed=3, threads=1, rounds=2, probe=probe)
    plan = replace(plan, protocol=replace(plan.protocol, workers=1), metrics=("latency",))
    by = {one.cheat: one for one in judge.judged(Asked(cheats=some, plan=plan, costs=(), refused={}))}
    assert [name for name in SOME if not by[name].caught] == []
    assert {by[name].failure for name in SOME} <= {FailureKind.SUSPECT.value, FailureKind.MISMATCH.value}
    assert [by[name].failure for name in (REFERENCE, OWN_CODE)] == ["", ""]
    assert broken_by_cheats(list(by.values())) == []


def test_what_should_not_be_ends_with_1(monkeypatch, tmp_path, capsys) -> None:
    caught = row("zeros", claimed=0.004)
    missed, accused = row("low rank", failure="", message=""), row("swiglu", honest=True)
    faster = row("cache by content", failure="", message="", gains=False, verdict="faster")
    for found, code, said in (
        ([caught, row("patched event", ran=False, failure="", message="")], 0, "1 of 1 cheats were caught"),
        ([caught, missed], 1, "1 cheats were not caught: low rank"),
        ([caught, faster], 1, "1 cheats were not caught: cache by content"),
        ([caught, accused], 1, "the honest row swiglu is suspect: the output of a call differs by 1"),
    ):
        monkeypatch.setattr(script, "judgements_of", lambda *_, found=found: iter([found]))
        asked = [word for one in found if not one.honest for word in ("--cheat", one.cheat)]
        assert script.main([*asked, "-o", str(tmp_path / "cheats.json")]) == code
        assert said in capsys.readouterr().out
    saved = json.loads((tmp_path / "cheats.json").read_text())
    assert [(one["cheat"], one["ran"]) for one in saved] == [("zeros", True), ("swiglu", True)]

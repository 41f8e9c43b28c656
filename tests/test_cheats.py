"""Modules that cheat: their table is whole, a few are caught by real workers, and what is said of them."""

from __future__ import annotations

import ast
import json
from dataclasses import replace

import cheats as script
import pytest
import torch
from conftest import ROOT, KnownProber
from exam import cheats as modules
from exam import judge
from exam.judge import (
    CHEATS,
    OWN_CODE,
    REFERENCE,
    Asked,
    Cheat,
    Judgement,
    broken_by_cheats,
    caught_by,
    groups,
)

from ffnbench.plan import Mode
from ffnbench.result import FailureKind, Verdict

BY_NAME = {cheat.name: cheat for cheat in CHEATS}


def row(name: str = "zeros", **facts: object) -> Judgement:
    settings: dict[str, object] = {
        "cheat": name, "does": "zeros", "failure": "suspect", "message": "the output of a timed call differs by 1",
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


def test_a_cheat_is_a_swiglu_that_can_be_made_twice_and_gives_a_tensor() -> None:
    """Its weights come from torch's generator; what claims to be right at first is, by another way to compute it."""
    for cheat in [one for one in CHEATS if not one.cuda and not one.alone]:
        _is_one(cheat)


def _is_one(cheat: Cheat) -> None:
    kind = getattr(modules, cheat.kind)
    torch.manual_seed(5)
    module = kind(8, 12)
    torch.manual_seed(5)
    again = kind(8, 12)
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), again.parameters(), strict=True))
    x = torch.randn(2, 40, 8)
    gate, up, down = module.gate.weight.double(), module.up.weight.double(), module.down.weight.double()
    v = x.double()
    expected = ((v @ gate.T) * torch.sigmoid(v @ gate.T) * (v @ up.T)) @ down.T
    kept = x.clone()
    with torch.inference_mode(cheat.mode == Mode.FORWARD.value and not cheat.like):
        y = module(x)
        if not cheat.like:
            assert (y.double() - expected).norm() < 1e-5 * expected.norm(), cheat.name
    assert y.shape == kept.shape, cheat.name


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


FOUND = [
    row("zeros", claimed=0.004),
    row("patched clock", message="it has replaced time.perf_counter"),
    row("cache by content", failure="", message="", gains=False, verdict=Verdict.UNCLEAR.value, claimed=1.1),
    row("patched event", ran=False, failure="", message="", judging_s=0.0, wall_s=0.0),
    row("secret bfloat16", failure="mismatch", message="the output differs from that of swiglu by 6e-4 before timing"),
    row("no weight gradients", message="the gradient of gate.weight of a timed call differs by 1"),
    row("own process", failure="crash", message="RuntimeError: no"),
    row("stale memory", message="32 us a call can't be: its matrix products take this machine 489 us"),
    row("swiglu", does="what it should", honest=True, failure="", message="", claimed=1.0),
]


def test_the_table_tells_what_caught_each(monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.setattr(script, "judgements_of", lambda *_: iter([[row for row in FOUND if row.ran]]))
    asked = [word for one in FOUND if not one.honest for word in ("--cheat", one.cheat)]
    assert script.main([*asked, "-o", str(tmp_path / "cheats.json")]) == 0
    out = capsys.readouterr().out
    words = [caught_by(one) for one in FOUND[:-1]]
    assert words == ["output", "replaced function", "no gain", "not run", "output, before timing", "gradient",
                     "it fails: crash", "floor"]  # fmt: skip
    assert all(word in out for word in words)
    assert "0.004" in out
    assert "7 of 7 cheats were caught; of 1 honest rows beside them 0 were accused" in out
    saved = json.loads((tmp_path / "cheats.json").read_text())
    assert {one["cheat"]: one["ran"] for one in saved} == {one.cheat: one.ran for one in FOUND}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"failure": "", "message": ""}, "1 cheats were not caught: zeros"),
        ({"honest": True}, "the honest row zeros is suspect: the output of a timed call differs by 1"),
        ({"failure": "", "gains": False, "verdict": "faster"}, "1 cheats were not caught: zeros"),
    ],
)
def test_what_should_not_be_ends_with_1(monkeypatch, change, said, capsys) -> None:
    monkeypatch.setattr(script, "judgements_of", lambda *_: iter([[replace(FOUND[0], **change), *FOUND[1:]]]))
    assert script.main([]) == 1
    assert said in capsys.readouterr().out

"""`plot-activations` and `activations`: pictures, facts, and every mistake."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest
from fake_machine import ProberHere
from shell import ffnbench

from ffnbench.activations.facts import facts_of
from ffnbench.activations.plan import select
from ffnbench.activations.table import facts_records, facts_table
from ffnbench.report.terminal import plain

OWN = """
import torch
from ffnbench import activation

@activation(formula="x tanh(exp(x))", flops=3, flops_backward=9)
def telu(x):
    return x * x.exp().tanh()

def bare(x): return x.sin()
def shape(x): return x.sum(-1)
def dtype(x): return x.float()
def module(d_model, d_ff): return torch.nn.Identity()
def hot(x): return x.exp().exp().exp()
def cusp(x): return x.abs().sqrt()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_machine) -> Path:
    """With functions of the user's, which are looked at in this process."""
    (tmp_path / "mine.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    on_machine(prober=ProberHere)
    return tmp_path


def test_of_an_own_function_the_facts_are_what_it_declares(folder: Path) -> None:
    with ProberHere() as prober:
        chosen = select("silu,mine.py:telu,mine.py:bare", prober)
        assert prober.describe("mine.py:module") is None
        assert prober.describe("torch.nn.functional:silu") is not None
    facts = {
        label: known for label, spec in chosen.items() if (known := facts_of(spec))
    }
    silu, telu, bare = facts_records(chosen, facts)
    assert (
        f"{silu['minimum']:.10f} {silu['minimum_at']:.10f}"
        == "-0.2784645428 -1.2784645428"
    )
    assert (telu["flops"], telu["flops_backward"], telu["minimum"], telu["smooth"]) == (
        3,
        9,
        None,
        None,
    )
    assert (bare["flops"], list(telu)) == (None, list(silu))
    text = plain(facts_table(chosen, facts), 120)
    assert "x tanh(exp(x))" in text
    assert "telu, bare: facts are known of built-in names at their default beta" in text


@pytest.mark.slow
def test_an_own_activation_works_in_compare_and_gated(folder: Path) -> None:
    done = ffnbench(
        "compare", "--d-model", "32", "--seq-len", "16", "--metrics", "memory,sparsity", "--variants",
        "relu,mine.py:telu,g=mine.py:telu@gate=inner", "--format", "csv", cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = {row["label"]: row for row in csv.DictReader(done.stdout.splitlines())}
    assert all(row["failure"] == "" for row in rows.values())
    assert rows["g"]["d_ff"] == "88"
    assert rows["telu"]["flops_elementwise"] == str(3 * 128)
    assert (
        int(rows["telu"]["peak_bytes"]) > 0
    )  # measured, where nothing can be predicted
    assert 0.4 < float(rows["relu"]["zero_share"]) < 0.6
    assert float(rows["telu"]["zero_share"]) == 0
    assert float(rows["relu"]["dead_share"]) < 0.2

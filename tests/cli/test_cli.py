"""The command line as a user types it: every mistake, every exit code, the files,
Ctrl-C.
"""

from __future__ import annotations

import csv
import json
import os
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from fake_machine import FakeLaunch, measure, prepare
from frames import csv_of
from paths import ROOT

from ffnbench.api import call as api_call
from ffnbench.ffn.activations import ACTIVATIONS
from ffnbench.ffn.spec import GATED
from ffnbench.report.store import report_text

SECOND = r"\d\d-\d\dT\d\d:\d\d:\d\d"
HOSTILE = str(ROOT / "tests" / "hostile.py")


SAME = [  # two spellings of one command
    (
        "cost --hidden-size 64 --intermediate-size=256 --batch-size 2",
        "cost --d-model 64 --d-ff 256 --batch 2",
    ),
    ("cost relu gelu", "cost relu,gelu"),
    ("cost --variants relu,gelu --d_model 64", "cost relu --d-model 64 gelu"),
    ("cost relu --variants=gelu", "cost relu,gelu"),
    ("cost relu -f json", "cost relu --json"),
    ("cost relu wide=swiglu@d_ff=64", "cost --variants relu,wide=swiglu@d_ff=64"),
    ("cost --preset mistral", "cost --preset mistral-7b"),
    ("cost relu meta-llama/Llama-3.1-8B-Instruct", "cost relu llama3-8b"),
    ("cost --preset llama3.1-8b", "cost --preset llama3-8b"),
    ("cost --preset gpt-2", "cost --preset gpt2"),
    (
        "block meta-llama/Llama-3.1-8B --cost-only",
        "block --preset llama3-8b --cost-only",
    ),
    ("block swiglu --cost-only", "block --cost-only --variant swiglu"),
    ("list models", "list presets"),
]


def test_two_spellings_are_one_command(made_up_clock, call) -> None:
    for typed, meant in SAME:
        code, out, err = call(*typed.split())
        assert code == 0, (typed, err)
        again = call(*meant.split())[1]
        # JSON has the second at which it was made
        assert re.sub(SECOND, "", out) == re.sub(SECOND, "", again), typed


def test_other_versions_and_publishers_are_no_preset(call) -> None:
    """Mistral 0.3 has another vocabulary and no window; of a stranger's llama nothing
    is known.
    """
    for name in (
        "mistralai/Mistral-7B-v0.3",
        "openai/gpt-oss-20b",
        "bert-base-cased",
        "ada/llama3-8b",
        "llama3-18b",
    ):
        assert call("cost", "--preset", name)[0] == 2, name


def test_no_empty_value_is_taken_for_anything(
    call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`-o ""` is not the current folder, and `--preset ""` not the config.json in
    it.
    """
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text("{}")
    for line in ("cost -o", "cost --preset", "cost --seq-len", "cost relu", "check a.json --tolerance", "report",
                 "ab relu --base-env", "block --preset", "check"):  # fmt: skip
        for empty in ("", " "):
            code, out, err = call(*line.split(), empty)
            assert (code, out, err.count("\n")) == (2, "", 2), (line, err)
            assert re.match(r"error: .* has an empty value\nhint: ", err), line
    assert os.listdir() == ["config.json"]


def test_an_interruption_before_anything_was_measured_writes_nothing(
    call, tmp_path: Path
) -> None:
    def seconds(label: str, worker: int, number: int) -> float:
        raise KeyboardInterrupt

    old = tmp_path / "old.csv"
    old.write_text("precious")
    code, out, err = call(
        "compare",
        "-o",
        str(old),
        "-o",
        str(tmp_path / "new.csv"),
        launch=FakeLaunch(seconds),
    )
    assert (code, out) == (130, "")
    assert "interrupted before anything was measured" in err
    assert old.read_text() == "precious"
    assert not (tmp_path / "new.csv").exists()


def test_an_output_that_vanishes_costs_neither_the_answer_nor_the_other_files(
    call, tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()

    def seconds(label: str, worker: int, number: int) -> float:
        for path in gone.glob("*"):
            path.unlink()
        if gone.exists():
            gone.rmdir()
        return 0.01

    launch = FakeLaunch(seconds)
    code, out, err = call(
        "compare",
        "-o",
        str(gone / "a.csv"),
        "-o",
        str(tmp_path / "b.csv"),
        launch=launch,
    )
    assert code == 3
    assert "vs relu" in out
    assert "cannot write" in err
    assert (tmp_path / "b.csv").stat().st_size > 100


@pytest.mark.parametrize(
    ("problem", "says"),
    [
        (
            ZeroDivisionError("nothing"),
            "ZeroDivisionError: nothing\nerror: this is a bug in ffnbench\nhint: ",
        ),
        (MemoryError(), "error: there is not enough memory\nhint: "),
    ],
)
def test_a_bug_shows_its_traceback_and_is_3_never_1(
    call, monkeypatch, problem: Exception, says: str
) -> None:
    def failing(*_: object, **how: object) -> None:
        raise problem

    monkeypatch.setattr(api_call, "with_costs", failing)
    code, out, err = call("cost")
    assert (code, out) == (3, "")
    assert says in err
    assert ("Traceback" in err) == ("bug" in says)


ALL_NAMES = [
    *(row.name for row in ACTIVATIONS), *(row.name for row in GATED), *(f"{row.name}_glu" for row in ACTIVATIONS),
    "gelu_new", "gelu_pytorch_tanh", "squared_relu", "swish@beta=0.5", "swiglu@beta=2", "silu@gate=output",
    "relu@gate=output@bias=true", "swiglu@bias=true", "b=relu@dropout=0.1", "h=relu@init=he_xavier",
    "n=swiglu@init=normal", "l=swiglu@rule=llama", "t=relu@mode=train", "h16=swiglu@dtype=bf16@batch=2@seq_len=16",
    "swiglu@moe=4x2", "g=swiglu_oai@moe=4x2@bias=true@experts=grouped@routing=skewed",
    "s=relu@moe=4x1@shared=16@mode=train",
    f"{HOSTILE}:Plain", f"{HOSTILE}:Packed@d_ff=64",
]  # fmt: skip


@pytest.mark.slow
def test_every_name_runs_for_real(tmp_path: Path) -> None:
    """Real workers, hardly warmed up: every activation, every gated form, keys, user
    code, files.
    """
    runs_for_real(ALL_NAMES, tmp_path)


def test_names_of_every_kind_run_for_real(tmp_path: Path) -> None:
    runs_for_real([ALL_NAMES[-4], ALL_NAMES[-2]], tmp_path)


def runs_for_real(names: list[str], folder: Path) -> None:
    prepared = prepare(
        variants=",".join(names),
        d_model=64,
        seq_len=32,
        workers=3,
        rounds=2,
        metrics="latency,memory",
    )
    protocol = replace(prepared.plan.protocol, warmup_s=1e-3, min_sample_s=1e-4)
    report = measure(replace(prepared, plan=replace(prepared.plan, protocol=protocol)))
    (folder / "compare.json").write_text(report_text(report))
    rows = list(csv.DictReader(csv_of(report).splitlines()))
    assert len(rows) == len(names)
    assert [row.get("failure", "") for row in rows] == [""] * len(rows)
    assert all(row["verdict"] == "busy" or float(row["latency_s"]) > 0 for row in rows)
    assert all(int(row["peak_bytes"]) > 0 for row in rows)
    data = json.loads((folder / "compare.json").read_text())
    assert (
        len([s for s in data["samples"] if s["metric"] == "latency"])
        == len(rows) * 3 * 2
    )
    assert data["environment"]["torch"]
    predicted = {c["case"]: c["cost"].get("peak_bytes") for c in data["costs"]}
    for row in rows:
        assert predicted[row["label"]] in (None, int(row["peak_bytes"])), row["label"]


@pytest.fixture
def saved(call, tmp_path: Path) -> Path:
    """A run in a file."""
    dice = random.Random(0)
    launch = FakeLaunch(
        lambda label, worker, number: (
            0.01 * dice.uniform(1, 1.02) * (1.3 if label == "swiglu" else 1)
        )
    )
    path = tmp_path / "run.json"
    code, out, _ = call(
        "compare", "--d-model", "64", "--workers", "4", "-o", str(path), launch=launch
    )
    assert code == 0
    (tmp_path / "table.txt").write_text(out)
    return path


def test_report_computes_every_figure_again_from_the_samples(call, saved: Path) -> None:
    code, out, err = call("report", str(saved))
    assert (code, err) == (0, "")
    assert out == (saved.parent / "table.txt").read_text()
    data = json.loads(saved.read_text())
    for key in ("measured", "comparisons"):
        data[key] = []  # what is computed is not needed
    saved.write_text(json.dumps(data))
    code, out, err = call("report", str(saved))
    assert out == (saved.parent / "table.txt").read_text()
    assert "are computed again from the samples" in err

"""The command line as a user types it: every mistake, every exit code, the files,
Ctrl-C.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from paths import ROOT

from ffnbench.api import call as api_call

SECOND = r"\d\d-\d\dT\d\d:\d\d:\d\d"


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
    ("block swiglu --cost-only", "block --cost-only --variants swiglu"),
]


def test_two_spellings_are_one_command(made_up_clock, call) -> None:
    for typed, meant in SAME:
        code, out, err = call(*typed.split())
        assert code == 0, (typed, err)
        again = call(*meant.split())[1]
        # JSON has the second at which it was made
        assert re.sub(SECOND, "", out) == re.sub(SECOND, "", again), typed


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


def test_report_computes_every_figure_again_from_the_samples(
    call, tmp_path: Path
) -> None:
    saved = ROOT / "tests" / "golden" / "runs" / "compare.json"
    _, shown, _ = call("report", str(saved))
    data = json.loads(saved.read_text())
    data["comparisons"][1]["ratio"]["value"] = 7.0
    for differs in (True, False):
        edited = tmp_path / "edited.json"
        edited.write_text(json.dumps(data))
        code, out, err = call("report", str(edited))
        assert (code, out) == (0, shown)
        assert ("are computed again from the samples" in err) == differs
        data["measured"] = data["comparisons"] = []  # as in the file of a killed run

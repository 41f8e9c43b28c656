"""Two kinds of machine in one report: no row of one is compared, joined or measured by what was seen on the other."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
from conftest import FakeLaunch

import ffnbench
from ffnbench.report.files.store import load
from ffnbench.result import Report
from ffnbench.stats.curves import findings

TOKENS = tuple(2**k for k in range(8))
SWEEP = ["compare", "relu", "swiglu", "--d-model", "64", "--seq-len", "1..128", "--threads", "1"]
HOW = ["--workers", "5", "--rounds", "6"]
ROOF = 0.001


def machine(torch: str, swiglu: float, roof: float = ROOF) -> FakeLaunch:
    """One on which swiglu takes that share of relu's time, and a ceiling so many seconds."""
    made = FakeLaunch(lambda label, worker, number: (swiglu if "swiglu" in label else 1) * (0.01 + worker * 1e-6))
    made.facts = {"version": torch}
    made.roofs = lambda roofs: [{"roof": one, "seconds": roof, "calls": 1} for one in roofs[:1]]
    made.roof = lambda name, worker: {"value": roof, "waited": 0.0}
    return made


@pytest.fixture
def joined(on_fakes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Every other point measured on another kind of machine: swiglu is slower on the first, faster on the other."""
    monkeypatch.chdir(tmp_path)
    for number, launch in ((1, machine("2.0", 1.2)), (2, machine("3.0", 0.8, ROOF / 2))):
        assert on_fakes(*SWEEP, *HOW, "--shard", f"{number}/2", "-o", f"{number}.json", launch=launch)[0] == 0
    code, out, err = on_fakes("report 1.json 2.json -o both.json -o both.csv")
    assert code == 0, err
    return load("both.json"), out


def of_machine(found: Report) -> dict[int, str | None]:
    """By the number of tokens, the torch that a row was measured with."""
    return {
        int(label.rpartition("=")[2]): environment.torch
        for label, environment in found.environments.items() if label.startswith("relu")
    }  # fmt: skip


def test_each_row_keeps_its_machine(joined) -> None:
    found, out = joined
    assert of_machine(found) == {tokens: ("2.0", "3.0")[place % 2] for place, tokens in enumerate(TOKENS)}
    assert "m1: " in out
    assert re.search(r"m1: .*torch 2\.0.*m2: .*torch 3\.0", out)
    rows = list(csv.DictReader(io.StringIO(Path("both.csv").read_text())))
    assert {(row["machine"], row["verdict"]) for row in rows if row["label"].startswith("swiglu")} == {
        ("m1", "slower"), ("m2", "faster"),
    }  # fmt: skip
    frame = ffnbench.load("both.json").frame()
    assert set(frame["machine"]) == {"m1", "m2"}


def test_no_crossing_goes_from_one_machine_to_the_other(joined) -> None:
    told = findings(ffnbench.load("both.json"))
    assert told is not None
    assert (told.lines, told.crossings) == (2, ())
    data = json.loads(Path("both.json").read_text())  # as if all were of one machine: what the axis is for
    data["further"] = []
    for case in data["plan"]["cases"]:
        case["point"] = [one for one in case["point"] if one[0] != "machine"]
    Path("one.json").write_text(json.dumps(data))
    told = findings(ffnbench.load("one.json"))
    assert told is not None
    assert len(told.crossings) > 1


def test_a_row_is_held_against_the_ceiling_of_its_own_machine(joined) -> None:
    """On the other machine the same ceiling takes half the seconds: a row of the same time is half as near to it."""
    found = ffnbench.load("both.json")
    shares = {one.case: one.share.value for one in found.shares if one.case.startswith("relu")}
    assert len(shares) == len(TOKENS)
    for few, many in zip(TOKENS[::2], TOKENS[1::2], strict=True):
        assert shares[f"relu@seq_len={many}"] / shares[f"relu@seq_len={few}"] == pytest.approx(0.5, rel=0.01)


def test_a_check_of_two_kinds_is_refused(joined, on_fakes) -> None:
    code, _, err = on_fakes("check both.json")
    assert (code, err.count("\n"), "2 kinds of machine" in err) == (2, 2, True)
    code, _, err = on_fakes("check 1.json both.json")
    assert (code, "2 kinds of machine" in err) == (2, True)


def test_picture_and_page_tell_the_machines_apart(joined, on_fakes) -> None:
    assert on_fakes("report both.json -o both.svg -o both.html")[0] == 0
    assert {"m1", "m2"} <= set(re.findall(r"\bm[12]\b", Path("both.svg").read_text()))
    page = Path("both.html").read_text()
    assert "<h3>m1</h3>" in page
    assert "<h3>m2</h3>" in page
    assert on_fakes("report 1.json both.json")[0] == 0


def test_a_sweep_of_two_kinds_is_gone_on_with(joined, on_fakes) -> None:
    launch = machine("3.0", 0.8)
    longer = [*SWEEP[:-3], "1..256", *SWEEP[-2:]]
    assert on_fakes(*longer, *HOW, "-o", "both.json", "--resume", launch=launch)[0] == 0
    found = load("both.json")
    assert of_machine(found) == {tokens: ("2.0", "3.0")[place % 2] for place, tokens in enumerate((*TOKENS, 256))} | {
        256: "3.0"
    }

"""benchmarks/error_rates.py: the published table is that of the file, an interruption
loses nothing.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from pathlib import Path

import error_rates
import pytest
from paths import ROOT

FILE = ROOT / "results" / "amd-epyc-2cpu" / "error-rates.jsonl"
ROW = re.compile(
    r"^\| (ffnbench ab|ffnbench check|asv|pytest-benchmark|pyperf) \|(.*)\|$"
)


def test_the_docs_tell_what_the_file_holds() -> None:
    lines = FILE.read_text(encoding="utf-8").splitlines()[1:]
    decisions = [json.loads(line) for line in lines]
    regressed = Counter(
        (each["tool"], each["effect"])
        for each in decisions
        if each["verdict"] == "regressed"
    )
    made = Counter((each["tool"], each["effect"]) for each in decisions)
    assert len(set(made.values())) == 1
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    rows = [match for line in page.splitlines() if (match := ROW.match(line))]
    assert len(rows) == 5
    for row in rows:
        cells = [cell.strip() for cell in row[2].split("|")]
        assert cells[:5] == [str(regressed[row[1], e]) for e in (0, 3, 5, 7, 10)]
    assert f"Each cell is how many of {made['asv', 0]} decisions" in page


def test_rates_have_intervals_of_wilson() -> None:
    """Wilson (1927), by hand: 2 of 7."""
    decisions = [
        error_rates.Decision(turn, 0, "asv", verdict, "", 1.0, 1.0)
        for turn, verdict in enumerate(["regressed"] * 2 + ["passed"] * 5)
    ]
    record = error_rates.Record({"effects": [0], "tools": ["asv"]}, {}, {}, decisions)
    rate = error_rates.rate_of(record, "asv", 0)
    z, n, p = 1.959964, 7, 2 / 7
    middle = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    assert (rate.hits, rate.of) == (2, 7)
    assert rate.low == pytest.approx(middle - half, rel=1e-4)
    assert rate.high == pytest.approx(middle + half, rel=1e-4)


class Stopped:
    """A tool that is interrupted at its fifth decision, once."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, *_: object) -> tuple[str, str]:
        self.calls += 1
        if self.calls == 5:
            raise KeyboardInterrupt
        return "passed", "in its words"


def test_after_an_interruption_the_same_command_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tool = Stopped()
    monkeypatch.setattr(error_rates, "BY", {"asv": tool, "pyperf": tool})
    truth = {"0": [1.0, 0.9, 1.1], "7": [1.07, 1.0, 1.1]}
    monkeypatch.setattr(error_rates, "truth_of", lambda *_: truth)
    monkeypatch.setattr(error_rates, "machine", lambda: {"cpu": "a CPU"})
    file = tmp_path / "rates.jsonl"
    command = f"--each 3 --effects 0,7 --tools asv,pyperf -o {file}".split()
    error_rates.main(command)
    assert "the same command goes on" in capsys.readouterr().err
    before = file.read_text().splitlines()
    assert len(before) == 1 + 4
    error_rates.main(command)
    after = file.read_text().splitlines()
    assert after[:5] == before
    made = Counter(
        (d["turn"], d["effect"], d["tool"]) for d in map(json.loads, after[1:])
    )
    assert len(made) == 3 * 2 * 2
    assert set(made.values()) == {1}
    with pytest.raises(SystemExit):
        error_rates.main(["--seconds", "5", *command])
    assert "has other settings" in capsys.readouterr().err

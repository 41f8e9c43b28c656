"""benchmarks/error_rates.py: the published table is that of the file, an interruption
loses nothing.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter

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
    """Wilson (1927), by hand: 2 of 7, and a decision that failed."""
    verdicts = ["regressed"] * 2 + ["passed"] * 5 + ["failed"]
    decisions = [{"tool": "asv", "effect": 0, "verdict": each} for each in verdicts]
    rate = error_rates.rates_of(decisions).loc["asv", 0]
    z, n, p = 1.959964, 7, 2 / 7
    middle = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    assert (rate.hits, rate.of) == (2, 7)
    assert rate.low == pytest.approx(100 * (middle - half), rel=1e-4)
    assert rate.high == pytest.approx(100 * (middle + half), rel=1e-4)

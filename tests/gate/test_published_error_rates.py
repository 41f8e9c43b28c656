"""benchmarks/error_rates.py: the published table is that of the file."""

from __future__ import annotations

import json
import re
from collections import Counter

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
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    rows = [match for line in page.splitlines() if (match := ROW.match(line))]
    assert len(rows) == 5
    for row in rows:
        cells = [cell.strip() for cell in row[2].split("|")]
        told = [made[row[1], 0], *(regressed[row[1], e] for e in (0, 3, 5, 7, 10))]
        assert cells[:6] == [str(count) for count in told]

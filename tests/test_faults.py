"""The table of results/faults.md is that of tests/faults.py; quick rows that no other test has are provoked here."""

from __future__ import annotations

import re
from pathlib import Path

import faults
import pytest
from conftest import ROOT
from fault_rows.kit import FAULTS, Shared

QUICK = (
    "links planted under the names that files have while they are written",
    "a folder that may not be written to, an output that may not",
    "an output that is a pipe with a reader",
    "files may not grow (RLIMIT_FSIZE)",
)


@pytest.mark.parametrize("name", QUICK)
def test_a_fault_is_as_promised(tmp_path: Path, name: str) -> None:
    (fault,) = (one for one in FAULTS if one.name == name)
    row = faults.provoked(fault, tmp_path / "fault", Shared(tmp_path / "shared"))
    if row.skipped:
        pytest.skip(row.skipped)
    assert row.broken == ()


def test_every_fault_has_a_name_of_its_own_and_a_room() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert {fault.provoke.__module__ for fault in FAULTS} == {room.__name__ for room in faults.ROOMS.values()}
    assert all(fault.codes for fault in FAULTS)


def test_the_document_has_a_row_for_each() -> None:
    text = (ROOT / "results" / "faults.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (.+?) \| (.+?) \| .+ \| (?:yes|-|\*\*no\*\*.*) \|$", text, re.MULTILINE))
    for fault in FAULTS:
        name, promise = (part.replace("|", "\\|").replace("<", "&lt;") for part in (fault.name, fault.promise))
        assert rows.get(name) == promise

"""A few quick rows of tests/faults.py that no other test has; all of them take minutes."""

from __future__ import annotations

from pathlib import Path

import faults
import pytest
from fault_rows.kit import FAULTS, Shared, Skip

QUICK = ("an output that is a symlink", "a folder that may not be written to")


@pytest.mark.parametrize("fault", [pytest.param(one, marks=() if one.name.startswith(QUICK) else pytest.mark.slow)
                                   for one in FAULTS], ids=lambda fault: fault.name)  # fmt: skip
def test_a_fault_is_as_promised(tmp_path: Path, fault) -> None:
    try:
        assert faults.provoked(fault, tmp_path / "fault", Shared(tmp_path / "shared")) == ()
    except Skip as reason:
        pytest.skip(str(reason))

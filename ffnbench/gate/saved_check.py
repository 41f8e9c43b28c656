"""Shows again what `check -o FILE.json` or `ab -o FILE.json` has written."""

from __future__ import annotations

from typing import Any

from ffnbench.common import jsonable
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.files import content_of
from ffnbench.gate.decision import CHECKED_METRICS, OUTPUT, SPEC, Checked, Finding
from ffnbench.gate.shown_check import ShownCheck, as_shown_check
from ffnbench.report.files.store import report_in
from ffnbench.report.table import estimate_in

METRICS = (SPEC, OUTPUT, *CHECKED_METRICS)
# the fields of Checked that are texts
TEXTS = ("against", "saved", "command")


def saved_check(path: str) -> ShownCheck:
    """The saved check. Raises FfnbenchError for a file that is not complete."""
    try:
        data = jsonable.parse(content_of(path))
        if "now" not in data:
            raise ValueError("its run, `now`, is missing")
        now = report_in(jsonable.json_text(data["now"]).encode(), path)
        checked = Checked(
            findings=tuple(map(_finding, data["findings"])),
            before=now,
            now=now,
            sides=tuple(data.get("sides", ())),
            **{name: data.get(name, "") for name in TEXTS},
        )
        return as_shown_check(checked)
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise FfnbenchError(
            f"{path!r} is not a complete result of a check: {problem}",
            "was it cut off? check again",
        ) from problem


def _finding(record: dict[str, Any]) -> Finding:
    """The finding of which gate/table.py: finding_records made a record. A change
    without an interval is left out: it follows from the values before and now.
    """
    data = {
        name: value for name, value in record.items() if not name.startswith("change")
    }
    if record.get("change_low") is not None:
        data["change"] = jsonable.encode(estimate_in(record, "change"))
    finding = jsonable.decode(Finding, data)
    if finding.metric not in METRICS:
        raise ValueError(f"no metric is called {finding.metric!r}")
    return finding

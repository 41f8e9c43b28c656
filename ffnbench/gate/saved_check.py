"""What `check -o FILE.json` wrote, shown again."""

from __future__ import annotations

from typing import Any

from ffnbench.common import jsonable
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.files import content_of
from ffnbench.gate.decision import CHECKED_METRICS, OUTPUT, Checked, Finding
from ffnbench.gate.shown_check import check_view
from ffnbench.report.files.store import refuse_incoherent, report_of_json
from ffnbench.report.formats import View

METRICS = ("spec", OUTPUT, *CHECKED_METRICS)


def saved_check_view(path: str) -> View:
    """A saved check as it was shown; raises FfnbenchError for a file that is not
    whole.
    """
    try:
        data = jsonable.parse(content_of(path))
        if "now" not in data:
            raise ValueError("its run, `now`, is missing")
        now = report_of_json(data["now"], path)
        refuse_incoherent(now)
        findings = tuple(_finding(record) for record in data["findings"])
        names = {name: data.get(name, "") for name in ("against", "saved", "command")}
        checked = Checked(
            findings=findings,
            before=now,
            now=now,
            sides=tuple(data.get("sides", ())),
            **names,
        )
        return check_view(checked).ending(0)
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise FfnbenchError(
            f"{path!r} is not a whole answer of a check: {problem}",
            "was it cut off? check again",
        ) from problem


def _finding(record: dict[str, Any]) -> Finding:
    """A finding of its record; the change of an exact metric follows from its
    values.
    """
    change = None
    if record["change_low"] is not None:
        change = {
            "value": record["change"],
            "low": record["change_low"],
            "high": record["change_high"],
        }
    of_check = {
        name: value for name, value in record.items() if not name.startswith("change")
    }
    finding = jsonable.decode(Finding, of_check | {"change": change})
    if finding.metric not in METRICS:
        raise ValueError(f"no metric is called {finding.metric!r}")
    return finding

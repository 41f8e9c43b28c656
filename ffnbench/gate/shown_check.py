"""The answer of `check` and `ab` as a view; in Python it is an object that can show
itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace

from ffnbench.common.errors import EXIT_INTERRUPTED, Unfinished
from ffnbench.common.jsonable import json_text
from ffnbench.gate.baseline import new_baseline
from ffnbench.gate.decision import Checked, Status, exit_code
from ffnbench.gate.table import (
    finding_records,
    findings_frame,
    junit,
    workflow_commands,
)
from ffnbench.report.files.store import made_anew, report_text
from ffnbench.report.formats import NOT_ALL, View
from ffnbench.report.frame import Row
from ffnbench.report.shown_report import Shows, origin_record


@dataclass(frozen=True, kw_only=True, repr=False)
class ShownCheck(Shows, Checked):
    """The answer of `check` and `ab`: a finding for every metric of every case, and the
    reports that they follow from.
    """

    READ = ("before", "findings", "now", "ok", "status")

    @property
    def _stem(self) -> str:
        return "check"

    @property
    def _origin(self) -> Row:
        return origin_record(self.now)

    @property
    def ok(self) -> bool:
        """Whether nothing regressed and nothing is missing. A row that can't be told
        changes nothing here (see `status`).
        """
        return exit_code(self, unclear_fails=False) == 0

    @property
    def status(self) -> str:
        """The gravest status of all rows: REGRESSED, MISSING, UNCLEAR, INCOMPARABLE,
        IMPROVED or OK.
        """
        statuses = {finding.status for finding in self.findings}
        for status in GRAVEST:
            if status in statuses:
                return status
        return Status.OK

    def view(self) -> View:
        """The findings, with the functions that write them in every format."""
        return check_view(self)

    def rows(self) -> list[Row]:
        """A flat record for each metric of each case."""
        return finding_records(self)


# the statuses, the gravest first; OK and NEW are what is left
GRAVEST = (
    Status.REGRESSED,
    Status.MISSING,
    Status.UNCLEAR,
    Status.INCOMPARABLE,
    Status.IMPROVED,
)


def as_shown_check(checked: Checked) -> ShownCheck:
    """An answer as an object that can show itself."""
    return ShownCheck(
        **{field.name: getattr(checked, field.name) for field in fields(Checked)}
    )


def check_view(checked: Checked) -> View:
    """The view of a check: its findings in every format, the run that they follow from,
    and what a new baseline would be.
    """
    frame, findings = findings_frame(checked), checked.findings
    view = View(
        frame=lambda: frame,
        reports=[checked.now],
        title=frame.header[0].partition(";")[0],
        command=checked.command,
        more_formats={"github": lambda: workflow_commands(findings)},
        more_files={
            ".json": lambda: _check_json(checked),
            ".xml": lambda: junit(findings),
        },
        baseline=lambda: new_baseline(checked),
        code=exit_code(checked, unclear_fails=False),
        code_if_unclear_fails=exit_code(checked, unclear_fails=True),
    )
    if checked.now.stopped and not checked.now.out_of_budget:
        hint = made_anew(checked.saved, checked.now) if checked.saved else NOT_ALL
        return view.ending(view.code, Unfinished(checked.now.stopped, hint))
    if checked.interrupted:
        return replace(view, code=EXIT_INTERRUPTED, code_if_unclear_fails=None)
    return view


def _check_json(checked: Checked) -> str:
    """The findings and the run that they follow from, as JSON that
    `gate/saved_check.py` reads.
    """
    answer = {
        "findings": finding_records(checked),
        "against": checked.against,
        "saved": checked.saved,
        "sides": list(checked.sides),
        "command": checked.command,
        "now": json.loads(report_text(checked.now)),
    }
    return json_text(answer, 1)

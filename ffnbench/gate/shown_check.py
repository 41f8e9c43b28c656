"""The answer of `check` and `ab`: it shows itself, is written into files and read from
them again, and becomes a baseline.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ffnbench.common import jsonable
from ffnbench.common.errors import EXIT_INTERRUPTED, FfnbenchError, Unfinished
from ffnbench.common.files import content_of
from ffnbench.common.jsonable import json_text
from ffnbench.common.streams import say
from ffnbench.gate.baseline import new_baseline
from ffnbench.gate.decision import Finding, Status, exit_code
from ffnbench.gate.table import (
    finding_records,
    findings_table,
    junit,
    workflow_commands,
)
from ffnbench.plan.metrics import LATENCY
from ffnbench.record.result import Report
from ffnbench.report.answer import Shows, Write
from ffnbench.report.destination import STDOUT_FORMATS, Destination, refuse_unknown
from ffnbench.report.files import append, refuse_unwritable, write
from ffnbench.report.shown_report import NOT_ALL, origin_record
from ffnbench.report.store import made_anew, report_in, report_text
from ffnbench.report.table import Row, Table, estimate_in
from ffnbench.report.terminal import Terminal, show

CHECK_FORMATS = (*STDOUT_FORMATS, "github")
CI_WIDTH = 100  # letters in a line of a log of GitHub


@dataclass(frozen=True, kw_only=True, repr=False)
class ShownCheck(Shows):
    """The answer of `check` and `ab`: a finding for every metric of every case, and the
    two reports that they follow from.

    `against` is the file of the baseline, `saved` that of a run which was measured
    before. If there is no baseline, `sides` says in words what base and head are.
    `command` asks the same again. `updates` says that it becomes the baseline.
    """

    findings: tuple[Finding, ...]
    before: Report
    now: Report
    against: str = ""
    saved: str = ""
    sides: tuple[str, ...] = ()
    command: str = ""
    updates: bool = False

    @property
    def stem(self) -> str:
        """The name of its files in a folder, without their suffix."""
        return "check"

    def origin(self) -> Row:
        """When, where and by what it was measured."""
        return origin_record(self.now)

    @property
    def ok(self) -> bool:
        """Whether nothing regressed and nothing is missing. A row that can't be told
        changes nothing here (see `status`).
        """
        return self._code(unclear_fails=False) == 0

    @property
    def status(self) -> Status:
        """The gravest status of all rows: REGRESSED, MISSING, UNCLEAR, INCOMPARABLE,
        IMPROVED or OK.
        """
        statuses = {finding.status for finding in self.findings}
        return next((grave for grave in GRAVEST if grave in statuses), Status.OK)

    def shown_table(self) -> Table:
        """The findings, without the exact rows that are equal."""
        return findings_table(self)

    def outcome(
        self, *, unclear_fails: bool = False
    ) -> tuple[int, FfnbenchError | None]:
        """The exit code, and why not all was measured. With `unclear_fails` a row that
        can't be told has an exit code too.
        """
        code = self._code(unclear_fails=unclear_fails)
        if self.now.stopped and not self.now.out_of_budget:
            hint = made_anew(self.saved, self.now) if self.saved else NOT_ALL
            return code, Unfinished(self.now.stopped, hint)
        return EXIT_INTERRUPTED if self.now.interrupted else code, None

    def _code(self, *, unclear_fails: bool) -> int:
        failed = bool(self.now.failed_rows)
        return exit_code(self.findings, failed=failed, unclear_fails=unclear_fails)

    def files(self, table: Table) -> dict[str, Write]:
        """A writer for each suffix; its JSON can be shown again."""
        more: dict[str, Write] = {
            ".json": lambda: check_json(self),
            ".xml": lambda: junit(self.findings),
        }
        return super().files(table) | more

    def page(self, table: Table) -> str:
        """The findings as an HTML document."""
        from ffnbench.report.writers import page_of

        title = table.header[0].partition(";")[0]
        return page_of(table, None, self.now, title, self.command)


# the statuses, the gravest first; OK and NEW are what is left
GRAVEST = (
    Status.REGRESSED,
    Status.MISSING,
    Status.UNCLEAR,
    Status.INCOMPARABLE,
    Status.IMPROVED,
)


def check_json(checked: ShownCheck) -> str:
    """The findings and the run that they follow from, as JSON that `saved_check`
    reads.
    """
    answer = {
        "findings": finding_records(checked.findings),
        "against": checked.against,
        "saved": checked.saved,
        "sides": list(checked.sides),
        "command": checked.command,
        "now": json.loads(report_text(checked.now)),
    }
    return json_text(answer, 1)


def saved_check(path: str) -> ShownCheck:
    """The answer in a file of `check -o FILE.json` or `ab -o FILE.json`. Raises
    FfnbenchError for a file that is not complete.
    """
    try:
        data = jsonable.parse(content_of(path))
        now = report_in(json_text(data.pop("now")).encode(), path)
        findings = tuple(_finding_in(record) for record in data.pop("findings"))
        sides = tuple(data.pop("sides", ()))
        if not all(isinstance(text, str) for text in data.values()):
            raise ValueError("a text is none")
        return ShownCheck(findings=findings, before=now, now=now, sides=sides, **data)
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise FfnbenchError(
            f"{path!r} is not a complete result of a check: {problem}",
            "was it cut off? check again",
        ) from problem


def _finding_in(record: Row) -> Finding:
    """The finding that a record is of. The change of an exact metric follows from the
    values before and now.
    """
    data = {key: value for key, value in record.items() if "change" not in key}
    if record["metric"] == LATENCY and record.get("change") is not None:
        data["change"] = jsonable.encode(estimate_in(record, "change"))
    return jsonable.decode(Finding, data)


class CheckDestination(Destination):
    """Where a check's answer goes. With `update` it replaces the baseline, and with
    `--on-unclear fail` an UNCLEAR row sets the exit code.
    """

    def __init__(
        self,
        stem: str,
        *,
        baseline: str = "",
        update: bool = False,
        on_unclear: str = "pass",
        **how: Any,
    ) -> None:
        refuse_unknown("--on-unclear", on_unclear, ("pass", "fail"))
        self._unclear_fails = on_unclear == "fail"
        self._baseline = Path(baseline)
        if update:
            refuse_unwritable(self._baseline)
        super().__init__(stem, formats=CHECK_FORMATS, **how)
        self.updates = update

    def show(self, answer: Shows) -> None:
        """Show the answer, then write the new baseline."""
        super().show(answer)
        assert isinstance(answer, ShownCheck)
        self.code, _ = answer.outcome(unclear_fails=self._unclear_fails)
        if self.updates:
            path = self._baseline
            text = new_baseline(str(path), answer.before, answer.now, answer.findings)
            write(path, text)
            say(f"wrote {path}")
            self.code = self.code if self.code == EXIT_INTERRUPTED else 0

    def _print(self, answer: Shows, table: Table) -> None:
        if self._format != "github":
            super()._print(answer, table)
            return
        assert isinstance(answer, ShownCheck)
        # a label at the beginning of a line could give GitHub's runner a command
        token = secrets.token_hex(16)
        sys.stdout.write(f"::stop-commands::{token}\n")
        show(table, Terminal(width=CI_WIDTH, no_color=True))
        sys.stdout.write(f"::{token}::\n" + workflow_commands(answer.findings))
        if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
            append(Path(summary), str(answer.files(table)[".md"]()))

"""The answer of `check` and `ab`, which shows itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

from ffnbench.common.errors import EXIT_INTERRUPTED, FfnbenchError, Unfinished
from ffnbench.common.jsonable import json_text
from ffnbench.gate.decision import Checked, Status, exit_code
from ffnbench.gate.table import (
    finding_records,
    findings_table,
    junit,
    workflow_commands,
)
from ffnbench.report.answer import Shows, Write
from ffnbench.report.files.store import made_anew, report_text
from ffnbench.report.shown_report import NOT_ALL, origin_record
from ffnbench.report.table import Row, Table


@dataclass(frozen=True, kw_only=True, repr=False)
class ShownCheck(Shows, Checked):
    """The answer of `check` and `ab`: a finding for every metric of every case, and the
    reports that they follow from.
    """

    READ = ("before", "findings", "now", "ok", "status")

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

    def tables(self) -> list[Table]:
        """The findings, without the exact rows that are equal."""
        return [findings_table(self)]

    def outcome(
        self, *, unclear_fails: bool = False
    ) -> tuple[int, FfnbenchError | None]:
        """The exit code, and why not all was measured. With `unclear_fails` a row that
        can't be told has an exit code too.
        """
        code = exit_code(self, unclear_fails=unclear_fails)
        if self.now.stopped and not self.now.out_of_budget:
            hint = made_anew(self.saved, self.now) if self.saved else NOT_ALL
            return code, Unfinished(self.now.stopped, hint)
        return EXIT_INTERRUPTED if self.interrupted else code, None

    def texts(self, tables: Sequence[Table]) -> dict[str, Callable[[], str]]:
        """A writer for each format of stdout but the table."""
        commands = {"github": lambda: workflow_commands(self.findings)}
        return super().texts(tables) | commands

    def files(self, tables: Sequence[Table]) -> dict[str, Write]:
        """A writer for each suffix; its JSON can be shown again."""
        more: dict[str, Write] = {
            ".json": lambda: _check_json(self),
            ".xml": lambda: junit(self.findings),
        }
        return super().files(tables) | more

    def page(self, tables: Sequence[Table]) -> str:
        """The findings as an HTML document."""
        from ffnbench.report.page import page_of

        title = tables[0].header[0].partition(";")[0]
        return page_of(tables, None, self.now, title, self.command)


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

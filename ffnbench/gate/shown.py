"""What `check` and `ab` give in Python: findings that show themselves."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ffnbench.gate.decision import Checked, Status, exit_code
from ffnbench.gate.table import check_view, finding_records
from ffnbench.report.answers import Shows
from ffnbench.report.formats import View
from ffnbench.report.frame import Row
from ffnbench.report.records import origin_record


@dataclass(frozen=True, kw_only=True, repr=False)
class ShownCheck(Shows, Checked):
    """What `check` and `ab` found: a finding for every metric of every case, and the reports that they follow from."""

    READ = ("before", "findings", "now", "ok", "status")

    @property
    def _stem(self) -> str:
        return "check"

    @property
    def _origin(self) -> Row:
        return origin_record(self.now)

    @property
    def ok(self) -> bool:
        """Whether nothing regressed and nothing is missing; what can't be told is no regression (see `status`)."""
        return exit_code(list(self.findings), unclear_fails=False) == 0

    @property
    def status(self) -> str:
        """The gravest status of all rows: REGRESSED, MISSING, UNCLEAR, INCOMPARABLE, IMPROVED or OK."""
        found = {finding.status for finding in self.findings}
        return next((one.value for one in GRAVEST if one in found), Status.OK.value)

    def view(self) -> View:
        """The findings with all that writes them."""
        return check_view(self)

    def rows(self) -> list[Row]:
        """One flat record a metric of a case."""
        return finding_records(self.findings)


GRAVEST = (Status.REGRESSED, Status.MISSING, Status.UNCLEAR, Status.INCOMPARABLE, Status.IMPROVED)


def as_shown_check(found: Checked) -> ShownCheck:
    """What a check found, able to show itself."""
    return ShownCheck(**{field.name: getattr(found, field.name) for field in fields(Checked)})

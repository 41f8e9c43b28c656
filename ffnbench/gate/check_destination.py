"""Where the answer of a check goes, and what becomes of its baseline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ffnbench.common.errors import EXIT_INTERRUPTED
from ffnbench.common.streams import say
from ffnbench.gate.baseline import new_baseline
from ffnbench.gate.shown_check import ShownCheck
from ffnbench.report.answer import Shows
from ffnbench.report.destination import STDOUT_FORMATS, Destination, refuse_unknown
from ffnbench.report.files.outputs import refuse_unwritable, save

CHECK_FORMATS = (*STDOUT_FORMATS, "github")


class CheckDestination(Destination):
    """Where a check's answer goes. With `update` it replaces the baseline.

    With `--on-unclear fail`, an UNCLEAR row sets the exit code.
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
        self._baseline = baseline
        if update:
            refuse_unwritable(Path(baseline))
        why = "this would be what a check finds"
        super().__init__(stem, formats=CHECK_FORMATS, why_runs_stay=why, **how)
        self.updates = update

    def show(self, answer: Shows) -> None:
        """Show the answer, then write the new baseline."""
        super().show(answer)
        assert isinstance(answer, ShownCheck)
        self.code, _ = answer.outcome(unclear_fails=self._unclear_fails)
        if self.updates:
            save(Path(self._baseline), new_baseline(answer))
            say(f"wrote {self._baseline}")
            self.code = self.code if self.code == EXIT_INTERRUPTED else 0

"""Where the answer of a check goes, and what becomes of its baseline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ffnbench.common.errors import EXIT_INTERRUPTED
from ffnbench.common.streams import say
from ffnbench.report.destination import Destination, refuse_unknown
from ffnbench.report.files.outputs import refuse_unwritable, save
from ffnbench.report.formats import CHECK_FORMATS, View


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

    def show(self, shown: View) -> None:
        """Show the answer, then write the new baseline."""
        super().show(shown)
        if self._unclear_fails and shown.code_if_unclear_fails is not None:
            self.code = shown.code_if_unclear_fails
        if self.updates and shown.baseline is not None:
            save(Path(self._baseline), shown.baseline())
            say(f"wrote {self._baseline}")
            self.code = shown.code if shown.code == EXIT_INTERRUPTED else 0

"""Where the answer of a check goes, and what becomes of its baseline."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ffnbench.choices import CHECK_SUFFIXES, PAGE_SUFFIX
from ffnbench.common.errors import EXIT_INTERRUPTED
from ffnbench.common.streams import say
from ffnbench.report.destination import Destination, refuse_unknown
from ffnbench.report.files.outputs import inputs_of, refuse_unwritable, save
from ffnbench.report.formats import CHECK_FORMATS, View
from ffnbench.request import Output


class CheckDestination(Destination):
    """Where a check's answer goes; `output` says what becomes of the baseline too.

    With `--on-unclear fail`, an UNCLEAR row sets the exit code.
    """

    def __init__(
        self,
        output: Output,
        baseline: str = "",
        inputs: Iterable[str | None] = (),
    ) -> None:
        refuse_unknown("--on-unclear", output.on_unclear, ("pass", "fail"))
        self._unclear_fails = output.on_unclear == "fail"
        self._baseline = baseline
        self._update = output.update
        if output.update:
            refuse_unwritable(Path(baseline))
        super().__init__(
            output,
            "check",
            suffixes=(*CHECK_SUFFIXES, PAGE_SUFFIX),
            formats=CHECK_FORMATS,
            inputs=inputs_of(*inputs),
            why_runs_stay="this would be what a check finds",
        )

    def show(self, shown: View) -> None:
        """Show the answer, then write the new baseline."""
        super().show(shown)
        if self._unclear_fails and shown.code_if_unclear_fails is not None:
            self.code = shown.code_if_unclear_fails
        if self._update and shown.baseline is not None:
            save(Path(self._baseline), shown.baseline())
            say(f"wrote {self._baseline}")
            self.code = shown.code if shown.code == EXIT_INTERRUPTED else 0

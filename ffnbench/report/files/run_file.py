"""The .json of `-o` while its run is measured: a whole result, marked as interrupted,
that is written again and again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

from ffnbench.common.streams import say
from ffnbench.record.result import Report
from ffnbench.report.files.outputs import replace_file
from ffnbench.report.files.store import read_report, report_text

EVERY_S = 5.0  # the least time from one writing to the next
# the time from one writing to the next, in times of what it takes: so a large result
# costs at most 2 % of its run
TIMES_WRITING = 50


class RunFile:
    """The file of a run. With `resumes` the run goes on with what the file has.

    `text_of` makes its text of the report so far: that of a check has its findings.
    """

    text_of: Callable[[Report], str] = staticmethod(report_text)

    def __init__(self, path: Path, *, resumes: bool) -> None:
        self.path, self.resumes = path, resumes
        self._due = -math.inf

    def earlier(self) -> Report | None:
        """The run that is gone on with; None where there is none."""
        if not self.resumes or not self.path.is_file():
            return None
        return read_report(self.path)

    def keep(self, report_of: Callable[[], Report]) -> None:
        """Write what is measured so far, where it is time for that and there is a
        sample. A file that can't be written now is written at the end.
        """
        began = time.monotonic()
        if began < self._due:
            return
        report = report_of()
        if not report.samples:
            return
        try:
            replace_file(self.path, self.text_of(report).encode())
        except OSError as problem:
            say(f"note: cannot write {str(self.path)!r} now: {problem.strerror}")
            self._due = math.inf
            return
        ended = time.monotonic()
        self._due = ended + max(EVERY_S, TIMES_WRITING * (ended - began))

"""What tells records of several runs apart; and records as a plain frame of their own."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from ffnbench.report.frame import Column, Frame, Row
from ffnbench.result import Report


def origin_record(report: Report) -> Row:
    """When, where and by what a report was made; of one that was not measured machine, cpu, torch and git are None.

    `created` is in ISO 8601; `machine` is the fingerprint of all that latency depends on; `git` is the commit of the
    folder; `run` is the same for the same run alone; `version` is ffnbench's.
    """
    here = report.environment
    made = [report.created, *(f"{s.case} {s.metric} {s.value:.9g}" for s in report.samples)]
    return {
        "created": report.created,
        "machine": here and here.fingerprint,
        "cpu": here and here.cpu,
        "torch": here and here.torch,
        "git": here and here.git_commit and here.git_commit + "-dirty" * bool(here.git_dirty),
        "run": hashlib.sha256("\n".join(made).encode()).hexdigest()[:12],
        "version": report.version,
    }


def frame_of(records: Sequence[Row], below: Iterable[str] = (), prose: Iterable[str] = ()) -> Frame:
    """Records as a frame: the first column stays longest, then in their order; columns of `prose` may be wrapped."""
    columns = tuple(
        Column(key=key, left=not isinstance(value, int), priority=place, flexible=key in prose)
        for place, (key, value) in enumerate(records[0].items())
    )
    return Frame(columns=columns, rows=records, summary=tuple(below))

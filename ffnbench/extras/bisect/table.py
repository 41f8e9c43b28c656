"""The answer of `bisect`: a row for every probe of a commit, and below them the first
slow commit, its change, and how sure that is.
"""

from __future__ import annotations

from dataclasses import replace

from ffnbench.common.errors import EXIT_INTERRUPTED, Unfinished
from ffnbench.common.jsonable import json_text
from ffnbench.common.units import counted, percent
from ffnbench.extras.bisect.commits import (
    FOUND,
    NONE,
    OPEN,
    Bisected,
    Commit,
    CommitProbe,
)
from ffnbench.report.formats import View
from ffnbench.report.frame import Frame, Row, frame_of_records
from ffnbench.report.words import CERTAIN, change_text

UNLIKELY = 0.01  # a probability that is not worth a word


def bisect_view(bisected: Bisected) -> View:
    """The answer of `bisect`. Where several commits are left, it ends with the error
    that it could not finish.
    """
    view = View(
        frame=lambda: _frame(bisected),
        json=lambda: json_text(_json_record(bisected), 1) + "\n",
        title=f"bisect: {bisected.variant}",
    )
    if bisected.interrupted:
        return view.ending(EXIT_INTERRUPTED)
    if bisected.state == OPEN:
        hint = "the same command again goes on from here; a quiet machine, or a larger --d-model, tells more"
        return view.ending(
            0,
            Unfinished(
                "the probes or the time are spent, and several commits are left", hint
            ),
        )
    return view


def probe_text(bisected: Bisected, commit: Commit, probe: CommitProbe) -> str:
    """What one probe has found, and how many commits are left."""
    posterior = bisected.posterior
    result = f"skipped: {probe.skipped}" if probe.skipped else change_text(probe.change)
    left = f"{counted(len(posterior.credible_range), 'commit')} of {len(bisected.commits)} left"
    text = f"{commit.short} {result}; {left}"
    if posterior.no_step >= UNLIKELY:
        text += f"; no step: {percent(posterior.no_step)}"
    return text


def _frame(bisected: Bisected) -> Frame:
    rows: list[Row] = []
    for commit, probe in bisected.by_commit:
        change = "skipped" if probe.skipped else change_text(probe.change)
        row = {
            "commit": commit.short,
            f"change {CERTAIN}": change,
            "subject": commit.subject,
            "note": probe.skipped,
        }
        rows.append(row)
    commits = f"{counted(len(bisected.commits), 'commit')} after {bisected.good} up to {bisected.bad}"
    return replace(
        frame_of_records(rows, _summary_lines(bisected), prose=("subject", "note")),
        saved=_records(bisected),
        header=(f"{bisected.variant}, {commits}; change against {bisected.good}",),
    )


def _summary_lines(bisected: Bisected) -> list[str]:
    end = bisected.posterior.change_at_end()
    if bisected.state == NONE and end:
        good, bad = bisected.good, bisected.bad
        return [
            f"{bad} is not slower than {good} by more than {percent(bisected.limit)}: {change_text(end)}",
            f"where {bad} is slow, {good} is too: name an older one as --good",
        ]
    if bisected.state == OPEN:
        return _summary_of_several(bisected)
    return _summary_of_one(bisected)


def _summary_of_several(bisected: Bisected) -> list[str]:
    posterior, suspects = bisected.posterior, bisected.suspects
    first, last = suspects[0], suspects[-1]
    line = f"the first slow commit is one of {len(suspects)}: {first.short} to {last.short} (95%)"
    if posterior.no_step >= UNLIKELY:
        line += f"; that there is none, {percent(posterior.no_step)}"
    group = posterior.likeliest
    likeliest = bisected.commits[group[-1] - 1]
    chance = percent(posterior.probability_of(group))
    return [line, f"the likeliest is {likeliest.short} {likeliest.subject} ({chance})"]


def _summary_of_one(bisected: Bisected) -> list[str]:
    """Sentences on the first slow commit; it is one of several, where those right
    before it could not be measured.
    """
    posterior, suspects = bisected.posterior, bisected.suspects
    first, last = suspects[0], suspects[-1]
    group = posterior.likeliest
    sure = percent(min(posterior.probability_of(group), 1 - UNLIKELY))
    change = (
        f"{change_text(posterior.step(group[-1]))} by all probes together, {sure} sure"
    )
    if len(suspects) > 1:
        lines = [
            f"the first slow commit is one of {len(suspects)}, {first.short} to {last.short}: {change}",
            "all but the last of these could not be measured",
        ]
    else:
        lines = [
            f"first slow commit: {last.short} {last.subject} ({last.author}, {last.date}): {change}"
        ]
    lines.append(f"git show {last.short}")
    if len(last.parents) > 1:
        lines.append(
            f"it is a merge: --good $(git merge-base {' '.join(last.parents[:2])}) --bad {last.parents[1]}"
        )
    return lines


def _records(bisected: Bisected) -> list[Row]:
    """A flat record for each probe."""
    pairs = zip(bisected.commits, bisected.posterior.probabilities[1:], strict=True)
    probabilities = {commit.name: probability for commit, probability in pairs}
    return [
        {
            "commit": commit.name,
            "date": commit.date,
            "author": commit.author,
            "subject": commit.subject,
            "change_low": probe.low,
            "change_high": probe.high,
            "skipped": probe.skipped,
            "known": probe.known,
            "first_slow": probabilities[commit.name],
        }
        for commit, probe in bisected.by_commit
    ]


def _json_record(bisected: Bisected) -> Row:
    """The answer as JSON: the commits that are left, and every probe."""
    posterior = bisected.posterior
    change = posterior.change_at_end()
    if bisected.state == FOUND:
        change = posterior.step(posterior.likeliest[-1])
    return {
        "answer": bisected.state,
        "commits": [commit.name for commit in bisected.suspects],
        "change": change and change.value,
        "change_low": change and change.low,
        "change_high": change and change.high,
        "sure": posterior.probability_of(posterior.likeliest),
        "no_step": posterior.no_step,
        "probes": _records(bisected),
    }

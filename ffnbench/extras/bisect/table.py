"""What a bisect has found: a row for every probe of a commit, and below them the commit, the change, and how sure."""

from __future__ import annotations

from dataclasses import replace

from ffnbench.common.errors import EXIT_INTERRUPTED, Unfinished
from ffnbench.common.jsonable import text_of
from ffnbench.common.units import counted, percent
from ffnbench.extras.bisect.commits import FOUND, NONE, OPEN, Bisected, Commit, CommitProbe
from ffnbench.report.formats import View
from ffnbench.report.frame import Frame, Row, frame_of
from ffnbench.report.words import CERTAIN, change_text

UNLIKELY = 0.01  # what is left out


def bisect_view(found: Bisected) -> View:
    """The answer of `bisect`; where the commit is not found, that it could not finish is how it ends."""
    view = View(
        frame=lambda: _table(found), json=lambda: text_of(_answer(found), 1) + "\n", title=f"bisect: {found.variant}"
    )
    if found.interrupted:
        return view.ending(EXIT_INTERRUPTED)
    if found.state == OPEN:
        hint = "the same command again goes on from here; a quiet machine, or a larger --d-model, tells more"
        return view.ending(0, Unfinished("the probes or the time are spent, and several commits are left", hint))
    return view


def probe_text(found: Bisected, commit: Commit, probed: CommitProbe) -> str:
    """What one probe has found, and how many commits are left."""
    posterior = found.posterior
    told = f"skipped: {probed.skipped}" if probed.skipped else change_text(probed.change)
    left = f"{counted(len(posterior.credible_range), 'commit')} of {len(found.commits)} left"
    no_step = posterior.probabilities[0]
    step = f"; no step: {percent(no_step)}" if no_step >= UNLIKELY else ""
    differs = f"; {probed.differs}" if probed.differs else ""
    return f"{commit.short} {told}{differs}; {left}{step}"


def _table(found: Bisected) -> Frame:
    rows: list[Row] = [
        {
            "commit": commit.short, f"change {CERTAIN}": "skipped" if one.skipped else change_text(one.change),
            "subject": commit.subject, "note": one.skipped or one.differs,
        }
        for commit, one in found.by_commit
    ]  # fmt: skip
    header = f"{found.variant}, {counted(len(found.commits), 'commit')} after {found.good} up to {found.bad}"
    table = frame_of(rows, _says(found), prose=("subject", "note"))
    return replace(table, saved=_records(found), header=(f"{header}; change against {found.good}",))


def _says(found: Bisected) -> list[str]:
    posterior, state, suspects = found.posterior, found.state, found.suspects
    end = posterior.change_at_end()
    if state == NONE and end:
        change = f"{found.bad} is not slower than {found.good} by more than {percent(found.limit)}: {change_text(end)}"
        return [change, f"where {found.bad} is slow, {found.good} is too: name an older one as --good"]
    first, last = suspects[0], suspects[-1]
    if state == OPEN:
        no_step, group = posterior.probabilities[0], posterior.likeliest
        none = f"; that there is none, {percent(no_step)}" if no_step >= UNLIKELY else ""
        best, chance = found.commits[group[-1] - 1], percent(posterior.probability_of(group))
        return [
            f"the first slow commit is one of {len(suspects)}: {first.short} to {last.short} (95%){none}",
            f"the likeliest is {best.short} {best.subject} ({chance})",
        ]
    group = posterior.likeliest
    share = percent(min(posterior.probability_of(group), 1 - UNLIKELY))
    sure = f"{change_text(posterior.step(group[-1]))} by all probes together, {share} sure"
    lines = [f"first slow commit: {last.short} {last.subject} ({last.author}, {last.date}): {sure}"]
    if len(suspects) > 1:
        lines = [f"the first slow commit is one of {len(suspects)}, {first.short} to {last.short}: {sure}"]
        lines.append("all but the last of these could not be measured")
    lines.append(f"git show {last.short}")
    if len(last.parents) > 1:
        lines.append(f"it is a merge: --good $(git merge-base {' '.join(last.parents[:2])}) --bad {last.parents[1]}")
    return lines


def _records(found: Bisected) -> list[Row]:
    """One flat record a probe."""
    named = zip(found.commits, found.posterior.probabilities[1:], strict=True)
    probabilities = {commit.name: probability for commit, probability in named}
    return [
        {
            "commit": commit.name, "date": commit.date, "author": commit.author, "subject": commit.subject,
            "change_low": one.low, "change_high": one.high, "skipped": one.skipped, "differs": one.differs,
            "known": one.known, "first_slow": probabilities[commit.name],
        }
        for commit, one in found.by_commit
    ]  # fmt: skip


def _answer(found: Bisected) -> Row:
    """All of it: the commits that are left, and every probe."""
    posterior = found.posterior
    change = posterior.step(posterior.likeliest[-1]) if found.state == FOUND else posterior.change_at_end()
    return {
        "answer": found.state, "commits": [commit.name for commit in found.suspects],
        "change": change and change.value, "change_low": change and change.low, "change_high": change and change.high,
        "sure": posterior.probability_of(posterior.likeliest), "no_step": posterior.probabilities[0],
        "probes": _records(found),
    }  # fmt: skip

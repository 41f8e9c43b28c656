"""The selftest's tables of runs, checks and cheats: what was wrong in simulated worlds, and on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from math import sqrt

from ffnbench.errors import Interrupted, Unfinished
from ffnbench.report.formats import View, view_of
from ffnbench.report.records import Record
from ffnbench.report.table import UNKNOWN, Cell, Column, Table
from ffnbench.result import FailureKind
from ffnbench.selftest.alarms import NO_ANSWER, ROW, TOLERANCE, Alarm, Counts, conditions, counts, slowed_by
from ffnbench.selftest.exam import ENDED_EARLY, Result
from ffnbench.selftest.judge import REFERENCE as HONEST
from ffnbench.selftest.judge import REFUSED, Judgement, of_cheats
from ffnbench.selftest.rates import COVERAGE, FALSE_AT_MOST, SLOWER, Rates, Share
from ffnbench.selftest.readings import (
    BUSY,
    FORM,
    OURS,
    REFERENCE,
    SLOWED_BY,
    SLOWED_FORM,
    Reading,
    Score,
    lines,
    score_of,
    truth_half,
)
from ffnbench.units import percent

ADDED = f"+{SLOWED_BY:.0%}"


def rates_records(rates: list[Rates]) -> list[Record]:
    """One flat record a world."""
    return [
        {
            "world": r.world, "runs": r.runs, "false_difference": r.false_difference.value,
            "coverage": r.covered.value, **{f"found_{name}": r.found[name].value for name in SLOWER},
            "wrong_way": r.wrong_way.value, "workers": r.workers, "seconds": r.seconds,
        }
        for r in rates
    ]  # fmt: skip


def rates_table(rates: list[Rates]) -> Table:
    """The same for people, the total in the last row."""
    columns = (
        Column(title="world", left=True),
        Column(title="runs"),
        Column(title="false", unit="diffs"),
        Column(title="coverage", unit="of 95%"),
        *(Column(title="finds", unit=name, priority=1) for name in SLOWER),
        Column(title="workers", unit="mean", priority=2),
    )
    rows = tuple(
        tuple(
            Cell(text=text)
            for text in (
                r.world, str(r.runs), _share(r.false_difference), _share(r.covered),
                *(_share(r.found[name]) for name in SLOWER), f"{r.workers:.1f}",
            )
        )
        for r in rates
    )  # fmt: skip
    header = (
        "Simulated runs through the real runner, statistics and decisions: one module against itself twice, and",
        f"slowed down by {', '.join(SLOWER)}; five rows a run, precision 1%, Holm over the rows",
    )
    notes = (
        f"false diffs: runs in which an equal row is called slower or faster (at most {percent(FALSE_AT_MOST)})",
        f"coverage: intervals that hold the true ratio ({COVERAGE[0]:.0%} to {COVERAGE[1]:.0%})",
    )
    return Table(columns=columns, rows=rows, header=(" ".join(header),), footnotes=notes)


def _share(share: Share) -> str:
    return _part(share.hits, share.of)


def _part(hits: float, of: float) -> str:
    return f"{100 * hits / of:.1f}%" if of else UNKNOWN


def live_records(readings: list[Reading]) -> list[Record]:
    """One flat record a reading."""
    return [asdict(reading) for reading in readings]


def live_table(exams: Sequence[Sequence[Reading]]) -> Table:
    """What each method got wrong in each world, of one live selftest or of several together."""
    shown = lines(exams)
    several = any(method != OURS for _, method in shown)
    columns = (
        Column(title="world", left=True),
        *([Column(title="method", left=True)] if several else []),
        Column(title="runs", priority=3),
        Column(title="wrong"),
        Column(title="says", unit=BUSY),
        Column(title=ADDED, unit="decided"),
        Column(title=FORM, unit="rms error"),
        Column(title=FORM, unit="half-width", priority=1),
        Column(title="a run", unit="s", priority=2),
    )
    rows = []
    for number, (world, method) in enumerate(shown):
        names = (world if not number or world != shown[number - 1][0] else "", *([method] if several else []))
        rows.append(tuple(Cell(text=text) for text in (*names, *_score_texts(score_of(exams, world, method)))))
    header = (
        f"{FORM} against {REFERENCE}, and {SLOWED_FORM}, the same slowed down by exactly {SLOWED_BY:.0%}: "
        "on this machine, quiet and beside neighbours, held against a long quiet run, the truth"
    )
    notes = _live_notes(truth_half(exams), several)
    return Table(columns=columns, rows=tuple(rows), header=(header,), footnotes=notes)


def _score_texts(score: Score) -> tuple[str, ...]:
    return (
        str(score.runs),
        *(f"{hits} of {score.runs}" for hits in (score.wrong, score.busy, score.decided)),
        *(UNKNOWN if share is None else percent(share) for share in (score.error, score.half)),
        f"{score.seconds:.0f}",
    )


def _live_notes(half: float, several: bool) -> tuple[str, ...]:
    """What the columns count, and how well the truth is known."""
    notes = (
        "wrong: runs with a verdict that the truth's interval contradicts, or an interval that misses the truth's",
        f"says {BUSY}: runs with a row that is not decided because others use the CPUs",
        f"{ADDED} decided: runs that call {SLOWED_FORM} slower",
        f"rms error: of the log of {FORM}'s ratio, against the truth; half-width: of its interval, the median",
        f"the truth is known to +-{percent(half)} or better",
    )
    taken = "the other methods give no verdict: their ratios are taken at their word, within 2% the same"
    return (*notes, taken) if several else notes


def alarm_records(alarms: list[Alarm]) -> list[Record]:
    """One flat record a row of a check."""
    return [asdict(alarm) for alarm in alarms]


def alarm_table(alarms: list[Alarm], tolerance: float = TOLERANCE) -> Table:
    """One row a condition, all of them together in the last."""
    columns = (
        Column(title="", left=True),
        Column(title="false alarms", unit="unchanged"),
        *(Column(title="finds", unit=name) for name in slowed_by(alarms)),
        Column(title="unclear", unit="unchanged", priority=1),
        Column(title="refused", priority=3),
        Column(title="error", unit="rms", priority=2),
        Column(title="a check", unit="s", priority=3),
    )
    named = conditions(alarms)
    rows = [_alarm_row(name, alarms, name) for name in named]
    if len(named) > 1:
        rows.append(_alarm_row("all", alarms, None))
    header = (
        f"ffnbench check at a tolerance of {percent(tolerance)}, on unchanged code and on code whose {ROW} is slower "
        f"by {' or '.join(slowed_by(alarms))}",
    )
    notes = (
        "false alarms: checks of unchanged code that end with REGRESSED; finds: checks that accuse the slowed row",
        "unclear: checks of unchanged code with a row that stays UNCLEAR within the budget",
        *(_innocent(alarms)),
        *(_without_answer(alarms)),
    )
    return Table(columns=columns, rows=tuple(rows), header=header, footnotes=notes)


def _innocent(alarms: list[Alarm]) -> list[str]:
    """Rows beside the slowed one are unchanged as well."""
    slowed = [a for a in alarms if a.injected and a.row != ROW and a.change is not None]
    accused = sum(a.status == "REGRESSED" for a in slowed)
    return [f"of {len(slowed)} unchanged rows beside the slowed one, {accused} were accused"] if slowed else []


def _without_answer(alarms: list[Alarm]) -> list[str]:
    """Checks that neither accuse nor acquit."""
    found = sum(counts(alarms, None, share).without for share in (0.0, *slowed_by(alarms).values()))
    return [f"{found} checks had a row that was {' or '.join(NO_ANSWER)}"] if found else []


def _alarm_row(name: str, alarms: list[Alarm], condition: str | None) -> tuple[Cell, ...]:
    every = [counts(alarms, condition, share) for share in (0.0, *slowed_by(alarms).values())]
    unchanged, *slowed = every
    errors = [of.error**2 for of in every if of.error is not None]
    seconds = [of.seconds for of in every if of.asked]
    texts = (
        name,
        _of_checks(unchanged.false_alarms, unchanged),
        *(_of_checks(of.found, of) for of in slowed),
        _of_checks(unchanged.unclear, unchanged),
        str(unchanged.refused) if unchanged.refused else UNKNOWN,
        percent(sqrt(sum(errors) / len(errors))) if errors else UNKNOWN,
        f"{sum(seconds) / len(seconds):.0f}" if seconds else UNKNOWN,
    )
    return tuple(Cell(text=text) for text in texts)


def _of_checks(hits: int, of: Counts) -> str:
    return f"{hits} of {of.asked}" if of.asked else UNKNOWN


SIGNS = (  # what stands in the message of a failure, and what a column says in its place; the first that fits
    ("before timing", "output, before timing"),
    ("threads of its row", "threads"),
    ("has replaced", "replaced function"),
    ("plain tensor", "no plain tensor"),
    ("unlike its input", "shape or dtype"),
    ("own memory", "changed input"),
    ("into its input", "changed input"),
    ("made twice", "another instance"),
    ("with other weights", "other weights"),
    ("whatever its weights", "other weights"),
    ("memory of an earlier", "one output for all"),
    ("a call can't be", "floor"),
    ("gradient", "gradient"),
    ("output", "output"),
)


def judged_records(found: Sequence[Judgement]) -> list[Record]:
    """One flat record a row."""
    return [asdict(row) | {"caught": row.caught} for row in found]


def judged_table(found: Sequence[Judgement]) -> Table:
    """Which cheats were caught, by what, and what looking cost; the honest rows are counted below."""
    columns = (
        Column(title="cheat", left=True),
        Column(title="what it gives", left=True, priority=1),
        Column(title="caught by", left=True),
        Column(title="claims", unit="of the time"),
        Column(title="judging", unit="of the run", priority=2),
    )
    rows = tuple(
        (
            Cell(text=row.cheat), Cell(text=row.does), Cell(text=caught_by(row), style="" if row.caught else "red"),
            Cell(text=UNKNOWN if row.claimed is None else f"{row.claimed:.3f}", value=row.claimed),
            Cell(text=_part(row.judging_s, row.wall_s), value=row.judging_s),
        )
        for row in found if not row.honest
    )  # fmt: skip
    ran, honest = of_cheats(found), [row for row in found if row.honest]
    caught, accused = sum(row.caught for row in ran), sum(bool(row.failure) for row in honest)
    summary = (
        f"{caught} of {len(ran)} cheats were caught; of {len(honest)} honest rows beside them {accused} were accused",
    )
    header = (f"Modules that cheat, beside an honest {HONEST}, by what ffnbench compare does",)
    return Table(columns=columns, rows=rows, header=header, footnotes=_judged_notes(found), summary=summary)


def _judged_notes(found: Sequence[Judgement]) -> tuple[str, ...]:
    notes = [f"claims: the time that it shows, of the honest {HONEST}'s; - where it failed before it was timed"]
    if any(row.caught and not row.failure and not row.honest for row in found):
        notes.append("no gain: it is not called faster, as no input comes twice, or its rows are busy")
    if missing := sum(not row.ran for row in found):
        notes.append(f"{missing} need CUDA, which is not here")
    return tuple(notes)


def caught_by(row: Judgement) -> str:
    """What a row failed by, in a word or two."""
    if not row.ran:
        return "not run"
    if row.failure in (FailureKind.MISMATCH.value, FailureKind.SUSPECT.value):
        return next((word for sign, word in SIGNS if sign in row.message), row.failure)
    if row.failure:
        return "refused" if row.failure == REFUSED else f"it fails: {row.failure}"
    return "no gain" if row.caught else "NOT CAUGHT"


def selftest_view(result: Result) -> View:
    """The answer of `selftest`, whichever exam it was; a broken promise is how it ends."""
    records: list[Record]
    if result.rates:
        records, table = rates_records(list(result.rates)), rates_table(list(result.rates))
    elif result.readings:
        records = [record for readings in result.readings for record in live_records(list(readings))]
        table = live_table(result.readings)
    elif result.judgements:
        records, table = judged_records(result.judgements), judged_table(result.judgements)
    else:
        records, table = alarm_records(list(result.alarms)), alarm_table(list(result.alarms), result.tolerance)
    view = view_of(table, lambda: records)
    if ENDED_EARLY in result.broken:
        return view.ending(0, Interrupted(ENDED_EARLY))
    if result.broken:
        hint = "the numbers of this ffnbench can't be trusted"
        return view.ending(0, Unfinished("the selftest failed: " + "; ".join(result.broken), hint))
    return view

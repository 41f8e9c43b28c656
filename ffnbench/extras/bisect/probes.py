"""What a bisect has found of each commit, and where that is kept: in git's own folder, for the next bisect."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from ffnbench.common import jsonable
from ffnbench.common.files import content_of
from ffnbench.extras.bisect.commits import Commit
from ffnbench.extras.bisect.posterior import Posterior, ProbeResult, posterior_of, result_of
from ffnbench.result import Estimate

FILE = Path("ffnbench", "bisect.jsonl")
FOUND, NONE, OPEN = "found", "none", "open"
MOST = 1e6  # times as slow as the good commit


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitProbe:
    """One probe of a commit: the 95 % interval of its time over the good one's.

    `skipped` says why there is none: it can't be built, or the machine was busy just then (`passing`). `differs` says
    how its output differs from the good one's, `known` that an earlier bisect has measured it.
    """

    commit: str
    low: float | None = None
    high: float | None = None
    skipped: str = ""
    differs: str = ""
    passing: bool = False
    known: bool = False

    @property
    def change(self) -> Estimate:
        """Its time over the good one's."""
        low, high = self.low or math.nan, self.high or math.nan
        return Estimate(value=math.sqrt(low * high), low=low, high=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisected:
    """The answer: all commits after `good` up to `bad`, in their order, and what was found of them."""

    variant: str
    good: str
    bad: str
    limit: float
    commits: tuple[Commit, ...]
    probed: tuple[CommitProbe, ...] = ()
    interrupted: bool = False

    @property
    def posterior(self) -> Posterior:
        """What all of it says of every commit."""
        place = {commit.name: number for number, commit in enumerate(self.commits, start=1)}
        of = [(place[one.commit], one) for one in self.probed]
        results: list[ProbeResult] = [
            result_of(number, one.low, one.high) for number, one in of if one.low and one.high
        ]
        return posterior_of(len(place), results, {number for number, one in of if one.skipped and not one.passing})

    @property
    def state(self) -> str:
        """Whether the first slow commit is known, or that there is none; else that it is open."""
        if self.posterior.without_step(self.limit):
            return NONE
        return FOUND if self.posterior.found() else OPEN

    @property
    def suspects(self) -> tuple[Commit, ...]:
        """The commits that may be the first slow one: one, or those that are left."""
        if self.state == NONE:
            return ()
        commits = self.posterior.found() or self.posterior.left
        return self.commits[commits.start - 1 : commits.stop - 1]

    @property
    def by_commit(self) -> list[tuple[Commit, CommitProbe]]:
        """Every probe, in the order of the commits."""
        return [(commit, one) for commit in self.commits for one in self.probed if one.commit == commit.name]

    @property
    def done(self) -> bool:
        """Whether the commit is found, or there is no step."""
        posterior = self.posterior
        return posterior.without_step(self.limit) or posterior.found() is not None

    def with_probes(self, *probed: CommitProbe) -> Bisected:
        """With further probes."""
        return replace(self, probed=(*self.probed, *probed))


class Memory:
    """The stored probes of what was asked in the same way: one line of JSON each."""

    def __init__(self, folder: Path, **asked: Any) -> None:
        self.path, self._asked = folder / FILE, asked

    def stored(self, commits: tuple[Commit, ...]) -> list[CommitProbe]:
        """What is known of these commits; a line that can't be read is none."""
        names, found, keys = {one.name for one in commits}, [], [one.name for one in fields(CommitProbe)]
        lines = content_of(self.path).split(b"\n") if self.path.is_file() else []
        for line in lines:
            with suppress(ValueError, KeyError, TypeError):
                told = jsonable.parse(line)
                if told["commit"] in names and all(told[key] == value for key, value in self._asked.items()):
                    probed = jsonable.decode(CommitProbe, {key: told[key] for key in keys} | {"known": True})
                    measured = 1 / MOST < (probed.low or 0.0) <= (probed.high or 0.0) < MOST
                    if measured != bool(probed.skipped):
                        found.append(probed)
        return found

    def store(self, probed: CommitProbe) -> None:
        """Store a probe, where that may be written. One that was skipped because the machine was busy is not stored."""
        if probed.passing:
            return
        told = {**self._asked, **asdict(probed)}
        if self.path.exists() and not self.path.is_file():
            return
        with suppress(OSError):
            self.path.parent.mkdir(exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(told) + "\n")

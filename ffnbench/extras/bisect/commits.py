"""The commits between two revisions, as git lists them, and the probes that a bisect
has made of each. They are stored in git's own folder, for the next bisect.
"""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from ffnbench.common import jsonable
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.files import content_of
from ffnbench.extras.bisect.posterior import Posterior, posterior_of, result_of
from ffnbench.gate.sides import Repository
from ffnbench.result import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A commit; `name` is its full hash, `parents` are short ones."""

    name: str
    short: str
    author: str
    date: str
    parents: tuple[str, ...]
    subject: str


class BisectRepository(Repository):
    """The git repository of a folder, which can list the commits between two
    revisions.
    """

    @property
    def git_folder(self) -> Path:
        """The folder of git itself, which all working trees of the repository share."""
        return Path(
            self._git(
                "rev-parse", "--path-format=absolute", "--git-common-dir"
            ).stdout.rstrip("\n")
        )

    @property
    def prefix(self) -> str:
        """The path of the current folder in the repository; "" for its root."""
        return self._prefix

    def commits_between(self, good: str, bad: str) -> list[Commit]:
        """The commits after good up to bad, the oldest first; a merge is one commit.
        Raises FfnbenchError where bad does not follow good.
        """
        first, last = self.commit(good), self.commit(bad)
        if first == last:
            raise FfnbenchError(
                f"{good!r} and {bad!r} are the same commit",
                "give an older revision as --good",
            )
        if not self._is_ancestor(first, last):
            common = self._git("merge-base", first, last).stdout.strip()[:10]
            if self._is_ancestor(last, first):
                hint = f"exchange them: --good {bad} --bad {good}"
            elif common:
                hint = self._hint_if_shallow or f"--good {common} is where the two part"
            else:
                hint = self._hint_if_shallow or "they have no commit in common"
            raise FfnbenchError(f"{bad!r} does not come after {good!r}", hint)
        fields = "%x00".join(["", "%H", "%h", "%an", "%as", "%p", "%s", ""])
        listing = self._git(
            "rev-list",
            "--first-parent",
            "--reverse",
            f"--format={fields}",
            f"{first}..{last}",
        )
        # a name may contain any end of a line, so fields end with NUL; behind the six
        # fields of a commit stands the line that git writes before the next one
        _, *texts = listing.stdout.split("\0")
        rows = zip(*(texts[place::7] for place in range(6)), strict=True)
        return [
            Commit(
                name=name,
                short=short,
                author=author,
                date=date,
                parents=tuple(parents.split()),
                subject=subject,
            )
            for name, short, author, date, parents, subject in rows
        ]

    def _is_ancestor(self, commit: str, other: str) -> bool:
        return self._git("merge-base", "--is-ancestor", commit, other).returncode == 0


BISECTION_FILE = Path("ffnbench", "bisect.jsonl")  # in the folder of git
FOUND, NONE, OPEN = "found", "none", "open"  # states of a bisect
MOST_TIMES_SLOWER = 1e6  # a stored ratio beyond that is damaged


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitProbe:
    """One probe of a commit: the 95 % interval of its time divided by that of the good
    commit.

    `skipped` says why there is no interval: the commit can't be built, or the machine
    was busy at that time, and then the reason is `passing`. `known` says that an
    earlier bisect has made the probe.
    """

    commit: str
    low: float | None = None
    high: float | None = None
    skipped: str = ""
    passing: bool = False
    known: bool = False

    @property
    def change(self) -> Estimate:
        """The ratio of its time to that of the good commit."""
        low, high = self.low or math.nan, self.high or math.nan
        return Estimate(value=math.sqrt(low * high), low=low, high=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisected:
    """The answer of a bisect: all commits after `good` up to `bad`, in their order, and
    the probes of them. `limit` is the tolerated change, as a share.
    """

    variant: str
    good: str
    bad: str
    limit: float
    commits: tuple[Commit, ...]
    probed: tuple[CommitProbe, ...] = ()
    interrupted: bool = False

    @property
    def posterior(self) -> Posterior:
        """How likely each commit is the first slow one, by all probes."""
        numbers = {
            commit.name: number for number, commit in enumerate(self.commits, start=1)
        }
        results = [
            result_of(numbers[p.commit], p.low, p.high)
            for p in self.probed
            if p.low and p.high
        ]
        skipped = {
            numbers[probe.commit]
            for probe in self.probed
            if probe.skipped and not probe.passing
        }
        return posterior_of(len(numbers), results, skipped)

    @property
    def state(self) -> str:
        """FOUND where the first slow commit is known, NONE where it is known that there
        is none, else OPEN.
        """
        posterior = self.posterior
        if posterior.without_step(self.limit):
            return NONE
        return FOUND if posterior.first_slow() else OPEN

    @property
    def suspects(self) -> tuple[Commit, ...]:
        """The commits that may be the first slow one, none if there is no such one."""
        posterior = self.posterior
        if posterior.without_step(self.limit):
            return ()
        commits = posterior.first_slow() or posterior.credible_range
        return self.commits[commits.start - 1 : commits.stop - 1]

    @property
    def by_commit(self) -> list[tuple[Commit, CommitProbe]]:
        """Every probe, in the order of the commits."""
        return [
            (commit, probe)
            for commit in self.commits
            for probe in self.probed
            if probe.commit == commit.name
        ]

    def with_probes(self, *probed: CommitProbe) -> Bisected:
        """The answer with further probes."""
        return replace(self, probed=(*self.probed, *probed))


class StoredProbes:
    """The probes of all bisects of a repository, in a file: one line of JSON each.

    `asked` is what distinguishes one question from another: only probes with equal
    values are read.
    """

    def __init__(self, git_folder: Path, **asked: Any) -> None:
        self.path, self._asked = git_folder / BISECTION_FILE, asked

    def of_commits(self, commits: tuple[Commit, ...]) -> list[CommitProbe]:
        """The stored probes of these commits; a line that can't be read is skipped."""
        names = {commit.name for commit in commits}
        keys = [field.name for field in fields(CommitProbe)]
        lines = content_of(self.path).split(b"\n") if self.path.is_file() else []
        probes = []
        for line in lines:
            with suppress(ValueError, KeyError, TypeError):
                stored = jsonable.parse(line)
                is_same_question = all(
                    stored[key] == value for key, value in self._asked.items()
                )
                if stored["commit"] not in names or not is_same_question:
                    continue
                data = {key: stored[key] for key in keys} | {"known": True}
                probe = jsonable.decode(CommitProbe, data)
                low, high = probe.low or 0.0, probe.high or 0.0
                has_interval = 1 / MOST_TIMES_SLOWER < low <= high < MOST_TIMES_SLOWER
                if has_interval != bool(probe.skipped):
                    probes.append(probe)
        return probes

    def store(self, probe: CommitProbe) -> None:
        """Store a probe, if the file can be written. A probe that was skipped for a
        passing reason is not stored.
        """
        if probe.passing or (self.path.exists() and not self.path.is_file()):
            return
        with suppress(OSError):
            self.path.parent.mkdir(exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({**self._asked, **asdict(probe)}) + "\n")

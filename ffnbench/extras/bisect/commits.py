"""The commits between two revisions, as git tells them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ffnbench.common.errors import FfnbenchError
from ffnbench.gate.checkouts import Repository


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One commit; `parents` are short names."""

    name: str
    short: str
    author: str
    date: str
    parents: tuple[str, ...]
    subject: str


class BisectRepository(Repository):
    """The git repository of a folder, asked for what lies between two of its commits."""

    @property
    def git_folder(self) -> Path:
        """Where git keeps what it knows of this repository, of all its working trees."""
        return Path(self._git("rev-parse", "--path-format=absolute", "--git-common-dir").stdout.rstrip("\n"))

    def commits_between(self, good: str, bad: str) -> list[Commit]:
        """The commits after good up to bad, the oldest first; a merge is one commit. Raises FfnbenchError where bad
        does not follow good.
        """
        first, last = self.commit(good), self.commit(bad)
        if first == last:
            raise FfnbenchError(f"{good!r} and {bad!r} are the same commit", "give an older revision as --good")
        if self._git("merge-base", "--is-ancestor", first, last).returncode:
            after = not self._git("merge-base", "--is-ancestor", last, first).returncode
            common = self._git("merge-base", first, last).stdout.strip()[:10]
            hint = f"--good {common} is where the two part" if common else "they have no commit in common"
            other_way = f"--good {bad} --bad {good} is the other way" if after else ""
            raise FfnbenchError(f"{bad!r} does not come after {good!r}", other_way or self._hint_if_shallow or hint)
        told = self._git(
            "rev-list", "--first-parent", "--reverse", "--format=%x00%H%x00%h%x00%an%x00%as%x00%p%x00%s%x00",
            f"{first}..{last}",
        )  # fmt: skip
        # names may hold any end of a line: what stands between two commits is a line of git's own
        _, *fields = told.stdout.split("\0")
        rows = zip(*(fields[place::7] for place in range(6)), strict=True)
        return [
            Commit(name=name, short=short, author=author, date=date, parents=tuple(parents.split()), subject=subject)
            for name, short, author, date, parents, subject in rows
        ]

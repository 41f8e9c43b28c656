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
        if not self._is_ancestor(first, last):
            common = self._git("merge-base", first, last).stdout.strip()[:10]
            if self._is_ancestor(last, first):
                hint = f"--good {bad} --bad {good} is the other way"
            elif common:
                hint = self._hint_if_shallow or f"--good {common} is where the two part"
            else:
                hint = self._hint_if_shallow or "they have no commit in common"
            raise FfnbenchError(f"{bad!r} does not come after {good!r}", hint)
        fields = "%x00".join(["", "%H", "%h", "%an", "%as", "%p", "%s", ""])
        listing = self._git("rev-list", "--first-parent", "--reverse", f"--format={fields}", f"{first}..{last}")
        # names may hold any end of a line: what stands between two commits is a line of git's own
        _, *texts = listing.stdout.split("\0")
        rows = zip(*(texts[place::7] for place in range(6)), strict=True)
        return [
            Commit(name=name, short=short, author=author, date=date, parents=tuple(parents.split()), subject=subject)
            for name, short, author, date, parents, subject in rows
        ]

    def _is_ancestor(self, commit: str, other: str) -> bool:
        return self._git("merge-base", "--is-ancestor", commit, other).returncode == 0

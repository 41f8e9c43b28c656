"""Checkouts of revisions beside the working tree: made by `git worktree`, and removed whatever happens.

Each checkout's folder holds a file that its owner keeps locked, so that what a killed run left behind is recognised
and removed by the next one, and what a living one uses is not.
"""

from __future__ import annotations

import fcntl
import shutil
import signal
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from ffnbench.bench.git import Told, git, has_git
from ffnbench.errors import FfnbenchError

PREFIX, TREE, LOCK = "ffnbench-ab-", "tree", "in-use"


class Repository:
    """The git repository of a folder. A context manager: every checkout made of it ends with it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        if not has_git():
            raise FfnbenchError("a revision needs git, and there is none", "install git, or use --base-source DIR")
        told = self._git("rev-parse", "--is-inside-work-tree", "--show-toplevel", "--show-prefix")
        lines = told.stdout.splitlines()
        if told.returncode or lines[:1] != ["true"]:
            raise FfnbenchError(
                f"{str(folder)!r} is not in a git repository", "run it where your code is, or use --base-source DIR"
            )
        self.top, self.prefix = Path(lines[1]), (lines[2] if len(lines) > 2 else "")
        self._remove_leftovers()

    def __enter__(self) -> Repository:
        return self

    def __exit__(self, *_: object) -> None:
        before = _ignore_interruption()
        try:
            self._stack.close()
        finally:
            before()

    def commit(self, revision: str) -> str:
        """The full name of a revision's commit; raises FfnbenchError for an unknown one."""
        told = self._git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        if told.returncode:
            shallow = self._git("rev-parse", "--is-shallow-repository").stdout.strip() == "true"
            hint = "this clone is shallow: `git fetch --unshallow`, in CI fetch-depth: 0"
            raise FfnbenchError(
                f"no revision is called {revision!r}", hint if shallow else "`git branch -a` and `git tag` show some"
            )
        return told.stdout.strip()

    def short(self, commit: str) -> str:
        """The short name of a commit."""
        return self._git("rev-parse", "--short", commit).stdout.strip() or commit[:7]

    def dirty(self) -> bool:
        """Whether the working tree has changes to files that git knows."""
        return bool(self._git("status", "--porcelain", "--untracked-files=no").stdout.strip())

    def checkout(self, commit: str) -> Path:
        """A new folder with that commit's files; the place in it that corresponds to the current folder."""
        box = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
        held = _hold(box / LOCK)
        assert held is not None
        self._stack.callback(self._remove, box, held)
        told = self._git("worktree", "add", "--detach", str(box / TREE), commit)
        if told.returncode:
            last = told.stderr.strip().splitlines() or ["git gave no reason"]
            raise FfnbenchError(
                f"{commit[:10]} can't be checked out: {last[-1]}", "is there space in the temporary folder?"
            )
        place = box / TREE / self.prefix
        if not place.is_dir():
            raise FfnbenchError(f"{commit[:10]} has no folder {self.prefix!r}", "run it from a folder that both have")
        return place

    def _remove(self, box: Path, held: IO[str]) -> None:
        self._git("worktree", "remove", "--force", "--force", str(box / TREE))
        shutil.rmtree(box, ignore_errors=True)
        self._git("worktree", "prune")
        held.close()

    def _remove_leftovers(self) -> None:
        """Checkouts whose owner was killed: nobody holds their lock."""
        told = self._git("worktree", "list", "--porcelain").stdout
        trees = [Path(line.removeprefix("worktree ")) for line in told.splitlines() if line.startswith("worktree ")]
        for box in [tree.parent for tree in trees if tree.name == TREE and tree.parent.name.startswith(PREFIX)]:
            if held := _hold(box / LOCK):
                self._remove(box, held)
            elif not box.exists():
                self._git("worktree", "remove", "--force", "--force", str(box / TREE))

    def _git(self, *arguments: str) -> Told:
        return git(self._folder, *arguments)


def _hold(path: Path) -> IO[str] | None:
    """The file, locked for as long as it is open; None where another process holds it or its folder is gone."""
    try:
        file = path.open("w", encoding="ascii")
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file


def _ignore_interruption() -> Callable[[], object]:
    """Let nothing interrupt what follows; gives what ends that."""
    try:
        before = {name: signal.signal(name, signal.SIG_IGN) for name in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # signals belong to the main thread
        return lambda: None
    return lambda: [signal.signal(name, handler) for name, handler in before.items()]

"""The two sides of an A/B on this machine: revisions checked out for the while, and the arm of each side."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.git import git, head
from ffnbench.gate.sides import SideFlags
from ffnbench.plan import Arm
from ffnbench.planning.keys import parse_env
from ffnbench.planning.variant_text import Variant
from ffnbench.run.prober import Prober

PREFIX, TREE, INDEX = "ffnbench-ab-", "tree", "index"
CHECKOUT_TIMEOUT_S = 600.0


class Repository(ExitStack):
    """The git repository of a folder. A context manager: every checkout made of it ends with it."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._git = partial(git, folder)
        if not shutil.which("git"):
            raise FfnbenchError(
                "a revision needs git, which is not installed", "install git; ab --base-source DIR takes a folder"
            )
        answer = self._git("rev-parse", "--is-inside-work-tree", "--show-prefix")
        is_inside, prefix, *_ = [*answer.stdout.split("\n"), ""]
        if answer.returncode or is_inside != "true":
            raise FfnbenchError(
                f"{str(folder)!r} is not in a git repository",
                "run it where your code is; ab --base-source DIR takes a folder",
            )
        self._prefix = prefix
        self.dirty = bool(head(folder)[1])  # whether files that git knows have changes

    def commit(self, revision: str) -> str:
        """The full name of a revision's commit; raises FfnbenchError for an unknown one."""
        answer = self._git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        if answer.returncode:
            hint = self._hint_if_shallow or "`git branch -a` and `git tag` show some"
            raise FfnbenchError(f"no revision is called {revision!r}", hint)
        return answer.stdout.strip()

    def short(self, commit: str) -> str:
        """The short name of a commit."""
        return self._git("rev-parse", "--short", commit).stdout.strip() or commit[:7]

    @property
    def _hint_if_shallow(self) -> str:
        """What to do about a clone that lacks commits; empty where none is lacking."""
        if self._git("rev-parse", "--is-shallow-repository").stdout.strip() != "true":
            return ""
        return "this clone is shallow: `git fetch --unshallow`, in CI fetch-depth: 0"

    def checkout(self, commit: str) -> Path:
        """A new folder with that commit's files; the place in it that corresponds to the current folder.

        An index of its own: nothing is written into the repository, and a killed run leaves nothing there.
        """
        box = Path(self.enter_context(tempfile.TemporaryDirectory(prefix=PREFIX))).resolve()
        tree = box / TREE
        tree.mkdir()
        answer = self._git(
            *("read-tree", "--reset", "-u", "--no-sparse-checkout", commit),
            timeout_s=CHECKOUT_TIMEOUT_S,
            GIT_INDEX_FILE=str(box / INDEX),
            GIT_WORK_TREE=str(tree),
        )
        if answer.returncode:
            reason = answer.stderr.strip().rpartition("\n")[2] or "git gave no reason"
            hint = "is there space in the temporary folder?"
            if self._git("config", "--get-regexp", r"^remote\..*\.promisor$").stdout:
                hint = f"this clone is partial and lacks files of it: `git checkout {commit[:10]}` fetches them"
            raise FfnbenchError(f"{commit[:10]} can't be checked out: {reason}", hint)
        place = tree / self._prefix
        if not place.is_dir():
            raise FfnbenchError(
                f"{commit[:10]} has no folder {self._prefix!r}", "run it from a folder that both revisions have"
            )
        return place


@contextmanager
def placed(asked: dict[str, SideFlags]) -> Iterator[list[tuple[Arm, str]]]:
    """Base and head, each with where it runs in words, and the checkouts that they need; those end with the context."""
    with ExitStack() as stack:
        repository = None
        if any(side.rev is not None for side in asked.values()):
            repository = stack.enter_context(Repository(Path.cwd()))
        of_code = any(side.of_code for side in asked.values())
        yield [_placed(name, side, of_code, repository) for name, side in asked.items()]


def _placed(name: str, side: SideFlags, of_code: bool, repository: Repository | None) -> tuple[Arm, str]:
    """One side. Where either says where its code is, both do: they must be found in the same way."""
    source = words = side.source or ""
    if repository is not None and side.rev is not None:
        commit = repository.commit(side.rev)
        source = str(repository.checkout(commit))
        short = repository.short(commit)
        words = side.rev if side.rev.startswith(short) else f"{side.rev} ({short})"
    elif of_code and not source:
        source, words = str(Path.cwd()), "the working tree"
        if repository is not None:
            dirty = ", with changes that are not committed" if repository.dirty else ""
            words = f"the working tree ({repository.short('HEAD')}{dirty})"
    arm = Arm(python=side.python or "", source=source, env=parse_env(side.env), name=name)
    where = ", ".join(filter(None, (words, side.python, *side.env)))
    return arm, f"{name} {where or 'this environment'}"


def prober_within(prober: Prober, arm: Arm, variant: Variant) -> Prober:
    """The prober of a side, once it is sure that the code there is the side's own and no installed copy."""
    there = prober.within(arm)
    if variant.target and arm.source:
        file = there.origin(variant.target)
        if not file.is_relative_to(Path(arm.source).expanduser().resolve()):
            raise FfnbenchError(
                f"{arm}: {variant.target.rpartition(':')[0]} comes from {file}, not from this side",
                "run it in the folder that holds your packages or their src/, or give --base-source",
            )
    return there

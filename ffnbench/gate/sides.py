"""The two sides of an A/B: what the flags of `ab` say of each, and one plan with a case
of each. On this machine, a side is an arm, for which a revision is checked out for as
long as it is measured.

Base and head are two cases of one plan, each in a process of its own, so that they are
measured in the same rounds.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ffnbench.common.choices import Match
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.git import git, head
from ffnbench.plan.cases import Lists, cases_of, refuse_if_none_can_run
from ffnbench.plan.keys import parse_env
from ffnbench.plan.plan import (
    CONTROL,
    THIS_INTERPRETER,
    Arm,
    Kind,
    Plan,
    Probe,
    Protocol,
)
from ffnbench.plan.reading import ONE_HINT, spelling
from ffnbench.plan.variants import Typed, typed_variants
from ffnbench.run.prober import Prober

BASE, HEAD = "base", "head"


@dataclass(frozen=True, slots=True, kw_only=True)
class SideFlags:
    """What the flags say of one side. None is what this process has; the code of a head
    without `rev` is the working tree.
    """

    rev: str | None = None
    source: str | None = None
    python: str | None = None
    env: tuple[str, ...] = ()

    @property
    def names_code(self) -> bool:
        """Whether the flags say where the code is."""
        return self.rev is not None or self.source is not None


def refuse_sides(base: SideFlags, head: SideFlags, variant: Typed) -> None:
    """Raise FfnbenchError if base and head are the same, if flags contradict each
    other, and for a revision of ffnbench's own code.
    """
    if base == head:
        raise FfnbenchError(
            "base and head are the same",
            "say what base is: --base-rev REV, --base-python PATH, ...",
        )
    if base.rev is not None and base.source is not None:
        raise FfnbenchError(
            "--base-rev and --base-source can't be given together: both name the code of base",
            "give one of the two",
        )
    if (base.names_code or head.names_code) and not variant.is_target:
        raise FfnbenchError(
            f"{variant.text!r} is code of ffnbench, which no revision of yours contains",
            "name your code: package.module:Attr or path/to/file.py:Attr",
        )


def variant_of_sides(text: str) -> Typed:
    """The one variant of which both sides are versions. Raises FfnbenchError for a
    variant that `ab` can't have.
    """
    variants = typed_variants(text)
    if len(variants) > 1:
        raise FfnbenchError(
            f"ab measures one variant, not {len(variants)}",
            "`ffnbench compare` measures several",
        )
    variant = variants[0]
    if variant.keys.lists:
        raise FfnbenchError(
            f"ab takes one value of each key, not {text!r}",
            "`ffnbench compare` measures a sweep",
        )
    if variant.keys.arm != THIS_INTERPRETER:
        raise FfnbenchError(
            f"a variant of ab can't have {variant.keys.arm}",
            "use --base-python, --base-env, ...",
        )
    if variant.row in (BASE, CONTROL):
        raise FfnbenchError(
            f"{variant.row!r} is the label of the other side",
            "give the variant another label",
        )
    return variant


def refuse_lists(flags: Lists) -> None:
    """Raise FfnbenchError for a flag that has several values."""
    for name, values in flags.items():
        if values and len(values) > 1:
            shown = ",".join(map(str, values))
            raise FfnbenchError(
                f"{spelling(name)} takes one value here, not {shown!r}", ONE_HINT
            )


def plan_sides(
    variant: Typed,
    flags: Lists,
    arms: tuple[Arm, Arm],
    probes: tuple[Probe, Probe],
    protocol: Protocol,
    metrics: tuple[str, ...],
) -> Plan:
    """The plan with a case of base and one of head, which have the same width. Arms and
    probes are those of base and head, in this order.
    """
    (base,), _ = cases_of([variant], flags, probe=probes[0])
    of_head = {**flags, "d_ff": (base.ffn.d_ff,)}
    (head,), _ = cases_of([variant], of_head, match=Match.NONE, probe=probes[1])
    cases = (
        replace(base, name=BASE, arm=arms[0]),
        replace(base, ffn=head.ffn, arm=arms[1]),
    )
    refuse_if_none_can_run(cases)
    return Plan(kind=Kind.SIDES, cases=cases, protocol=protocol, metrics=metrics)


# the name of a temporary folder begins so, and these are in it
PREFIX, TREE, INDEX = "ffnbench-ab-", "tree", "index"
CHECKOUT_TIMEOUT_S = 600.0


class Repository(ExitStack):
    """The git repository that a folder is in. It is a context manager, whose end
    removes all checkouts that were made of it.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._git = partial(git, folder)
        if not shutil.which("git"):
            raise FfnbenchError(
                "a revision needs git, which is not installed",
                "install git; ab --base-source DIR takes a folder",
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
        """The full name of a revision's commit. Raises FfnbenchError for an unknown
        revision.
        """
        answer = self._git(
            "rev-parse",
            "--verify",
            "--quiet",
            "--end-of-options",
            f"{revision}^{{commit}}",
        )
        if answer.returncode:
            hint = (
                self._hint_if_shallow
                or "`git branch -a` and `git tag` show branches and tags"
            )
            raise FfnbenchError(f"no revision is called {revision!r}", hint)
        return answer.stdout.strip()

    def short(self, commit: str) -> str:
        """The short name of a commit."""
        return self._git("rev-parse", "--short", commit).stdout.strip() or commit[:7]

    @property
    def _hint_if_shallow(self) -> str:
        """What to do about a clone that lacks commits; empty if it lacks none."""
        if self._git("rev-parse", "--is-shallow-repository").stdout.strip() != "true":
            return ""
        return "this clone is shallow: `git fetch --unshallow`, in CI fetch-depth: 0"

    def checkout(self, commit: str) -> Path:
        """Write the files of a commit into a new folder. Gives the place in it that
        corresponds to the current folder.

        git uses an index of its own for it, so nothing is written into the repository,
        and a run that is killed leaves nothing there.
        """
        folder = self.enter_context(tempfile.TemporaryDirectory(prefix=PREFIX))
        checkout = Path(folder).resolve()
        tree = checkout / TREE
        tree.mkdir()
        answer = self._git(
            *("read-tree", "--reset", "-u", "--no-sparse-checkout", commit),
            timeout_s=CHECKOUT_TIMEOUT_S,
            GIT_INDEX_FILE=str(checkout / INDEX),
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
                f"{commit[:10]} has no folder {self._prefix!r}",
                "run it from a folder that both revisions have",
            )
        return place


@contextmanager
def checked_out_sides(
    base: SideFlags, head: SideFlags
) -> Iterator[list[tuple[Arm, str]]]:
    """Give the arms of base and head, each with words that say what the side is. The
    checkouts that they need are removed at the end.
    """
    with ExitStack() as stack:
        repository = None
        if base.rev is not None or head.rev is not None:
            repository = stack.enter_context(Repository(Path.cwd()))
        both_of_code = base.names_code or head.names_code
        yield [
            _checked_out(name, side, both_of_code, repository)
            for name, side in ((BASE, base), (HEAD, head))
        ]


def _checked_out(
    name: str, side: SideFlags, both_of_code: bool, repository: Repository | None
) -> tuple[Arm, str]:
    """The arm of one side, and the words that say what the side is.

    If one side names its code, both arms have a folder (`both_of_code`), for both must
    find their code in the same way.
    """
    source, words = side.source or "", side.source or ""
    if side.rev is not None and repository is not None:
        commit = repository.commit(side.rev)
        source = str(repository.checkout(commit))
        short = repository.short(commit)
        words = side.rev if side.rev.startswith(short) else f"{side.rev} ({short})"
    elif both_of_code and not source:
        source, words = str(Path.cwd()), "the working tree"
        if repository is not None:
            dirty = ", with changes that are not committed" if repository.dirty else ""
            words = f"the working tree ({repository.short('HEAD')}{dirty})"
    arm = Arm(
        python=side.python or "", source=source, env=parse_env(side.env), name=name
    )
    where = ", ".join(filter(None, (words, side.python, *side.env)))
    return arm, f"{name} {where or 'this environment'}"


def prober_within(prober: Prober, arm: Arm, variant: Typed) -> Prober:
    """The prober of a side. Raises FfnbenchError if the variant comes from elsewhere
    than the folder of the side, for example from an installed copy.
    """
    of_side = prober.within(arm)
    if variant.is_target and arm.source:
        file = of_side.origin(variant.name)
        if not file.is_relative_to(Path(arm.source).expanduser().resolve()):
            raise FfnbenchError(
                f"{arm}: {variant.name.rpartition(':')[0]} comes from {file}, not from this side",
                "run it in the folder that holds your packages or their src/, or give --base-source",
            )
    return of_side

"""The two sides of an A/B: what the flags of `ab` say of each, and one plan with a case
of each. On this machine, a side is an arm, for which a revision is checked out.

Base and head are two cases of one plan, each in a process of its own, so that they are
measured in the same rounds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ffnbench.common.choices import Match
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.git import git
from ffnbench.common.git import head as head_of
from ffnbench.plan.cases import Lists, cases_of, refuse_if_none_can_run
from ffnbench.plan.plan import (
    CONTROL,
    Arm,
    Plan,
    Probe,
    Protocol,
)
from ffnbench.plan.reading import spelling
from ffnbench.plan.variants import Typed, typed_variants
from ffnbench.run.prober import Prober

BASE, HEAD = "base", "head"
SHORT = 7  # letters of a commit


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
    if variant.lists:
        raise FfnbenchError(
            f"ab takes one value of each key, not {text!r}",
            "`ffnbench compare` measures a sweep",
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
                f"{spelling(name)} takes one value here, not {shown!r}",
                "`ffnbench compare` and `ffnbench cost` take lists",
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
    return Plan(cases=cases, protocol=protocol, metrics=metrics)


CHECKOUT_TIMEOUT_S = 600.0


def checkout(folder: Path, revision: str, place: Path) -> tuple[Path, str]:
    """Write the files of a revision into the new folder `place`. Gives what corresponds
    there to `folder`, and the short name of the commit.

    git uses an index of its own for it, so nothing is written into the repository, and
    a run that is killed leaves nothing there.
    """
    inside = git(folder, "rev-parse", "--is-inside-work-tree", "--show-prefix")
    is_inside, prefix, *_ = [*inside.stdout.split("\n"), ""]
    if inside.returncode or is_inside != "true":
        raise FfnbenchError(
            f"{str(folder)!r} is not in a git repository, or git is not installed",
            "run it where your code is; ab --base-source DIR takes a folder",
        )
    name = f"{revision}^{{commit}}"
    verified = git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", name)
    if verified.returncode:
        hint = "`git branch -a` and `git tag` show branches and tags"
        if git(folder, "rev-parse", "--is-shallow-repository").stdout == "true\n":
            hint = (
                "this clone is shallow: `git fetch --unshallow`, in CI fetch-depth: 0"
            )
        raise FfnbenchError(f"no revision is called {revision!r}", hint)
    commit, tree = verified.stdout.strip(), place / "tree"
    tree.mkdir(parents=True)
    written = git(
        folder,
        *("read-tree", "--reset", "-u", "--no-sparse-checkout", commit),
        timeout_s=CHECKOUT_TIMEOUT_S,
        GIT_INDEX_FILE=str(place / "index"),
        GIT_WORK_TREE=str(tree),
    )
    if written.returncode:
        reason = written.stderr.strip().rpartition("\n")[2] or "git gave no reason"
        raise FfnbenchError(
            f"{commit[:SHORT]} can't be checked out: {reason}",
            f"`git checkout {commit[:SHORT]}` fetches what a partial clone lacks; is there space in the temporary folder?",
        )
    if not (tree / prefix).is_dir():
        raise FfnbenchError(
            f"{commit[:SHORT]} has no folder {prefix!r}",
            "run it from a folder that both revisions have",
        )
    return tree / prefix, commit[:SHORT]


def arms_of_sides(
    base: SideFlags, head: SideFlags, folder: Path
) -> list[tuple[Arm, str]]:
    """The arms of base and head, each with words that say what the side is. Revisions
    are checked out into `folder`.

    If one side names its code, both arms have a folder, for both must find their code
    in the same way.
    """
    here = Path.cwd()
    arms = []
    for name, side in ((BASE, base), (HEAD, head)):
        source, words = side.source or "", side.source or ""
        if side.rev is not None:
            place, short = checkout(here, side.rev, folder.resolve() / name)
            source = str(place)
            words = side.rev if side.rev.startswith(short) else f"{side.rev} ({short})"
        elif not source and (base.names_code or head.names_code):
            source, words = str(here), "the working tree"
            if base.rev is not None or head.rev is not None:
                commit, is_dirty = head_of(here)
                dirty = ", with changes that are not committed" if is_dirty else ""
                words = f"the working tree ({(commit or '')[:SHORT]}{dirty})"
        env = tuple(map(_variable, side.env))
        arm = Arm(python=side.python or "", source=source, env=env, name=name)
        where = ", ".join(filter(None, (words, side.python, *side.env)))
        arms.append((arm, f"{name} {where or 'this environment'}"))
    return arms


def _variable(text: str) -> tuple[str, str]:
    """The name and value of an environment variable, of NAME:VALUE."""
    name, colon, value = text.strip().partition(":")
    if not colon or not name.isidentifier():
        raise FfnbenchError(
            f"cannot read the variable {text!r}",
            "write NAME:VALUE, for example OMP_NUM_THREADS:1",
        )
    return name, value


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

"""The two sides of an A/B on this machine: revisions checked out for the while, and the arm of each side."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ffnbench.errors import FfnbenchError
from ffnbench.gate.repository import Repository
from ffnbench.plan import Arm
from ffnbench.planning.sides import SideFlags
from ffnbench.planning.variant_text import Variant, parse_env
from ffnbench.run.prober import Prober


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedSide:
    """One side: where it runs, and that in words."""

    arm: Arm
    words: str


@contextmanager
def placed(asked: dict[str, SideFlags]) -> Iterator[tuple[PlacedSide, PlacedSide]]:
    """Base and head, with the checkouts that they need; those end with the context."""
    with ExitStack() as stack:
        repository = None
        if any(side.rev is not None for side in asked.values()):
            repository = stack.enter_context(Repository(Path.cwd()))
        of_code = any(side.rev is not None or side.source is not None for side in asked.values())
        base, head = (_placed(name, side, of_code, repository) for name, side in asked.items())
        yield base, head


def _placed(name: str, side: SideFlags, of_code: bool, repository: Repository | None) -> PlacedSide:
    """One side. Where either is told by its code, so are both: they must be found in the same way."""
    source, called = "", []
    if side.rev is not None:
        assert repository is not None
        commit = repository.commit(side.rev)
        source = str(repository.checkout(commit))
        called = [
            side.rev if side.rev.startswith(repository.short(commit)) else f"{side.rev} ({repository.short(commit)})"
        ]
    elif side.source is not None:
        source, called = side.source, [side.source]
    elif of_code:
        source, called = str(Path.cwd()), ["working tree"]
        if repository is not None:
            dirty = ", with changes that are not committed" if repository.dirty else ""
            called = [f"the working tree ({repository.short('HEAD')}{dirty})"]
    if side.python is not None:
        called.append(side.python)
    called += side.env
    arm = Arm(python=side.python or "", source=source, env=parse_env(side.env), name=name)
    return PlacedSide(arm=arm, words=f"{name} {', '.join(called) or 'this environment'}")


def prober_within(prober: Prober, arm: Arm, variant: Variant) -> Prober:
    """The prober of a side, once it is sure that the code there is the side's own and no installed copy."""
    there = prober.within(arm)
    if variant.target and arm.source:
        file = there.origin(variant.target)
        if not file.is_relative_to(Path(arm.source).expanduser().resolve()):
            raise FfnbenchError(
                f"{arm}: {variant.target.rpartition(':')[0]} is {file}, which is no part of it",
                "run it in the folder that your packages are in (src/ is found), or give --base-source, --head-source",
            )
    return there

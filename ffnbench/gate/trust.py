"""May this run? What a file from elsewhere names that would be executed, and which of it needs the user's word.

Without a word runs what is defined by a file that git tracks in the same tree as the file that names it. Nothing is
imported to find out which files these are.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from ffnbench.activations.user_activation import OwnActivation
from ffnbench.errors import FfnbenchError
from ffnbench.ffn.spec import ImportedSpec
from ffnbench.git import tracked
from ffnbench.plan import OWN, Plan
from ffnbench.targets import is_file_name


@dataclass(frozen=True, slots=True)
class Named:
    """Something that a plan would run: `text` is what --trust calls it, `files` what it is read from, its packages
    first; none where that can't be known.
    """

    text: str
    files: tuple[Path, ...] = ()


def refuse_untrusted(plan: Plan, path: str, trusted: tuple[str, ...]) -> list[Named]:
    """Raise FfnbenchError, with what is to be typed, for code that the plan in a file names and nobody has vouched for.

    Gives what may run if its file defines it, which shows when that is loaded.
    """
    named = [one for one in dict.fromkeys(_named(plan, trusted)) if one.text not in trusted]
    of_git = tracked([Path(path), *(file for one in named for file in one.files)], beside=Path(path))
    known = {file.resolve() for file in of_git} if Path(path) in of_git else set()
    unknown = [one for one in named if not one.files or not known.issuperset(map(Path.resolve, one.files))]
    if unknown:
        raise _untrusted(f"{path!r} runs code that is not in its git repository", unknown)
    return named


def refuse_reached(named: list[Named], path: str, home: Callable[[str], Path | None]) -> None:
    """Raise FfnbenchError for what is not defined in the file that it is named by: imported there, say, or an object.

    `home` loads a target's file and tells which one defines it.
    """
    if reached := [one for one in named if home(one.text) != one.files[-1].resolve()]:
        raise _untrusted(f"{path!r} runs code that another file defines", reached)


def _untrusted(what: str, named: list[Named]) -> FfnbenchError:
    flags = " ".join(f"--trust {shlex.quote(one.text)}" for one in named)
    return FfnbenchError(f"{what}: {', '.join(one.text for one in named)}", f"if you trust it: {flags}")


def _named(plan: Plan, trusted: tuple[str, ...]) -> Iterator[Named]:
    for case in plan.cases:
        arm = case.arm
        if arm.python:
            yield Named(f"python={arm.python}")
        if arm.source:
            yield Named(f"source={arm.source}")
        yield from (Named(f"env={name}:{value}") for name, value in arm.env)
        own = (arm.python, arm.source, arm.env) == (OWN.python, OWN.source, OWN.env)  # others find other modules
        for target in _targets(case.ffn):
            if target not in trusted:
                yield Named(target, _files_of(target) if own else ())


def _targets(spec: Any) -> Iterator[str]:
    """Every target in a spec, however deep it stands."""
    if isinstance(spec, ImportedSpec | OwnActivation):
        yield spec.target
    if is_dataclass(spec):
        for field in fields(spec):
            yield from _targets(getattr(spec, field.name))


def _files_of(target: str) -> tuple[Path, ...]:
    """The files that loading a target would run, those of its packages first; none where they can't be known. Raises
    FfnbenchError where it is not there.
    """
    gone = FfnbenchError(
        f"the baseline names {target}, and it is not there", "has it moved? Run this where it is found"
    )
    source = target.rpartition(":")[0]
    if is_file_name(source):
        file = Path(source).expanduser()
        if not file.exists():
            raise gone
        return (file,)
    PathFinder.invalidate_caches()  # a file may be younger than what was seen of its folder
    found, folders = [], [os.getcwd(), *sys.path]  # a worker looks there first (targets.py)
    parts = source.split(".")
    for end in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:end]), folders)
        if spec is None:
            # an editable install may have a finder of its own
            if end == 1 and parts[0] and any(finder.find_spec(parts[0], None) for finder in sys.meta_path):
                return ()
            raise gone
        if spec.has_location and spec.origin:
            if os.path.islink(spec.origin):  # what it imports from its package stands beside the link
                return ()
            found.append(Path(spec.origin))
        elif spec.submodule_search_locations is None:  # built in: neither a file nor a package without one
            return ()
        folders = list(spec.submodule_search_locations or ())
    return tuple(found)

"""May this run? What a file from elsewhere names that would be executed, and which of it needs the user's word.

Without a word runs what the user has named on a command line before, and what a file defines that he has named, or
that git tracks in the same tree as the file that names it. Nothing is imported to find out which files these are.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from ffnbench.activations.user_activation import OwnActivation
from ffnbench.errors import FfnbenchError
from ffnbench.ffn.spec import HF, ImportedSpec
from ffnbench.gate import named_files
from ffnbench.git import tracked
from ffnbench.plan import OWN, Arm, Plan
from ffnbench.targets import is_file_name


@dataclass(frozen=True, slots=True)
class Named:
    """Something that a plan would run: `text` is what --trust calls it, `files` what it is read from, if that is known.

    Without files it can't be known to be the project's own.
    """

    text: str
    files: tuple[Path, ...] = ()

    @property
    def lines(self) -> list[str]:
        """What is remembered of it: its packages, and last the file with the name in it."""
        names = [""] * (len(self.files) - 1) + [self.text.rpartition(":")[2]]
        return [f"{file.resolve()}:{name}" for file, name in zip(self.files, names, strict=False)]


def refuse_untrusted(plan: Plan, path: str, trusted: tuple[str, ...]) -> list[Named]:
    """Raise FfnbenchError, with what is to be typed, for code that the plan in a file names and nobody has vouched for.

    Gives what may run if its file defines it, which shows when that is loaded.
    """
    everything = list(dict.fromkeys(_named(plan)))
    named_files.remember(line for one in everything if one.text in trusted for line in one.lines)
    named, before = [one for one in everything if one.text not in trusted], named_files.known()
    known_files = {Path(line.rpartition(":")[0]) for line in before}
    wanted = [Path(path), *(file for one in named for file in one.files)]
    if Path(path) in (of_git := tracked(wanted, beside=Path(path))):
        known_files |= {file.resolve() for file in of_git}
    unknown = [one for one in named if not one.files or not known_files.issuperset(map(Path.resolve, one.files))]
    if unknown:
        raise _untrusted(f"{path!r} names code that git does not track beside it", unknown)
    return [one for one in named if one.lines[-1] not in before]


def refuse_reached(named: list[Named], path: str, home: Callable[[str], Path | None]) -> None:
    """Raise FfnbenchError for what is not defined in the file that it is named by: imported there, say, or an object.

    `home` loads a target's file and tells which one defines it.
    """
    if reached := [one for one in named if home(one.text) != one.files[-1].resolve()]:
        raise _untrusted(f"{path!r} names code that its file does not define", reached)


def _untrusted(what: str, named: list[Named]) -> FfnbenchError:
    flags = " ".join(f"--trust {shlex.quote(one.text)}" for one in named)
    return FfnbenchError(f"{what}: {', '.join(one.text for one in named)}", f"if it may run here: {flags}")


def remember(specs: Iterable[Any]) -> None:
    """Keep where the code is that specs name, which the user has typed."""
    targets = (target for spec in specs for target in _targets(spec))
    named_files.remember(line for target in targets for line in Named(target, _files_of(target)).lines)


def _named(plan: Plan) -> Iterator[Named]:
    for case in plan.cases:
        own = _is_here(case.arm)
        if case.arm.python:
            yield Named(f"python={case.arm.python}")
        if case.arm.source:
            yield Named(f"source={case.arm.source}")
        yield from (Named(f"env={name}:{value}") for name, value in case.arm.env)
        for target in _targets(case.ffn):
            yield Named(target, _files_of(target) if own else ())


def _is_here(arm: Arm) -> bool:
    """Whether its modules are found as they are found from here; another environment finds others."""
    return (arm.python, arm.source, arm.env) == (OWN.python, OWN.source, OWN.env)


def _targets(spec: Any) -> Iterator[str]:
    """Every target in a spec, however deep it stands."""
    if isinstance(spec, ImportedSpec | OwnActivation):
        yield spec.target
    if is_dataclass(spec):
        for field in fields(spec):
            yield from _targets(getattr(spec, field.name))


def _files_of(target: str) -> tuple[Path, ...]:
    """The files that loading a target would run, those of its packages first; none where they can't be found."""
    source = target.rpartition(":")[0]
    if target.startswith(HF):
        return ()
    if is_file_name(source):
        return (Path(source).expanduser(),)
    found, folders = [], _search_path()
    parts = source.split(".")
    for end in range(1, len(parts) + 1):
        spec = _found(".".join(parts[:end]), folders)
        if spec is None:
            return ()
        if spec.has_location and spec.origin:
            if os.path.islink(spec.origin):  # what it imports from its package stands beside the link
                return ()
            found.append(Path(spec.origin))
        elif spec.submodule_search_locations is None:  # built in: neither a file nor a package without one
            return ()
        folders = list(spec.submodule_search_locations or ())
    return tuple(found)


def _search_path() -> list[str]:
    """Where a worker looks for modules (targets.py): as here, the current folder first unless it is listed."""
    here = os.getcwd()
    return sys.path if here in sys.path else [here, *sys.path]


def _found(name: str, folders: list[str]) -> Any:
    """What a module's name stands for, by its file's place alone. Packages in development have finders of their own."""
    spec = PathFinder.find_spec(name, folders)
    for finder in sys.meta_path:
        if spec is None and "__editable__" in str(getattr(finder, "__module__", "")):
            spec = finder.find_spec(name, None)
    return spec

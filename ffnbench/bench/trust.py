"""May this run? What a file from elsewhere names that would be executed, and which of it needs the user's word.

A module runs without a word where git tracks its files in the same tree as the file that names it: so the gate of a
project runs the project's own code. Nothing is imported to find that out.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from ffnbench.activations.user_activation import OwnActivation
from ffnbench.bench.git import tracked
from ffnbench.errors import FfnbenchError
from ffnbench.ffn.spec import HF, ImportedSpec
from ffnbench.names import hint_for
from ffnbench.plan import OWN, Arm, Plan
from ffnbench.targets import is_file_name


@dataclass(frozen=True, slots=True)
class Named:
    """Something that a plan would run: `text` is what --trust calls it, `files` what it is read from, if that is known.

    Without files it can't be known to be the project's own.
    """

    text: str
    files: tuple[Path, ...] = ()


def refuse_untrusted(plan: Plan, path: str, trusted: tuple[str, ...]) -> None:
    """Raise FfnbenchError, with what is to be typed, for code that the plan in a file names and nobody has vouched for.

    Raises it as well for a `trusted` that the file does not name: it would do nothing.
    """
    named = list(dict.fromkeys(_named(plan)))
    for text in trusted:
        if all(text != one.text for one in named):
            known = [one.text for one in named]
            there = "it names " + ", ".join(known) if known else "it names no code but ffnbench's own"
            raise FfnbenchError(f"--trust {text!r}: {path!r} names no such thing", hint_for(text, known, there))
    unknown = [one for one in named if one.text not in trusted and not _is_tracked(one, path)]
    if unknown:
        flags = " ".join(f"--trust {shlex.quote(one.text)}" for one in unknown)
        raise FfnbenchError(
            f"{path!r} names code that git does not track beside it: {', '.join(one.text for one in unknown)}",
            f"if it may run here: {flags}",
        )


def _is_tracked(one: Named, path: str) -> bool:
    """Whether git knows all of its files, and the file that names them, in one tree."""
    wanted = [*one.files, Path(path)]
    return bool(one.files) and tracked(wanted, beside=Path(path)) >= set(wanted)


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

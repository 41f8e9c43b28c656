"""Defaults of flags from `[tool.ffnbench]` of a pyproject.toml: of all commands, or of one (`[tool.ffnbench.compare]`).

The nearest file with such a table counts, from the working folder upwards to the root of the repository. What is typed
wins, and a default that contradicts it is left out. No default names code, an interpreter, an output, or what may be
trusted: a file of somebody else's must not run or write anything.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ffnbench.errors import FfnbenchError
from ffnbench.files import content_of
from ffnbench.names import hint_for
from ffnbench.request import spelling

FILE, TABLE = "pyproject.toml", "tool.ffnbench"
NEVER = {  # fields, and what a file may not say by them
    "trust": "what may be trusted", "out": "an output", "export": "an output", "base_python": "an interpreter",
    "head_python": "an interpreter", "base_source": "where code is", "head_source": "where code is",
    "base_env": "the environment of a process", "head_env": "the environment of a process", "update": "an output",
    "append": "an output", "force": "an output", "json": "a format twice",
}  # fmt: skip
OF_CODE = ("variants", "variant", "activations", "style")  # may name code, or an address: plain names are taken
OF_CODE_KEYS = ("@python", "@source", "@env")
OF_OUTPUT = ("format", "verbose", "quiet", "sort", "columns")  # how an answer is shown: not told with it
EXACT, FREE = ("workers", "rounds", "quick"), ("precision", "budget")
YIELDS: Mapping[str, tuple[str, ...]] = {  # a default gives way where one of these is typed
    **dict.fromkeys(EXACT, FREE), **dict.fromkeys(FREE, EXACT), "preset": ("config", "d_model"),
    "config": ("preset", "d_model"), "d_model": ("preset", "config"), "d_ff": ("ratio", "rule"), "ratio": ("d_ff",),
    "rule": ("d_ff",), "format": ("json",), "tolerance": ("fail_above",), "fail_above": ("tolerance",),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a file sets: values by field for every command, and for each one by itself; `path` is the file."""

    path: Path
    shared: Mapping[str, Any]
    own: Mapping[str, Mapping[str, Any]]

    def rows(self) -> list[tuple[str, str]]:
        """Names and values, as they stand in the file."""
        own = [(f"{command}.{name}", value) for command, of in self.own.items() for name, value in of.items()]
        return [(name, shown(value)) for name, value in [*self.shared.items(), *own]]


def shown(value: Any) -> str:
    """A value as it would be typed."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(shown, value)) if isinstance(value, list) else str(value)


def found_settings(commands: Callable[[], list[Any]]) -> Settings | None:
    """The settings that hold in this folder; `commands` gives all that there are, with their flags. Raises
    FfnbenchError for a table that can't be read, an unknown key, and a key that no file may set.
    """
    try:
        here = Path.cwd()
    except FileNotFoundError:  # it is deleted, and there is no file in it
        return None
    for folder in _upwards(here):
        if (path := folder / FILE).is_file() and (table := _table(path)) is not None:
            return _checked(path, table, {one.name: one.flags for one in commands()})
    return None


def _upwards(here: Path) -> list[Path]:
    folders = [here, *here.parents]
    roots = [number for number, folder in enumerate(folders) if (folder / ".git").exists()]
    return folders[: roots[0] + 1] if roots else folders


def _table(path: Path) -> dict[str, Any] | None:
    if not os.access(path, os.R_OK):
        return None
    text = content_of(path)
    if b"ffnbench" not in text:  # somebody else's file is not even read
        return None
    try:
        tool = tomllib.loads(text.decode()).get("tool", {})
    except (ValueError, RecursionError) as problem:
        raise FfnbenchError(f"cannot read {str(path)!r}: {problem}", "it has to be TOML") from None
    found = tool.get("ffnbench") if isinstance(tool, dict) else None
    return found if isinstance(found, dict) else None


def _checked(path: Path, table: dict[str, Any], flags: Mapping[str, Collection[str]]) -> Settings:
    every = {name for names in flags.values() for name in names}
    shared: dict[str, Any] = {}
    own: dict[str, dict[str, Any]] = {}
    for key, value in table.items():
        if not isinstance(value, dict):
            name, found = _setting(path, TABLE, key, value, every)
            shared[name] = found
        elif key in flags:
            own[key] = dict(_setting(path, f"{TABLE}.{key}", name, of, flags[key]) for name, of in value.items())
        else:
            raise FfnbenchError(
                f"no command is called {key!r}, in [{TABLE}.{key}] of {str(path)!r}",
                hint_for(key, flags, "commands: " + ", ".join(flags)),
            )
    return Settings(path=path, shared=shared, own=own)


def _setting(path: Path, table: str, key: str, value: Any, known: Collection[str]) -> tuple[str, Any]:
    """The field of a key with its value, if a file may set that."""
    name = key.strip().replace("-", "_")
    if name not in known:
        plain = sorted(one.rstrip("_") for one in known if one not in NEVER)
        raise FfnbenchError(
            f"unknown key {key!r} in [{table}] of {str(path)!r}",
            hint_for(name, plain, "a key is the name of a flag: seq_len, dtype, budget, ..."),
        )
    elsewhere = "type it where it is wanted"
    if name in NEVER:
        raise FfnbenchError(f"{str(path)!r} sets {name}, which names {NEVER[name]}: no file may do that", elsewhere)
    parts = value if isinstance(value, list) else [value]
    if not all(isinstance(one, int | float | str) for one in parts) or not shown(value).strip():
        raise FfnbenchError(f"{name} of {str(path)!r} is no value of a flag", 'for example seq_len = 128 or "2Ki"')
    text = shown(value)
    if name in OF_CODE and (":" in text or any(key in text for key in OF_CODE_KEYS)):
        raise FfnbenchError(
            f"{str(path)!r} sets {name} to {text!r}, which is no plain name: no file may set that", elsewhere
        )
    return name, value


def values_of(settings: Settings, command: Any, args: list[str]) -> dict[str, Any]:
    """What a file sets for a command, by field, as Typer takes it; without what contradicts the words typed."""
    words = {arg.partition("=")[0].replace("_", "-") for arg in args}
    params = {str(one.name): one for one in command.params}
    typed = {name for name, one in params.items() if words & {*one.opts, *one.secondary_opts}}
    found = {}
    for name, value in {**settings.shared, **settings.own.get(command.name, {})}.items():
        if name not in params or {*YIELDS.get(name, ())} & typed:
            continue
        if params[name].is_flag != isinstance(value, bool):
            hint = f"{name} = true, or false" if params[name].is_flag else ""
            raise FfnbenchError(f"{name} of {str(settings.path)!r} is {shown(value)!r}", hint)
        texts = [shown(one) for one in (value if isinstance(value, list) else [value])]
        found[name] = value if isinstance(value, bool) else texts if params[name].multiple else shown(value)
    return found


@contextmanager
def explained(values: Mapping[str, Any]) -> Iterator[None]:
    """Say of a mistake that it is one of these defaults, which a file sets."""
    try:
        yield
    except FfnbenchError as problem:
        for name, value in values.items():
            if repr(shown(value)) in problem.message or spelling(name) in problem.message:
                problem.message += f" ({name} is set in pyproject.toml)"
                break
        raise


def noted(held: Mapping[str, Any]) -> tuple[str, ...]:
    """What a reader should know of the defaults that a file has set."""
    told = [f"{name.rstrip('_')} {shown(value)}" for name, value in held.items() if name not in OF_OUTPUT]
    return (f"defaults from pyproject.toml: {', '.join(told)}",) if told else ()

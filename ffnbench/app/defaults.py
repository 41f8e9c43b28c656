"""Defaults of flags from `[tool.ffnbench]` of a pyproject.toml: of all commands, or of
one (`[tool.ffnbench.compare]`). They are Typer's `default_map`.

The nearest file with such a table counts, from the working folder upwards to the root
of the repository. What is typed wins, and a default that contradicts it is left out.
The file may be somebody else's, and must not run or write anything, so it may set only
the flags of SETTABLE.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ffnbench.app.command import shown_value
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.files import content_of, project_file
from ffnbench.common.names import hint_for

SETTABLE = (
    "d_model", "d_ff", "bias", "match", "batch", "seq_len", "dtype", "mode", "device", "threads", "backend", "weights",
    "metrics",
    "precision", "budget", "timeout", "pause", "tolerance", "on_unclear", "hardware", "wait", "format", "verbose", "quiet", "sort", "columns",
)  # fmt: skip


def facts() -> list[tuple[str, str]]:
    """Facts for `ffnbench env`: the file, then each default with its value."""
    path = project_file()
    if path is None:
        return []
    rows = [("defaults from", str(path))]
    for name, value in _table_of(path).items():
        if isinstance(value, dict):
            rows += [
                (f"default {name}.{key}", shown_value(own))
                for key, own in value.items()
            ]
        else:
            rows.append((f"default {name}", shown_value(value)))
    return rows


def default_map(commands: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The defaults of each command, by names of parameters. Raises FfnbenchError for a
    file that is no TOML, and for what no file may set.
    """
    path = project_file()
    if path is None:
        return {}
    table = _table_of(path)
    of_all = {}
    for key, value in table.items():
        if not (key in commands and isinstance(value, dict)):
            name, typed = _settable(path, key, value)
            of_all[name] = typed
    maps = {}
    for command in commands:
        own = table.get(command, {})
        named = dict(_settable(path, *item) for item in own.items())
        maps[command] = of_all | named
    return maps


def _settable(path: Path, key: str, value: Any) -> tuple[str, Any]:
    """The parameter that a key sets, and its value as it would be typed; raises
    FfnbenchError where no file may set it.
    """
    name = key.replace("-", "_")
    parts = value if isinstance(value, list) else [value]
    if name not in SETTABLE or not all(isinstance(x, int | float | str) for x in parts):
        raise FfnbenchError(
            f"{str(path)!r} can't set {key!r} to {value!r}",
            hint_for(name, SETTABLE, "a key is the name of a flag: seq_len = 128"),
        )
    if name == "tolerance":  # it is repeated
        return name, [str(part) for part in parts]
    return name, value if isinstance(value, bool) else ",".join(map(str, parts))


def _table_of(path: Path) -> dict[str, Any]:
    try:
        tools = tomllib.loads(content_of(path).decode()).get("tool", {})
        table = tools.get("ffnbench", {})
        if not isinstance(table, dict):
            raise ValueError("tool.ffnbench is no table")
        return table
    except (ValueError, RecursionError) as problem:
        raise FfnbenchError(
            f"cannot read {str(path)!r}: {problem}", "it has to be TOML"
        ) from None

"""Defaults of flags from `[tool.ffnbench]` of a pyproject.toml: of all commands, or of
one (`[tool.ffnbench.compare]`). They are Typer's `default_map`.

The nearest file with such a table counts, from the working folder upwards to the root
of the repository. What is typed wins, and a default that contradicts it is left out.
The file may be somebody else's, and must not run or write anything, so it may set only
flags that no alias of app/options.py marks as TYPED.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ffnbench.app.command import SETTABLE
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.files import content_of, project_file
from ffnbench.common.names import hint_for


def default_map(commands: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The defaults of each command, by names of parameters. Raises FfnbenchError for a
    file that is no TOML, and for what no file may set.
    """
    path = project_file()
    if path is None:
        return {}
    table = _table_of(path)
    own = {
        name: table.pop(name) for name in commands if isinstance(table.get(name), dict)
    }
    of_all = _settings(path, table)
    return {name: of_all | _settings(path, own.get(name, {})) for name in commands}


def _settings(path: Path, table: dict[str, Any]) -> dict[str, Any]:
    """The parameters that a table sets, with their values as they would be typed;
    raises FfnbenchError where no file may set one.
    """
    settings: dict[str, Any] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        parts = value if isinstance(value, list) else [value]
        is_typed = all(isinstance(part, int | float | str) for part in parts)
        if name not in SETTABLE or not is_typed:
            raise FfnbenchError(
                f"{str(path)!r} can't set {key!r} to {value!r}",
                hint_for(name, SETTABLE, "a key is the name of a flag: seq_len = 128"),
            )
        texts = [str(part) for part in parts]
        if isinstance(value, bool):
            settings[name] = value
        else:  # the one flag that is repeated takes several texts
            settings[name] = texts if name == "tolerance" else ",".join(texts)
    return settings


def _table_of(path: Path) -> dict[str, Any]:
    try:
        table = tomllib.loads(content_of(path).decode())["tool"]["ffnbench"]
        return dict(table)
    except (ValueError, TypeError, LookupError, RecursionError) as problem:
        raise FfnbenchError(
            f"cannot read {str(path)!r}: {problem}", "it has to be TOML"
        ) from None

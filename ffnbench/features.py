"""What features add to the core: each is a folder of extras/, and a row of FEATURES.

The core never imports an extra. It asks here for a name that it does not know itself,
and a file of an extra is imported when something of it is wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """What a folder of extras/ adds, by the names that a user types. A row is data: it
    is read without loading a file of the folder.

    `commands` are registered by importing its `command.py`; `calls` are public
    functions in its `python.py`. `requests` are types of messages to a worker, in
    HANDLERS of its `worker.py`: name -> (type, function (jobs, request) -> answer).

    `suffixes` are of files of `-o`, written by WRITERS of its `files.py`: (table,
    pictures, reports, title) -> text. `report/formats.py: View` says what these four
    are.
    """

    name: str
    commands: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()
    requests: tuple[str, ...] = ()

    def file(self, name: str) -> Any:
        """A module of this feature's folder, imported now."""
        return import_module(f"ffnbench.extras.{self.name}.{name}")


FEATURES = (
    Feature(
        name="models",
        commands=("inspect",),
        calls=("inspect",),
    ),
    Feature(name="page", suffixes=(".html",)),
)


def imported_function(name: str) -> Any:
    """Import a function of this package by `file:name`. It is for a function in a room
    above that of the caller, where an `import` would make a circle between rooms.
    """
    file, _, function = name.partition(":")
    return getattr(import_module(f"ffnbench.{file}"), function)


def of_features(field: str) -> dict[str, Feature]:
    """The names in one field of all features, such as "commands", each with its
    feature.
    """
    return {name: feature for feature in FEATURES for name in getattr(feature, field)}


def handler(name: str) -> tuple[type[Any], Callable[..., Any]]:
    """The type of a request to a worker that a feature adds, and the function (jobs,
    request) that answers it; raises KeyError where no feature has it.
    """
    added: tuple[type[Any], Callable[..., Any]] = (
        of_features("requests")[name].file("worker").HANDLERS[name]
    )
    return added

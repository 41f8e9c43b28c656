"""The features that the core does not need: each is a folder of extras/, whose package holds one FEATURE.

The core never imports an extra. It asks here for a name that it does not know itself, and a file of an extra is
imported when something of it is wanted. To delete a feature is to delete its folder, its folder of tests
(tests/extras/NAME) and its page of docs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

EXTRAS = Path(__file__).with_name("extras")


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """What a folder of extras/ adds, by the names that a user types.

    `commands` are registered by importing its `command.py`; `calls` are public functions in its `python.py`;
    `listings` are topics of `ffnbench list`, in LISTINGS of its `listing.py`: (sink) -> None. `completes` are flags
    whose values a shell offers, in COMPLETIONS of the same file: () -> words.

    `suffixes` are of files of `-o`, written by WRITERS of its `files.py`: (table, pictures, reports, title) -> text.
    `report/formats.py: view_of` says what these four are.

    `jobs` are what a worker can be asked for, functions of its `worker.py`: (what the request holds) -> the answer.
    """

    name: str
    commands: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    listings: tuple[str, ...] = ()
    completes: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()

    def file(self, name: str) -> Any:
        """A module of this feature's folder, imported now."""
        return import_module(f"ffnbench.extras.{self.name}.{name}")


@cache
def features() -> tuple[Feature, ...]:
    """Every feature whose folder is there, in the order of their names."""
    folders = sorted(path.parent.name for path in EXTRAS.glob("*/__init__.py"))
    return tuple(import_module(f"ffnbench.extras.{folder}").FEATURE for folder in folders)


def commands() -> dict[str, Feature]:
    """The commands of all features, each with the feature that has it."""
    return {name: feature for feature in features() for name in feature.commands}


def calls() -> dict[str, Feature]:
    """The public functions of all features, each with the feature that has it."""
    return {name: feature for feature in features() for name in feature.calls}


def listings() -> dict[str, Feature]:
    """The topics of `ffnbench list` that features add, each with the feature that has it."""
    return {name: feature for feature in features() for name in feature.listings}


def suffixes() -> dict[str, Feature]:
    """The suffixes of `-o` that features add, each with the feature that has it."""
    return {suffix: feature for feature in features() for suffix in feature.suffixes}


def completer_of(flag: str) -> Callable[[], Any] | None:
    """What gives the words for the value of a feature's flag; None where no feature completes it."""
    for feature in features():
        if flag in feature.completes:
            completer: Callable[[], Any] = feature.file("listing").COMPLETIONS[flag]
            return completer
    return None


def job_of(name: str) -> Callable[..., Any]:
    """What a worker does for a feature under a name; raises LookupError where no feature has such a job."""
    for feature in features():
        if name in feature.jobs:
            job: Callable[..., Any] = getattr(feature.file("worker"), name)
            return job
    raise LookupError(f"no job is called {name}")

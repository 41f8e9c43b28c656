"""Names -> entries, with aliases, spelling that forgives case and dashes, and a useful error for the rest.

One class, one instance for each kind of thing that has a name (activations, gated forms, width rules, ...).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Generic, TypeVar

from ffnbench.errors import FfnbenchError

T = TypeVar("T")


def normalise(name: str) -> str:
    """`GELU-Tanh ` and `gelu_tanh` are one name."""
    return name.strip().lower().replace("-", "_")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`did you mean 'a' or 'b'?`, or an empty string where nothing is near."""
    close = get_close_matches(normalise(name), list(known), n=2, cutoff=0.6)
    return f"did you mean {' or '.join(repr(c) for c in close)}?" if close else ""


def hint_for(name: str, known: Iterable[str], where: str) -> str:
    """The hint of an unknown name: the near ones first, then where to see all."""
    return " ".join(part for part in (did_you_mean(name, known), where) if part)


class Registry(Generic[T]):
    """An ordered table of named entries of one kind.

    `kind` is the word used in errors ("activation"), `where` tells where all names can be seen.
    """

    def __init__(self, kind: str, where: str) -> None:
        self.kind = kind
        self.where = where
        self._entries: dict[str, T] = {}
        self._aliases: dict[str, str] = {}
        self._written: dict[str, str] = {}

    def add(self, name: str, entry: T, aliases: Iterable[str] = ()) -> None:
        """Add an entry; a name or an alias that is taken raises ValueError (a mistake in the table itself)."""
        for taken in (name, *aliases):
            if normalise(taken) in self:
                raise ValueError(f"{self.kind} {taken!r} is registered twice")
        self._entries[normalise(name)] = entry
        self._written[normalise(name)] = name
        self._aliases.update({normalise(alias): normalise(name) for alias in aliases})

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (normalise(name) in self._entries or normalise(name) in self._aliases)

    def __iter__(self) -> Iterator[T]:
        return iter(self._entries.values())

    def names(self) -> list[str]:
        """The main names as they are written, in the order of the table."""
        return list(self._written.values())

    def spellings(self) -> list[str]:
        """Every name that `get` understands."""
        return [*self._written.values(), *self._aliases]

    def canonical(self, name: str) -> str:
        """The main name behind any spelling, as it is written; raises FfnbenchError for an unknown one."""
        key = normalise(name)
        key = self._aliases.get(key, key)
        if key not in self._entries:
            raise FfnbenchError(f"unknown {self.kind} {name!r}", hint_for(name, self.spellings(), self.where))
        return self._written[key]

    def get(self, name: str) -> T:
        """The entry behind any spelling; raises FfnbenchError with did-you-mean for an unknown one."""
        found = self._entries.get(name)  # as it is written: nothing to normalise
        return self._entries[normalise(self.canonical(name))] if found is None else found

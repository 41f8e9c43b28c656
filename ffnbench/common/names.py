"""Finds entries by their names: with aliases, whatever the case and the dashes, and
with a useful error for unknown names.

There is one class, with an instance for each kind of entry (activations, gated forms,
width rules, ...).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from enum import Enum
from typing import Generic, TypeVar

from ffnbench.common.errors import FfnbenchError

T = TypeVar("T")
E = TypeVar("E", bound=Enum)


def normalise(name: str) -> str:
    """The one spelling of a name: that of `GELU-Tanh ` is `gelu_tanh`."""
    return name.strip().lower().replace("-", "_")


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """`did you mean 'a' or 'b'?`, or an empty string where nothing is near."""
    nearest = get_close_matches(normalise(name), [*names], n=2)
    if not nearest:
        return ""
    return f"did you mean {' or '.join(map(repr, nearest))}?"


def hint_for(name: str, names: Iterable[str], where: str) -> str:
    """The hint of an unknown name: the near ones first, then where to see all."""
    return f"{did_you_mean(name, names)} {where}".strip()


def choose(kind: type[E], name: str, value: object) -> E:
    """The member of an enum with this value; raises FfnbenchError, with did-you-mean,
    for any other value. `name` is what the error calls it.
    """
    text = "none" if value is None else str(value)
    try:
        return kind(text)
    except ValueError:
        values = [member.value for member in kind]
        raise FfnbenchError(
            f"unknown {name} {text!r}",
            hint_for(text, values, "one of: " + ", ".join(values)),
        ) from None


class Registry(Generic[T]):
    """An ordered table of named entries of one kind.

    `kind` is the word used in errors ("activation"), `where` tells where all names can
    be seen, `plain` makes one text of the spellings of a name.
    """

    def __init__(
        self, kind: str, where: str, plain: Callable[[str], str] = normalise
    ) -> None:
        self.kind = kind
        self.where = where
        self._plain = plain
        self._entries: dict[str, T] = {}  # by the names as they are written
        # every name and alias, normalised, and the name that it leads to
        self._known: dict[str, str] = {}

    def add(self, name: str, entry: T, aliases: Iterable[str] = ()) -> None:
        """Add an entry; a name or an alias that is taken raises ValueError (a mistake
        in the table itself).
        """
        for spelling in (name, *aliases):
            if spelling in self:
                raise ValueError(f"{self.kind} {spelling!r} is registered twice")
            self._known[self._plain(spelling)] = name
        self._entries[name] = entry

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._plain(name) in self._known

    def __iter__(self) -> Iterator[T]:
        return iter(self._entries.values())

    def names(self) -> list[str]:
        """The main names as they are written, in the order of the table."""
        return list(self._entries)

    def spellings(self) -> list[str]:
        """Every name that `get` understands."""
        main_names = {self._plain(name) for name in self._entries}
        return [
            *self._entries,
            *(spelling for spelling in self._known if spelling not in main_names),
        ]

    def canonical(self, name: str) -> str:
        """The main name behind any spelling, as it is written; raises FfnbenchError for
        an unknown one.
        """
        if name not in self:
            raise FfnbenchError(
                f"unknown {self.kind} {name!r}",
                hint_for(name, self.spellings(), self.where),
            )
        return self._known[self._plain(name)]

    def get(self, name: str) -> T:
        """The entry behind any spelling; raises FfnbenchError with did-you-mean for an
        unknown one.
        """
        if name in self._entries:  # as it is written: nothing to normalise
            return self._entries[name]
        return self._entries[self.canonical(name)]

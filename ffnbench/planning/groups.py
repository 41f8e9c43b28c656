"""Lists in a request -> groups: each combination of values is one, with a reference and widths of its own. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.dtypes import DTYPES
from ffnbench.ffn.spec import read_positive
from ffnbench.plan import SWEPT
from ffnbench.planning.grammar import Variant
from ffnbench.planning.lists import several
from ffnbench.planning.workload import mode_of
from ffnbench.request import CompareRequest, spelling

READ: Mapping[str, Callable[[Any], int | str]] = {
    **{key: partial(read_positive, key) for key in ("d_model", "threads", "batch", "seq_len")},
    "dtype": lambda text: DTYPES.canonical(str(text)),
    "mode": lambda text: mode_of(text).value,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAsked:
    """One combination: the values that groups differ in, and the request with one value of each list."""

    values: Mapping[str, int | str]
    request: CompareRequest

    @contextmanager
    def told(self) -> Iterator[None]:
        """What is wrong inside is told with the group that it is wrong in."""
        try:
            yield
        except FfnbenchError as problem:
            if self.values and type(problem) is FfnbenchError:
                where = ", ".join(f"{key} {value}" for key, value in self.values.items())
                raise FfnbenchError(f"{problem.message} (in the group of {where})", problem.hint) from None
            raise


def groups_asked(request: CompareRequest) -> list[GroupAsked]:
    """Each combination of the values of the lists, the last of SWEPT changing first; one where there is no list."""
    given = {key: getattr(request, key) for key in SWEPT}
    lists = {key: several(key, value, READ[key]) for key, value in given.items() if value is not None}
    swept = [key for key, values in lists.items() if len(values) > 1]
    alone: dict[str, Any] = {key: values[0] for key, values in lists.items()}
    chosen = (dict(zip(swept, values, strict=True)) for values in product(*(lists[key] for key in swept)))
    return [GroupAsked(values=values, request=replace(request, **alone | values)) for values in chosen]


def refuse_own_values(groups: list[GroupAsked], variants: Iterable[Variant]) -> None:
    """Raise FfnbenchError for a variant with a value of its own of what groups differ in: it is the same in all."""
    for variant in variants:
        own = {**variant.workload_keys, **dict(variant.arguments)}
        for key in groups[0].values:
            if key in own:
                typed = ",".join(dict.fromkeys(str(group.values[key]) for group in groups))
                raise FfnbenchError(
                    f"{variant.text!r} has a {key} of its own, and {spelling(key)} {typed} makes a group of each",
                    f"leave @{key}={own[key]} out, or the list",
                )

"""Lists in a request -> groups: each combination of values is one, with a reference and widths of its own. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, Generic, TypeVar

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.dtypes import DTYPES
from ffnbench.ffn.spec import read_positive
from ffnbench.plan import SWEPT
from ffnbench.planning.lists import several
from ffnbench.planning.variant_text import Variant
from ffnbench.planning.workload import mode_of
from ffnbench.request import BlockRequest, CompareRequest, TimingRequest, spelling

R = TypeVar("R", CompareRequest, BlockRequest, TimingRequest)
READ: Mapping[str, Callable[[Any], int | str]] = {
    **{key: partial(read_positive, key) for key in ("d_model", "threads", "batch", "seq_len", "elements")},
    "dtype": lambda text: DTYPES.canonical(str(text)),
    "mode": lambda text: mode_of(text).value,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAsked(Generic[R]):
    """One combination: the values that groups differ in, and the request with one value of each list."""

    values: Mapping[str, int | str]
    request: R


def groups_asked(request: R, keys: Iterable[str] = SWEPT) -> list[GroupAsked[R]]:
    """Each combination of the values of the lists, the last key changing first; one where there is no list."""
    given = {key: getattr(request, key) for key in keys}
    lists = {key: several(key, value, READ[key]) for key, value in given.items() if value is not None}
    swept = [key for key, values in lists.items() if len(values) > 1]
    alone: dict[str, Any] = {key: values[0] for key, values in lists.items()}
    chosen = (dict(zip(swept, values, strict=True)) for values in product(*(lists[key] for key in swept)))
    return [GroupAsked(values=values, request=replace(request, **alone | values)) for values in chosen]


def refuse_own_values(groups: list[GroupAsked[CompareRequest]], variants: Iterable[Variant]) -> None:
    """Raise FfnbenchError for a variant with a value of its own of what groups differ in: it is the same in all."""
    for variant in variants:
        if own := sorted((variant.workload_keys.keys() | dict(variant.arguments).keys()) & groups[0].values.keys()):
            raise FfnbenchError(
                f"{variant.text!r} has a {own[0]} of its own, and {spelling(own[0])} makes a group of each of several",
                f"leave @{own[0]} out, or the list",
            )

"""The axes of a sweep and its cells: every flag and every key with several values is an axis, and each point of them is
a cell, with all variants. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from itertools import product
from math import prod
from typing import Any, Generic, TypeVar

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.names import choose
from ffnbench.common.units import read_number
from ffnbench.ffn.dtypes import DTYPES
from ffnbench.ffn.moe import Dispatch, Routing, Scores
from ffnbench.ffn.spec import Gate, Init, read_positive
from ffnbench.ffn.width_rules import RULES
from ffnbench.models.model import ModelSpec
from ffnbench.plan import SWEPT, Cache, CompileMode, MatmulPrecision, Point, Time, Value
from ffnbench.planning.fields import MOST_CELLS, cut, is_range, mode_of, several, too_many, written_out
from ffnbench.planning.variant_text import KEYS, Of, Variant, is_variant, keys_of, parse_scalar, parse_variant
from ffnbench.planning.workload import device_of
from ffnbench.request import DEFAULT_VARIANTS, EXAMPLES, AnyRequest, spelling

R = TypeVar("R", bound=AnyRequest)
Reader = Callable[[Any], Value]


def _of(kind: type[StrEnum], name: str) -> Reader:
    return lambda value: choose(kind, name, value)


# what may be a list, by field; a value as it stands in a point
READ: Mapping[str, Reader] = {
    **{key: partial(read_positive, key) for key in ("d_model", "d_ff", "threads", "batch", "seq_len", "elements")},
    **dict.fromkeys(("ratio", "dropout"), read_number),
    "dtype": lambda text: DTYPES.canonical(str(text)),
    "mode": mode_of,
    "device": lambda text: device_of(str(text)),
    "rule": lambda text: RULES.get(str(text)).name,
    **{
        key: _of(kind, key)
        for key, kind in {
            "time": Time, "cache": Cache, "init": Init, "matmul_precision": MatmulPrecision, "routing": Routing,
            "compile": CompileMode, "gate": Gate, "scores": Scores, "experts": Dispatch,
        }.items()
    },
}  # fmt: skip
OF_FLAGS = (*SWEPT, *(key for key in EXAMPLES if key not in (*SWEPT, "elements")))
SINGLE = {*keys_of(Of.PROCESS, Of.OWN_CODE), "backend"}  # no axis: backends are rows of one cell, by --backend
OF_KEYS = {key.name: key.pair.partition("=")[2] for key in KEYS} | EXAMPLES  # an example of their values
WORDS = ("true", "false", "yes", "no", "none")


@dataclass(frozen=True, slots=True)
class CellAsked(Generic[R]):
    """One point: a value of each axis, and the texts of those that are keys of variants."""

    point: Point
    keys: Mapping[str, str]
    whole: R

    @property
    def request(self) -> R:
        """The request with one value of each list."""
        flags: dict[str, Any] = {name: value for name, value in self.point if name not in self.keys}
        return replace(self.whole, **flags)


@dataclass(frozen=True, slots=True)
class Axes(Generic[R]):
    """The axes of a sweep, in their order, and of those that are keys of variants the text of each value."""

    request: R
    values: Mapping[str, tuple[Value, ...]]
    keys: Mapping[str, Mapping[Value, str]]

    @property
    def flags(self) -> Set[str]:
        """Those that are flags."""
        return self.values.keys() - self.keys.keys()

    def cells(self) -> Iterator[CellAsked[R]]:
        """Every point, the last axis changing first; one point where there is no axis."""
        for chosen in product(*self.values.values()):
            point = tuple(zip(self.values, chosen, strict=True))
            keys = {name: self.keys[name][value] for name, value in point if name in self.keys}
            yield CellAsked(point, keys, self.request)


@dataclass(frozen=True, slots=True)
class Listed:
    """Variants as they were typed, each as its text without the keys that have lists, and these keys in their order;
    `axes` are the texts of the values of each such key.
    """

    variants: tuple[tuple[str, tuple[str, ...]], ...]
    axes: Mapping[str, tuple[str, ...]]
    models: Mapping[str, ModelSpec]

    def texts(self, keys: Mapping[str, str], *, named: bool = False) -> list[str]:
        """The variants at one value of each key, as they would be typed; `named`: by the labels they have without."""
        return [
            f"{text}=" * (named and bool(own) and "=" not in text) + "@".join([text, *(f"{k}={keys[k]}" for k in own)])
            for text, own in self.variants
        ]

    def plain(self, identify: Callable[[Variant], Variant]) -> list[Variant]:
        """The variants without the keys that have lists; what has none is all that it is, and is identified."""
        parsed = (parse_variant(text, self.models) for text, _ in self.variants)
        return [variant if own else identify(variant) for variant, (_, own) in zip(parsed, self.variants, strict=True)]

    def at(
        self, keys: Mapping[str, str], plain: list[Variant], identify: Callable[[Variant], Variant]
    ) -> list[Variant]:
        """The variants at one value of each key, by the labels that they have without."""
        return [
            identify(replace(parse_variant(text, self.models), label=one.label, also=one.also)) if own else one
            for text, one, (_, own) in zip(self.texts(keys), plain, self.variants, strict=True)
        ]


def listed_variants(text: str, models: Mapping[str, ModelSpec] | None = None) -> Listed:
    """Cut a comma separated list of variants whose keys may have lists: a part that is no variant, but a value of the
    key before it, goes on with that. Raises FfnbenchError where two lists of one key differ.
    """
    axes: dict[str, tuple[str, ...]] = {}
    found = []
    for part in _parts(text, models or {}):
        head, *pairs = part.split("@")
        kept, own = [head], []
        for pair in pairs:
            name, _, value = pair.partition("=")
            name = name.strip().replace("-", "_")
            if name in SINGLE or not ("," in value or is_range(value)):
                kept.append(pair)
                continue
            texts = tuple(dict.fromkeys(written_out(f"@{name}=", value, OF_KEYS.get(name, "1..4096"))))
            if axes.setdefault(name, texts) != texts:
                told = f"two variants have different lists of {name}: an axis has one"
                raise FfnbenchError(told, f"give both the same @{name}={value}")
            own.append(name)
        found.append(("@".join(kept), tuple(own)))
    return Listed(tuple(found), axes, models or {})


def _parts(text: str, models: Mapping[str, ModelSpec]) -> list[str]:
    found: list[str] = []
    for part in cut("", text, DEFAULT_VARIANTS):
        key = found[-1].rpartition("@")[2].partition("=")[0].strip().replace("-", "_") if found else ""
        head = part.partition("@")[0].strip()
        if found and "@" in found[-1] and key not in SINGLE and head not in models and _goes_on(key, head):
            found[-1] += f",{part}"
        else:
            found.append(part)
    return found


def _goes_on(key: str, text: str) -> bool:
    """Whether a part is one more value of a key. No name of a variant begins as a number."""
    if text.lstrip("-.")[:1].isdigit():
        return ":" not in text and "=" not in text
    if is_variant(text):
        return False
    try:
        return text.lower() in WORDS or isinstance(READ[key](text), str)
    except (FfnbenchError, KeyError):
        return False


def axes_of(request: R, flags: Iterable[str] = OF_FLAGS, keys: Mapping[str, tuple[str, ...]] | None = None) -> Axes[R]:
    """The axes of a request, beside those of keys. Raises FfnbenchError for more cells than a sweep has, before the
    first is made.
    """
    given = {name: value for name in flags if (value := getattr(request, name, None)) is not None}
    found: dict[str, tuple[Value, ...]] = {name: several(name, value, READ[name]) for name, value in given.items()}
    alone: dict[str, Any] = {name: found.pop(name)[0] for name in given if len(found[name]) == 1}
    texts = {name: {_value(name, text): text for text in of} for name, of in (keys or {}).items()}
    for name in texts.keys() & found.keys():
        raise FfnbenchError(
            f"{spelling(name)} has a list, and so has @{name}: they are one axis", f"leave the list of @{name} out"
        )
    found |= {name: tuple(read) for name, read in texts.items()}
    # in the order in which they were typed, where that is known, else in that of OF_FLAGS, and keys behind
    typed = request.typed
    behind = typed.index("variants") if "variants" in typed else len(typed)
    order = sorted(found, key=lambda name: typed.index(name) if name in typed else behind)
    if (count := prod(map(len, found.values()))) > MOST_CELLS:
        raise too_many(count, " x ".join(f"{len(found[name]):,} of {name}" for name in order))
    return Axes(replace(request, **alone), {name: found[name] for name in order}, texts)


def _value(name: str, text: str) -> Value:
    """A value of a key as it stands in a point."""
    found = READ.get(name, parse_scalar)(text)
    return "none" if found is None else found

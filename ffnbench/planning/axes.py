"""The axes of a sweep and its cells: every flag and every key with several values is an
axis, and each combination of their values is a cell, with all variants. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ffnbench.choices import Cache, Init, MatmulPrecision, Routing, Time
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.names import choose
from ffnbench.common.units import read_number
from ffnbench.ffn.spec import DTYPES, Dispatch, Gate, Scores, read_positive
from ffnbench.ffn.width_rules import WIDTH_RULES
from ffnbench.plan import SWEPT, Point, Value
from ffnbench.planning.fields import (
    MOST_CELLS,
    cut,
    is_range,
    mode_of,
    several,
    too_many,
    written_out,
)
from ffnbench.planning.keys import KEYS, Of, names_of_keys, parse_scalar
from ffnbench.planning.variant_text import Variant, is_variant, parse_variant
from ffnbench.planning.workload import compile_mode, device_of
from ffnbench.request import DEFAULT_VARIANTS, EXAMPLES, AnyRequest, spelling

if TYPE_CHECKING:
    from ffnbench.models.model import ModelSpec

R = TypeVar("R", bound=AnyRequest)

WHOLE_NUMBER_AXES = ("d_model", "d_ff", "threads", "batch", "seq_len", "elements")
DECIMAL_AXES = ("ratio", "dropout")
CHOICES: Mapping[str, type[StrEnum]] = {
    "time": Time,
    "cache": Cache,
    "init": Init,
    "matmul_precision": MatmulPrecision,
    "routing": Routing,
    "gate": Gate,
    "scores": Scores,
    "experts": Dispatch,
}
# the axes whose values are words that are known here
AXES_OF_WORDS = {*CHOICES, "compile", "dtype", "mode", "device", "rule"}
FLAG_AXES = (*SWEPT, *(key for key in EXAMPLES if key not in (*SWEPT, "elements")))
# the keys that are no axes; lists of --backend and --weights make rows in one cell
NO_AXES = {*names_of_keys(Of.PROCESS, Of.OWN_CODE), "backend", "weights"}
# an example of a value, or of a list, for each key
EXAMPLES_OF_KEYS = {key.name: key.pair.partition("=")[2] for key in KEYS} | EXAMPLES
BOOLEAN_WORDS = ("true", "false", "yes", "no", "on", "off", "none")


def read_value(name: str, value: Any) -> Value:
    """The value of a flag or a key as a point has it; raises FfnbenchError for a value
    that the flag or key can't have.
    """
    if name in WHOLE_NUMBER_AXES:
        return read_positive(name, value)
    if name in DECIMAL_AXES:
        return read_number(value)
    if name in CHOICES:
        return str(choose(CHOICES[name], name, value))
    if name == "dtype":
        return DTYPES.canonical(str(value))
    if name == "mode":
        return str(mode_of(value))
    if name == "device":
        return device_of(str(value))
    if name == "compile":
        return compile_mode(value)
    if name == "rule":
        return WIDTH_RULES.get(str(value)).name
    scalar = parse_scalar(str(value))
    return "none" if scalar is None else scalar


@dataclass(frozen=True, slots=True)
class CellRequest(Generic[R]):
    """One cell of a sweep: its point, the request with one value of each flag, and one
    value of each key with a list, as a text.
    """

    point: Point
    request: R
    keys: Mapping[str, str]


def requests_of_cells(
    request: R,
    flags: Iterable[str] = FLAG_AXES,
    keys: Mapping[str, tuple[str, ...]] | None = None,
) -> list[CellRequest[R]]:
    """The cells of a request and of the lists of `keys`; one cell where there is no
    list. The axes of flags come before those of keys, and the last axis changes first.

    Raises FfnbenchError for more cells than a sweep may have, before the first is made.
    """
    single: dict[str, Any] = {}  # the flags that are no axes
    axes: dict[str, tuple[Value, ...]] = {}
    for name in flags:
        value = getattr(request, name, None)
        if value is None:
            continue
        values = several(name, value, partial(read_value, name))
        if len(values) == 1:
            single[name] = values[0]
        else:
            axes[name] = values
    texts: dict[str, dict[Value, str]] = {}  # of the values of each key, as typed
    for name, typed in (keys or {}).items():
        if name in axes:
            raise FfnbenchError(
                f"{spelling(name)} has a list, and so has @{name}: an axis has one list",
                f"leave the list of @{name} out",
            )
        texts[name] = {read_value(name, text): text for text in typed}
    for name, values_of_key in texts.items():
        axes[name] = tuple(values_of_key)
    count = prod(len(values) for values in axes.values())
    if count > MOST_CELLS:
        sizes = [f"{len(axes[name]):,} of {name}" for name in axes]
        raise too_many(count, " x ".join(sizes))
    cells = []
    for values in product(*axes.values()):
        point = tuple(zip(axes, values, strict=True))
        of_flags = dict(single)
        of_keys = {}
        for name, value in point:
            if name in texts:
                of_keys[name] = texts[name][value]
            else:
                of_flags[name] = value
        cells.append(CellRequest(point, replace(request, **of_flags), of_keys))
    return cells


def swept_flags(cells: list[CellRequest[R]]) -> set[str]:
    """The names of the axes that are flags."""
    return {name for name, _ in cells[0].point} - cells[0].keys.keys()


@dataclass(frozen=True, slots=True)
class ListedVariants:
    """Variants whose keys may have lists. Each of `variants` is the text without the
    keys that have lists, and the names of these keys; `axes` are the values of each
    such key, as texts. `models` is as for `parse_variant`.
    """

    variants: tuple[tuple[str, tuple[str, ...]], ...]
    axes: Mapping[str, tuple[str, ...]]
    models: Mapping[str, ModelSpec]

    @property
    def first(self) -> dict[str, str]:
        """The first value of each key with a list."""
        return {name: texts[0] for name, texts in self.axes.items()}

    def texts(self, keys: Mapping[str, str], *, named: bool = False) -> list[str]:
        """The texts of the variants with one value of each key. With `named`, a variant
        is labelled with its text without these keys.
        """
        texts = []
        for text, own in self.variants:
            pairs = [f"{key}={keys[key]}" for key in own]
            with_keys = "@".join([text, *pairs])
            if named and own and "=" not in text:
                with_keys = f"{text}={with_keys}"
            texts.append(with_keys)
        return texts

    def at(self, keys: Mapping[str, str]) -> list[Variant]:
        """The variants with one value of each key, labelled as without these keys."""
        variants = []
        for with_keys, (text, own) in zip(self.texts(keys), self.variants, strict=True):
            variant = parse_variant(with_keys, self.models)
            if own:
                plain = parse_variant(text, self.models)
                variant = replace(variant, label=plain.label, also=plain.also)
            variants.append(variant)
        return variants


def listed_variants(
    text: str, models: Mapping[str, ModelSpec] | None = None
) -> ListedVariants:
    """Read a comma separated list of variants whose keys may have lists. Raises
    FfnbenchError where two lists of one key differ.
    """
    axes: dict[str, tuple[str, ...]] = {}
    variants = []
    for part in _parts(text, models or {}):
        head, *pairs = part.split("@")
        plain, own = [head], []
        for pair in pairs:
            name, value = _key_of(pair)
            if name in NO_AXES or not ("," in value or is_range(value)):
                plain.append(pair)
                continue
            example = EXAMPLES_OF_KEYS.get(name, "1..4096")
            texts = tuple(dict.fromkeys(written_out(f"@{name}=", value, example)))
            if axes.setdefault(name, texts) != texts:
                raise FfnbenchError(
                    f"two variants have different lists of {name}, but an axis has only one",
                    f"give both the same @{name}={value}",
                )
            own.append(name)
        variants.append(("@".join(plain), tuple(own)))
    return ListedVariants(tuple(variants), axes, models or {})


def _key_of(pair: str) -> tuple[str, str]:
    """The name of a key and the text of its value, of `KEY=VALUE`."""
    name, _, value = pair.partition("=")
    return name.strip().replace("-", "_"), value


def _parts(text: str, models: Mapping[str, ModelSpec]) -> list[str]:
    """The texts of the variants of a list. A comma divides two variants, or two values
    of a key: a part that is a value of the key before it belongs to that.
    """
    variants: list[str] = []
    for part in cut("", text, DEFAULT_VARIANTS):
        head = part.partition("@")[0].strip()
        key = _last_key(variants)
        if key and head not in models and _is_value_of(key, head):
            variants[-1] += f",{part}"
        else:
            variants.append(part)
    return variants


def _last_key(variants: list[str]) -> str:
    """The name of the last key of the last variant; empty where that has none."""
    if not variants:
        return ""
    before, _, pair = variants[-1].rpartition("@")
    if not before:
        return ""
    return _key_of(pair)[0]


def _is_value_of(key: str, text: str) -> bool:
    """Whether a text is one more value of a key, and no variant."""
    if key in NO_AXES:
        return False
    if text.lstrip("-.")[:1].isdigit():  # no name of a variant begins like a number
        return ":" not in text and "=" not in text
    if is_variant(text):
        return False
    if text.lower() in BOOLEAN_WORDS:
        return True
    if key not in AXES_OF_WORDS:
        return False
    try:
        read_value(key, text)
    except FfnbenchError:
        return False
    return True

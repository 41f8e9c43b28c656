"""Reads what newcomers type as it was meant: a list with spaces, a unit apart from its
number, a dash too few, the name that another tool has for a flag. And tells a shell the
words that an argument or a flag takes, which it offers at TAB.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from ffnbench.common.units import TIME_SUFFIXES
from ffnbench.request import EXAMPLES, OTHER_NAMES, spelling

NUMBER_PATTERN = re.compile(r"\d[\w./]*")
NUMBER_METAVAR = "INT"  # what stands for a number in the help
# other names of flags and short forms, with the flag that is meant
MEANT = {spelling(name): spelling(ours) for name, ours in OTHER_NAMES.items()} | {
    "--bf16": "--dtype=bfloat16",
    "--csv": "--format=csv",
    "--json": "--format=json",
    "--train": "--mode=train",
}


def as_meant(words: Sequence[str], params: Sequence[Any]) -> list[str]:
    """The words behind a command, as they are spelt in its help.

    `params` are Typer's parameters of the command. A word that is not understood stays
    as it is.
    """
    flags = {
        name: param
        for param in params
        if param.param_type_name == "option"
        for name in param.opts
    }
    arguments = {
        spelling(param.name): param
        for param in params
        if param.param_type_name == "argument"
    }
    meant: list[str] = []
    # arguments that were typed by their names: they belong behind the others
    named_arguments: list[str] = []
    places: dict[str, int] = {}  # where in `meant` the value of a list stands
    last_flag: Any = None  # the flag whose value is the last of `meant`
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return [*meant, *named_arguments, word, *rest]
        if word == "vs":  # as in `relu vs gelu`
            continue
        name, equals, value = word.partition("=")
        other = MEANT.get(name, "")
        if name not in flags and other.partition("=")[0] in flags:
            rest = [other + equals + value, *rest]
            continue
        name = _spelt(name, value, flags.keys() | arguments.keys())
        if name in arguments and (equals or rest):
            if not equals:
                value = rest.pop(0)
            takes_several = arguments[name].nargs == -1
            (meant if takes_several else named_arguments).append(value)
            last_flag = None
        elif name in flags and flags[name].is_flag:
            meant.append(name + equals + value)
            last_flag = None
        elif name in flags:
            if not equals and (not rest or _is_flag(rest[0], flags)):
                return [*meant, name]  # Typer says that its value is missing
            if not equals:
                value = rest.pop(0)
            last_flag = None
            if name in places:  # a list goes on where its flag is repeated
                meant[places[name]] += f",{value}"
                continue
            meant += [name, value]
            last_flag = flags[name]
            if _takes_list(last_flag):
                places[name] = len(meant) - 1
        elif last_flag is not None and _goes_on(last_flag, word):
            comma = ""
            if last_flag.metavar == NUMBER_METAVAR or _takes_list(last_flag):
                comma = ","
            meant[-1] = f"{meant[-1].rstrip(',')}{comma}{word.lstrip(',')}"
        else:
            meant.append(name if name == "--help" else word)
            last_flag = None
    return [*meant, *named_arguments]


def _is_flag(word: str, flags: Collection[str]) -> bool:
    return word.startswith("--") and word.partition("=")[0] in flags


def _spelt(name: str, value: str, names: Collection[str]) -> str:
    """One of these names as it is spelt in the help, for one typed otherwise:
    `-threads`, `--d_model`, `--variant`, and the `d_model` of `d_model=64`. The name
    itself where it is none of them.
    """
    plain = "--" + name.lstrip("-").replace("_", "-")
    if (
        name in names
        or len(plain) <= 4
        or not (name.startswith("-") or NUMBER_PATTERN.fullmatch(value))
    ):
        return name  # `label=variant` too: no number stands behind its =
    for near in (plain, plain + "s", plain.removesuffix("s")):
        if near in names or near == "--help":
            return near
    return name


def _takes_list(param: Any) -> bool:
    """Whether a flag may have several values: an axis of a sweep, or one that makes
    rows.
    """
    return (
        param.metavar == "LIST"
        or param.name in EXAMPLES
        or param.name in ("backend", "weights")
    )


def _goes_on(param: Any, word: str) -> bool:
    """Whether a word belongs to the value of the flag before it: a unit, or one more
    value of its list.
    """
    if param.metavar == "TIME":
        return word in TIME_SUFFIXES
    if param.metavar == "PCT":
        return word == "%"
    words = []
    if _takes_list(param) and param.metavar != NUMBER_METAVAR:
        words = words_of(param.name)
    parts = [part for part in word.split(",") if part]
    numbers = param.metavar == NUMBER_METAVAR or bool(words)
    return numbers and all(
        NUMBER_PATTERN.fullmatch(part) or part in words for part in parts
    )


def words_for(name: str) -> Callable[[str], list[str]]:
    """A function that completes the value of a flag: it gives the words that may stand
    there, behind those of its list that are typed already.
    """

    def complete(incomplete: str) -> list[str]:
        before, comma, _ = incomplete.rpartition(",")
        typed = before.split(",")
        return [
            f"{before}{comma}{word}" for word in words_of(name) if word not in typed
        ]

    return complete


def words_of(name: str) -> list[str]:
    """The words that a flag takes; none where it takes no fixed ones."""
    if name == "variants":
        from ffnbench.ffn.spec import GATED

        return [*words_of("activations"), *GATED.names(), *words_of("preset")]
    if name == "activations":
        from ffnbench.ffn.activations import ACTIVATIONS

        return ACTIVATIONS.names()
    if name == "preset":
        from ffnbench.models.presets import PRESETS

        return PRESETS.names()
    if name == "what":
        from ffnbench.report.listing import LISTINGS

        return list(LISTINGS)
    if name == "hardware":
        from ffnbench.planning.hardware import published

        return published().names()
    if name == "tolerance":
        from ffnbench.gate.decision import CHECKED_METRICS

        return [f"{metric}=" for metric in CHECKED_METRICS]
    return [*_fixed_words(name)]


def _fixed_words(name: str) -> Iterable[str]:
    from ffnbench.choices import (
        MODE_ALIASES,
        Backend,
        Cache,
        Init,
        Match,
        MatmulPrecision,
        Mode,
        Routing,
        Time,
        Weights,
    )
    from ffnbench.ffn.spec import DTYPES
    from ffnbench.ffn.width_rules import WIDTH_RULES
    from ffnbench.metrics import METRIC_GROUPS
    from ffnbench.planning.workload import ALL_BACKENDS, DEVICES

    words: dict[str, Iterable[str]] = {
        "match": Match,
        "rule": WIDTH_RULES.names(),
        "init": Init,
        "dtype": DTYPES.spellings(),
        "mode": (*Mode, *MODE_ALIASES),
        "device": DEVICES,
        "backend": (*Backend, ALL_BACKENDS),
        "weights": Weights,
        "routing": Routing,
        "time": Time,
        "cache": Cache,
        "matmul_precision": MatmulPrecision,
        "metrics": METRIC_GROUPS,
        "on_unclear": ("pass", "fail"),
        "format": ("table", "markdown", "latex", "csv", "json", "github"),
    }
    return words.get(name, ())

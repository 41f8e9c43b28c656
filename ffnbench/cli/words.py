"""What newcomers type, as it was meant: a list with spaces, a unit apart, a dash too
few, another's name of a flag; and what a shell offers at TAB, the words that an
argument or a flag takes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from ffnbench.common.units import TIME_SUFFIXES
from ffnbench.features import completer_of, imported_function
from ffnbench.request import EXAMPLES, OTHER_NAMES, spelling

NUMBER_PATTERN = re.compile(r"\d[\w./]*")
NUMBER_METAVAR = "INT"  # what stands for a number in the help
MEANT = {spelling(name): spelling(ours) for name, ours in OTHER_NAMES.items()} | {
    "--bf16": "--dtype=bfloat16",
    "--csv": "--format=csv",
    "--json": "--format=json",
    "--train": "--mode=train",
}


def as_meant(words: Sequence[str], params: Sequence[Any]) -> list[str]:
    """The words behind a command with these parameters of Typer's; what is not
    understood stays as it is.
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
    # an argument that was typed by its name: its place is behind the others
    placed: list[str] = []
    places: dict[str, int] = {}  # where in `meant` the value of a list stands
    last: Any = None  # the flag whose value the last word is
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return [*meant, *placed, word, *rest]
        if word == "vs":
            continue
        name, equals, value = word.partition("=")
        other = MEANT.get(name, "")
        if name not in flags and other.partition("=")[0] in flags:
            rest = [other + equals + value, *rest]
            continue
        name = _spelt(name, value, flags.keys() | arguments.keys())
        if name in arguments and (equals or rest):
            several = arguments[name].nargs == -1
            (meant if several else placed).append(value if equals else rest.pop(0))
        elif name not in flags:
            if last is not None and _goes_on(last, word):
                comma = ""
                if last.metavar == NUMBER_METAVAR or _takes_list(last):
                    comma = ","
                meant[-1] = f"{meant[-1].rstrip(',')}{comma}{word.lstrip(',')}"
                continue
            meant.append(name if name == "--help" else word)
        elif flags[name].is_flag:
            meant.append(name + equals + value)
        elif not equals and (not rest or _is_flag(rest[0], flags)):
            return [*meant, name]  # it has no value: what is behind it is another flag
        else:
            value = value if equals else rest.pop(0)
            if name in places:  # a list goes on where its flag is repeated
                meant[places[name]] += f",{value}"
            else:
                meant += [name, value]
                last = flags[name]
                if _takes_list(last):
                    places[name] = len(meant) - 1
                continue
        last = None
    return [*meant, *placed]


def _is_flag(word: str, flags: Collection[str]) -> bool:
    return word.startswith("--") and word.partition("=")[0] in flags


def _spelt(name: str, value: str, names: Collection[str]) -> str:
    """A name as it is spelt in the help, for one typed otherwise: `-threads`,
    `--d_model`, `--variant`, and the `d_model` of `d_model=64`.
    """
    plain = "--" + name.lstrip("-").replace("_", "-")
    if (
        name in names
        or len(plain) <= 4
        or not (name.startswith("-") or NUMBER_PATTERN.fullmatch(value))
    ):
        return name  # of `label=variant` too, which has no number behind it
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
    """Whether a word belongs to the value before it: a unit, or one more of a list."""
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
    """What offers the words of a flag, behind those of its list that are typed
    already.
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
        from ffnbench.report.listing import topics

        return topics()
    if name == "tolerance":
        return [
            f"{metric}="
            for metric in imported_function("gate.decision:CHECKED_METRICS")
        ]
    of_feature = completer_of(name)
    return [*(of_feature() if of_feature else _fixed_words(name))]


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

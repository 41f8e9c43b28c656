"""The words of a command line: arguments that are typed by their names, and the words
that an argument or a flag takes, which a shell offers at TAB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ffnbench.request import spelling


def by_place(words: Sequence[str], params: Sequence[Any]) -> list[str]:
    """The words with each argument that is typed by its name at its place:
    `--variants relu,gelu` is `relu,gelu`. An argument that takes one value stands
    behind the others.
    """
    arguments = {
        spelling(param.name): param
        for param in params
        if param.param_type_name == "argument"
    }
    placed: list[str] = []
    last: list[str] = []
    rest = list(words)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        argument = arguments.get(name)
        if argument is None or not (equals or rest):
            placed.append(name + equals + value)
            continue
        if not equals:
            value = rest.pop(0)
        (placed if argument.nargs == -1 else last).append(value)
    return placed + last


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

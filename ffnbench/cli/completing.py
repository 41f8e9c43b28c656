"""What a shell offers at TAB: names of variants, their keys and values, presets, dtypes, modes, backends.

A completer takes the text of a value so far, and gives whole values. bash breaks words at `@ = :`, and wants only what
stands from the last `@` on, or behind the last `=` or `:`: `prepare_bash` puts the value together again, and what
stands before is left out of the answers.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Mapping

from ffnbench.errors import FfnbenchError

Completer = Callable[[str], list[str]]
Names = Callable[[], Iterable[str]]
BREAKS = frozenset("@=:")  # of COMP_WORDBREAKS: bash makes words of their own of these
AT = "@"  # it belongs to the word that bash completes, and the other two do not
_OF_BASH = {"prefix": ""}


def one(names: Names) -> Completer:
    """One name."""

    def complete(incomplete: str) -> list[str]:
        return _offered(incomplete, lambda _: names())

    return complete


def several(names: Names) -> Completer:
    """A comma separated list of names, those that stand there already left out."""

    def found(text: str) -> list[str]:
        before, comma, _ = text.rpartition(",")
        return [f"{before}{comma}{name}" for name in names() if name not in before.split(",")]

    return lambda incomplete: _offered(incomplete, found)


def variants(incomplete: str) -> list[str]:
    """A list of variants: names, after `@` keys, and after `=` the values of keys that have names."""
    return _offered(incomplete, _variants)


def _offered(incomplete: str, found: Callable[[str], Iterable[str]]) -> list[str]:
    prefix = _OF_BASH["prefix"]
    text = prefix + incomplete
    return [value.removeprefix(prefix) for value in found(text) if value.startswith(text)]


def _variants(text: str) -> list[str]:
    before, comma, last = text.rpartition(",")
    head, at, key = last.rpartition("@")
    if not at:
        label, equals, _ = last.rpartition("=")
        return [f"{before}{comma}{label}{equals}{name}" for name in names_of_variants()]
    name, equals, _ = key.partition("=")
    start = f"{before}{comma}{head}@"
    if equals:
        return [f"{start}{name}={value}" for value in VALUES[name]()] if name in VALUES else []
    taken = {pair.partition("=")[0] for pair in head.split("@")[1:]}
    near = [known for known in keys() if known not in taken and known.startswith(name)]
    if len(near) == 1 and near[0] in VALUES:  # a shell sets a blank behind the one word that is left
        return [f"{start}{near[0]}={value}" for value in VALUES[near[0]]()]
    return [f"{start}{known}=" for known in near]


def names_of_variants() -> list[str]:
    """Activations, gated forms, published models."""
    from ffnbench.ffn.variants import GATED

    return [*activations(), *GATED.names(), *presets()]


def activations() -> list[str]:
    """Names of activations."""
    from ffnbench.activations.table import ACTIVATIONS

    return ACTIVATIONS.names()


def presets() -> list[str]:
    """Names of published models."""
    from ffnbench.models.presets import PRESETS

    return PRESETS.names()


def keys() -> list[str]:
    """Keys of a variant; not the one that only tests of the measuring use."""
    from ffnbench.planning.grammar import ARM_KEYS, SPEC_KEYS, WORKLOAD_KEYS

    return [key for key in (*SPEC_KEYS, *WORKLOAD_KEYS, *ARM_KEYS) if key != "slowdown"]


def dtypes() -> list[str]:
    """Names of dtypes."""
    from ffnbench.ffn.dtypes import DTYPES

    return DTYPES.names()


def rules() -> list[str]:
    """Names of rules for widths."""
    from ffnbench.ffn.width_rules import RULES

    return RULES.names()


def _of_plan(enum: str) -> Names:
    """The values of an enum of plan.py."""

    def names() -> list[str]:
        from ffnbench import plan

        return plan.values_of(getattr(plan, enum))

    return names


def _of(*names: str) -> Names:
    return lambda: names


def _backends() -> list[str]:
    from ffnbench.planning.grammar import ALL

    return [*_of_plan("Backend")(), ALL]


def _devices() -> Iterable[str]:
    from ffnbench.planning.workload import DEVICES

    return DEVICES


def _gates() -> list[str]:
    from ffnbench.ffn.spec import Gate

    return [gate.value for gate in Gate]


def _routings() -> list[str]:
    from ffnbench.ffn.moe import Routing

    return [routing.value for routing in Routing]


def _metrics() -> Iterable[str]:
    from ffnbench.metrics import METRIC_GROUPS

    return METRIC_GROUPS


def _listings() -> Iterable[str]:
    from ffnbench.report.tables.listing import LISTINGS

    return LISTINGS


def _tolerances() -> list[str]:
    from ffnbench.gate.regression import CHECKED

    return [f"{metric}=" for metric in CHECKED]


def _exports() -> Iterable[str]:
    from ffnbench.report.files.exports import EXPORTS

    return EXPORTS


def _formats() -> list[str]:
    from ffnbench.report.formats import FORMATS
    from ffnbench.report.tables.findings import CHECK_FORMATS

    return list(dict.fromkeys((*FORMATS, *CHECK_FORMATS)))


_DEVICES, _SWITCH, _INITS = _devices, _of("true", "false"), _of("torch", "he_xavier", "normal")
VALUES: Mapping[str, Names] = {  # of the keys of a variant
    "dtype": dtypes, "mode": _of_plan("Mode"), "backend": _of_plan("Backend"), "compile": _of_plan("CompileMode"),
    "device": _DEVICES, "bias": _SWITCH, "freeze": _SWITCH, "gate": _gates, "rule": rules, "routing": _routings,
    "init": _INITS, "normalised": _SWITCH, "shared_gate": _SWITCH, "router_bias": _SWITCH, "time": _of_plan("Time"),
    "cache": _of_plan("Cache"), "matmul_precision": _of_plan("MatmulPrecision"), "reduced_reductions": _SWITCH,
}  # fmt: skip
COMPLETERS: Mapping[str, Completer] = {  # of flags and arguments, by field
    "variants": variants, "variant": variants, "preset": one(presets), "config": one(presets), "model": one(presets),
    "rule": one(rules), "match": one(_of("params", "flops", "none")), "init": one(_INITS), "dtype": several(dtypes),
    "mode": several(_of_plan("Mode")), "device": one(_DEVICES), "backend": several(_backends),
    "routing": one(_routings), "metrics": several(_metrics), "activations": several(activations),
    "what": one(_listings), "tolerance": one(_tolerances), "export": one(_exports),
    "on_unclear": one(_of("pass", "fail")), "format": one(_formats), "time": one(_of_plan("Time")),
    "cache": one(_of_plan("Cache")), "matmul_precision": one(_of_plan("MatmulPrecision")),
}  # fmt: skip


def prepare_bash(environment: dict[str, str] | os._Environ[str] = os.environ) -> None:
    """Put the words together again that bash has broken at `@ = :`, in the variables that Typer reads; raises
    FfnbenchError where they are none of bash's.
    """
    told, number = environment.get("COMP_WORDS", ""), environment.get("COMP_CWORD", "")
    if not (told.strip() and number.isdecimal()):
        raise FfnbenchError("COMP_WORDS and COMP_CWORD are not what bash says", "it sets them while it completes")
    words, at = _split(told), int(number)
    words = [*words, *[""] * (at + 1 - len(words))][: at + 1]
    whole: list[str] = []
    for place, word in enumerate(words):
        joins = place > 1 and (_breaks(word) or _breaks(words[place - 1]))
        whole = [*whole[:-1], whole[-1] + word] if joins else [*whole, word]
    last, before = words[-1], words[-2] if at else ""
    current = AT if last == AT else "" if _breaks(last) else f"{AT}{last}" if before == AT else last
    value, args = whole[-1], whole[:-1]
    flag, equals, rest = value.partition("=")
    if flag.startswith("--") and equals:
        args, value = [*args, flag], rest
    _OF_BASH["prefix"] = value.removesuffix(current)
    environment["COMP_WORDS"] = "\n".join(map(shlex.quote, [*args, current]))
    environment["COMP_CWORD"] = str(len(args))


def _breaks(word: str) -> bool:
    return bool(word) and set(word) <= BREAKS


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quote that is not closed yet
        return text.split()

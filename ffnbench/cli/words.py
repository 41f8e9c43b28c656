"""What newcomers type, as it was meant: a list with spaces, a unit apart, a dash too few, another's name of a flag;
and what a shell offers at TAB, the words that an argument or a flag takes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ffnbench.common.units import SECONDS
from ffnbench.features import completer_of, function_of
from ffnbench.request import EXAMPLES

NUMBER = re.compile(r"\d[\w./]*")
MEANT = {  # what others call a flag, and a flag that says its value
    "--hidden-size": "--d-model", "--intermediate-size": "--d-ff", "--dff": "--d-ff", "--seq": "--seq-len",
    "--batch-size": "--batch", "--config": "--preset", "--model": "--preset", "--wide": "--verbose",
    "--bf16": "--dtype=bfloat16", "--csv": "--format=csv", "--train": "--mode=train",
}  # fmt: skip
NUMBERS = ("INT", "X", "P")  # what stands for numbers in the help
SWITCHES = {"true": True, "yes": True, "false": False, "no": False}


def as_meant(words: Sequence[str], params: Sequence[Any]) -> list[str]:
    """The words behind a command with these parameters of Typer's; what is not understood stays as it is."""
    flags = {name: param for param in params if param.param_type_name == "option" for name in param.opts}
    found: list[str] = []
    places: dict[str, int] = {}  # where in `found` the value of a list stands
    last: Any = None  # the flag whose value the last word is
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return [*found, word, *rest]
        name, equals, value = word.partition("=")
        if word == "vs":
            continue
        if name not in flags and name in MEANT and MEANT[name].partition("=")[0] in flags:
            rest = [MEANT[name] + equals + value, *rest]
            continue
        # `-threads`, `--d_model`, `--variant` and the `d_model` of `d_model=64`; a label has no number behind it
        plain = "--" + name.lstrip("-").replace("_", "-")
        if name not in flags and len(plain) > 4 and (name.startswith("-") or NUMBER.fullmatch(value)):
            near = [one for one in (plain, plain + "s", plain.removesuffix("s")) if one in flags or one == "--help"]
            name = near[0] if near else name
        if name not in flags:
            if last is not None and _goes_on(last, word):
                comma = "," if last.metavar in NUMBERS or _takes_list(last) else ""
                found[-1] = f"{found[-1].rstrip(',')}{comma}{word.lstrip(',')}"
            else:
                found.append(name if name == "--help" else word)
                last = None
        elif flags[name].is_flag:
            last, behind = None, rest[0] if rest else ""
            switch = value if equals else behind
            if switch in SWITCHES:
                found += [name] if SWITCHES[switch] else flags[name].secondary_opts[:1]
                rest = rest if equals else rest[1:]
            else:
                found.append(name + equals + value)
        elif not equals and (not rest or (rest[0].startswith("--") and rest[0].partition("=")[0] in flags)):
            return [*found, name]  # it has no value: what is behind it is another flag
        elif name in places:  # a list goes on where its flag is repeated
            found[places[name]] += f",{value if equals else rest.pop(0)}"
            last = None
        else:
            last = flags[name]
            found += [name, value if equals else rest.pop(0)]
            if _takes_list(last):
                places[name] = len(found) - 1
    return found


def _takes_list(param: Any) -> bool:
    return param.metavar == "LIST" or param.name in EXAMPLES or param.name == "backend"


def _goes_on(param: Any, word: str) -> bool:
    if param.metavar in ("TIME", "PCT", "PCT%"):
        return word in (SECONDS if param.metavar == "TIME" else "%")
    known = words_of(param.name) if _takes_list(param) and param.metavar != "INT" else []
    parts = [part for part in word.split(",") if part]
    numbers = param.metavar in NUMBERS or bool(known)
    return numbers and all(NUMBER.fullmatch(part) or part in known for part in parts)


def words_for(name: str) -> Callable[[str], list[str]]:
    """What offers the words of a flag, behind those of its list that are typed already."""

    def complete(incomplete: str) -> list[str]:
        before, comma, _ = incomplete.rpartition(",")
        typed = before.split(",")
        return [f"{before}{comma}{word}" for word in words_of(name) if word not in typed]

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
        return [f"{metric}=" for metric in function_of("gate.decision:CHECKED")]
    of_feature = completer_of(name)
    return [*(of_feature() if of_feature else _fixed_words(name))]


def _fixed_words(name: str) -> Iterable[str]:
    from ffnbench.choices import MODE_ALIASES, Backend, Cache, Init, Match, MatmulPrecision, Mode, Routing, Time
    from ffnbench.ffn.spec import DTYPES
    from ffnbench.ffn.width_rules import RULES
    from ffnbench.metrics import METRIC_GROUPS
    from ffnbench.planning.workload import ALL, DEVICES

    words: dict[str, Iterable[str]] = {
        "match": Match,
        "rule": RULES.names(),
        "init": Init,
        "dtype": DTYPES.spellings(),
        "mode": (*Mode, *MODE_ALIASES),
        "device": DEVICES,
        "backend": (*Backend, ALL),
        "routing": Routing,
        "time": Time,
        "cache": Cache,
        "matmul_precision": MatmulPrecision,
        "metrics": METRIC_GROUPS,
        "on_unclear": ("pass", "fail"),
        "format": ("table", "markdown", "latex", "csv", "json", "github"),
    }
    return words.get(name, ())

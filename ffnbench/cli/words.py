"""What newcomers type, as it was meant: a list with spaces, a unit apart, a dash too few, another's name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ffnbench.cli.completing import words_of
from ffnbench.request import EXAMPLES
from ffnbench.units import SECONDS

NUMBER = re.compile(r"\d[\w./]*")
MEANT = {  # what others call a flag, a flag that says its value, and words between two names
    "--hidden-size": "--d-model", "--intermediate-size": "--d-ff", "--dff": "--d-ff", "--seq": "--seq-len",
    "--batch-size": "--batch", "--config": "--preset", "--model": "--preset", "--wide": "--verbose",
    "--fp16": "--dtype=float16", "--bf16": "--dtype=bfloat16", "--cpu": "--device=cpu", "--gpu": "--device=cuda",
    "--cuda": "--device=cuda", "--csv": "--format=csv", "--train": "--mode=train", "vs": "", "vs.": "", "versus": "",
}  # fmt: skip
SWITCHES = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def as_meant(words: Sequence[str], params: Sequence[Any]) -> list[str]:
    """The words behind a command with these parameters of Typer's; what is not understood stays as it is."""
    flags = {name: param for param in params if param.param_type_name == "option" for name in param.opts}
    found: list[str] = []
    values: dict[str, int] = {}  # where in `found` the value of a list stands
    last: Any = None  # the flag whose value the last word is
    rest = list(words)
    while rest:
        word = rest.pop(0)
        meant = MEANT.get(word.partition("=")[0], word)
        if meant != word and word not in flags and (not meant or meant.partition("=")[0] in flags):
            rest = [*filter(None, [meant + word[len(word.partition("=")[0]) :]]), *rest]
            continue
        if word == "--":
            return [*found, word, *rest]
        name, equals, value = word.partition("=")
        name = flag_meant(name, value, flags)
        if name not in flags:
            if last is not None and goes_on(last, word):
                comma = "," if may_be_list(last) or last.metavar == "INT" else ""
                found[-1] = f"{found[-1].rstrip(',')}{comma}{word.lstrip(',')}"
            else:
                found.append(name if name == "--help" else word)
                last = None
        elif flags[name].is_flag:
            last, switch = None, (value if equals else rest[0] if rest else "").lower()
            if switch in SWITCHES:
                found += [name] if SWITCHES[switch] else flags[name].secondary_opts[:1]
                rest = rest if equals else rest[1:]
            else:
                found.append(name + equals + value)
        elif not equals and rest and rest[0].startswith("--") and rest[0].partition("=")[0] in flags:
            return [*found, name]  # it has no value: what is behind it is another flag
        elif not equals and not rest:
            found.append(name)
        else:
            last, text = flags[name], value if equals else rest.pop(0)
            if name in values and values[name] < len(found):
                found[values[name]] += f",{text}"
                last = None
            else:
                found += [name, text]
                if may_be_list(last):
                    values[name] = len(found) - 1
    return found


def flag_meant(name: str, value: str, flags: Mapping[str, Any]) -> str:
    """`-threads`, `--d_model`, `--variant` and the `d_model` of `d_model=64` are flags; else a word is as it was typed.

    `-q` is a letter, and a label has a variant behind it, which is no number.
    """
    plain = "--" + name.lstrip("-").replace("_", "-")
    if name not in flags and len(plain) > 4 and (name.startswith("-") or NUMBER.fullmatch(value)):
        for near in (plain, plain + "s", plain.removesuffix("s")):
            if near in flags or near == "--help":
                return near
    return name


def may_be_list(param: Any) -> bool:
    """Whether it takes commas."""
    return param.metavar == "LIST" or param.name in EXAMPLES or param.name == "backend"


def goes_on(param: Any, word: str) -> bool:
    """Whether a word belongs to the value before it."""
    if param.metavar == "TIME":
        return word in SECONDS
    if str(param.metavar).startswith("PCT") or str(param.metavar).endswith("PCT%"):
        return word == "%"
    parts = [part for part in word.split(",") if part]
    if param.metavar == "INT":
        return all(NUMBER.fullmatch(part) for part in parts)
    known = words_of(param.name) if may_be_list(param) and param.name != "variants" else []
    return bool(known) and all(NUMBER.fullmatch(part) or part in known for part in parts)

"""What was typed, as it was meant: a list with spaces, a time with its unit apart, a flag with a dash too few."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import Field
from typing import Any

from ffnbench.cli.completing import names_of
from ffnbench.planning.fields import LIST, flag_of, kind_of
from ffnbench.request import spelling
from ffnbench.units import SECONDS

Flags = Mapping[str, Field[Any]]
NUMBER = re.compile(r"\d[\w./]*")
MEANT = {  # a flag that says its value, and the words between two names
    **dict.fromkeys(("--fp16", "--half"), "--dtype=float16"), "--bf16": "--dtype=bfloat16", "--cpu": "--device=cpu",
    **dict.fromkeys(("--gpu", "--cuda"), "--device=cuda"), "--csv": "--format=csv",
    **dict.fromkeys(("--train", "--training", "--backward"), "--mode=train"), "vs": "", "vs.": "", "versus": "",
}  # fmt: skip
SWITCHES = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def spellings(field: Field[Any]) -> list[str]:
    """Every name of a flag, the main one first, without what switches it off."""
    how = flag_of(field)
    return [spelling(field.name), *how.also, *([how.short] if how.short else [])]


def as_meant(words: Sequence[str], fields: Mapping[str, Field[Any]]) -> list[str]:
    """The words of a command whose flags are `fields`; what is not understood stays as it is."""
    flags = {name: field for field in fields.values() for name in spellings(field)}
    found: list[str] = []
    last: Field[Any] | None = None  # the flag whose value the last word is
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if (meant := MEANT.get(word)) is not None and (not meant or meant.partition("=")[0] in flags):
            rest = [*filter(None, [meant]), *rest]
            continue
        if word == "--":
            return [*found, word, *rest]
        name, equals, value = word.partition("=")
        name = _flag_meant(name, flags, value)
        if name not in flags:
            if last is not None and _goes_on(last, word):
                comma = "," if flag_of(last).metavar == LIST or kind_of(last) == "int" else ""
                found[-1] = f"{found[-1].rstrip(',')}{comma}{word.lstrip(',')}"
            else:
                found.append(name if name == "--help" else word)
                last = None
        elif kind_of(flags[name]) == "bool":
            last, given = None, (value if equals else rest[0] if rest else "").lower()
            off = flag_of(flags[name]).off
            if given in SWITCHES:
                found += [name] if SWITCHES[given] else [off] if off else []
                rest = rest if equals else rest[1:]
            else:
                found.append(name + equals + value)
        elif not equals and rest and rest[0].startswith("--") and rest[0].partition("=")[0] in flags:
            return [*found, name]  # it has no value: what is behind it is another flag
        else:
            last = flags[name]
            found += [name + equals + value] if equals or not rest else [name, rest.pop(0)]
    return found


def _flag_meant(name: str, flags: Flags, value: str) -> str:
    """`-threads`, `--d_model`, `--variant` and the `d_model` of `d_model=64` are flags; else a word is as it was typed.

    `-q` is a letter, and a label has a variant behind it, which is no number.
    """
    plain = "--" + name.lstrip("-").replace("_", "-")
    if name in flags or len(plain) < 5 or not (name.startswith("-") or NUMBER.fullmatch(value)):
        return name
    near = (plain, plain + "s", plain.removesuffix("s"))
    return next((one for one in near if one in flags or one == "--help"), name)


def _goes_on(field: Field[Any], word: str) -> bool:
    """Whether a word belongs to the value before it."""
    metavar = flag_of(field).metavar
    if metavar == "TIME":
        return word in SECONDS
    if metavar.startswith("PCT") or metavar.endswith("PCT%"):
        return word == "%"
    parts = [part for part in word.split(",") if part]
    if kind_of(field) == "int":
        return all(NUMBER.fullmatch(part) for part in parts)
    of_list = metavar == LIST and not flag_of(field).place
    return of_list and all(NUMBER.fullmatch(part) or part in names_of(field.name) for part in parts)

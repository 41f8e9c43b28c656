"""The names that a config.json gives to sizes: its class's own, their other names, and those of other classes.

A class of transformers reads its own keys, takes its own default for one that is missing, and ignores every other key.
A size under another class's name would be counted as that default, so such a file is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ffnbench.errors import FfnbenchError

Config = Mapping[str, Any]
NO_SIZE = (None, 0, 1)  # of a key that switches something off, such as experts of a dense model


def with_own_names(config: Config, model_type: str, other_names: Mapping[str, str]) -> dict[str, Any]:
    """The config with each key under its class's own name; `other_names` are other name -> own name.

    Raises FfnbenchError where two names of one key have different values.
    """
    renamed = dict(config)
    for other, own in other_names.items():
        if other not in config:
            continue
        value = renamed.pop(other)
        if renamed.setdefault(own, value) != value:
            said = f"{own} {renamed[own]!r:.60} and {other} {value!r:.60}"
            raise FfnbenchError(
                f"the {model_type} config has {said}, two names of one key",
                "leave the wrong one out",
            )
    return renamed


def refuse_sizes_of_other_classes(
    config: Config,
    model_type: str,
    own: Collection[str],
    known: Sequence[Config],
    sizes: Mapping[str, list[str]],
) -> None:
    """Raises FfnbenchError for a size under a name that the class does not read.

    `own` are the names that it reads, `known` what it and its parts have by theirs, `sizes` kind of size -> all names.
    What repeats a known size of its kind is left alone.
    """
    for kind, names in sizes.items():
        values = [part[name] for part in known for name in names if name in part]
        for name in names:
            if name in config and name not in own and config[name] not in (*NO_SIZE, *values):
                read = ", ".join(each for each in names if each in own)
                said = f"{name} {config[name]!r:.60}"
                raise FfnbenchError(
                    f"the {model_type} config has {said}, a name of other classes for {KINDS[kind]}",
                    f"{model_type} reads {read}" if read else f"{model_type} has no such key: is model_type right?",
                )


KINDS = {
    "layers": "the number of layers",
    "width": "the width of the model",
    "ffn": "the width of the FFN",
    "experts": "the experts",
}


def in_words(defaults: Config, model_type: str) -> str:
    """One line that names each default that was taken; "" for none."""
    values = ", ".join(f"{key} {value:,}" for key, value in defaults.items())
    return f"defaults of {model_type}, which the file does not set: {values}" if values else ""

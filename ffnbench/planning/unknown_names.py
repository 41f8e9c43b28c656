"""The error for a name that is no variant, with a guess at what was meant."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from ffnbench.choices import (
    CHECK_SUFFIXES,
    FIGURE_SUFFIXES,
    PAGE_SUFFIX,
    Backend,
    Weights,
)
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.names import hint_for, near
from ffnbench.ffn.activations import ACTIVATIONS
from ffnbench.ffn.spec import GATED
from ffnbench.models.presets import PRESETS
from ffnbench.planning.keys import KEY_HINT, KEYS

OUTPUT_SUFFIXES = (*CHECK_SUFFIXES, *FIGURE_SUFFIXES, PAGE_SUFFIX)


def unknown_name(name: str, is_form: Callable[[str], bool]) -> FfnbenchError:
    """The error to raise for a name that is no variant. `is_form` says whether a name
    is one of ffnbench's own forms.
    """
    parts = re.split(r"[\s;+|/]+", name)
    if len(parts) > 1 and all(is_form(part) for part in parts):
        return FfnbenchError(
            f"unknown variant {name!r}", f"a list has commas: {','.join(parts)}"
        )
    suffix = Path(name).suffix
    if suffix in OUTPUT_SUFFIXES and not Path(name).is_file():
        return FfnbenchError(f"unknown variant {name!r}", f"-o {name} writes a file")
    file, _, attr = name.rstrip(":").partition("::")
    if file.endswith(".py"):
        return FfnbenchError(
            f"{name!r} names no class or function",
            f"name one of the file: {file}:{attr or 'NAME'}",
        )
    is_config = name.endswith(".json")
    if (
        "." in file
        and not is_config
        and all(part.isidentifier() for part in file.split("."))
    ):
        hint = f"its name stands behind a colon: {':'.join(name.rsplit('.', 1))}"
        return FfnbenchError(f"{name!r} names no class or function", hint)
    if re.search(r"[():\[\]]", name):
        return FfnbenchError(f"unknown variant {name!r}", KEY_HINT)
    if "/" in name or is_config:
        return FfnbenchError(
            f"unknown variant {name!r}",
            f"for a model's config.json or ORG/NAME, give --preset {name}",
        )
    if name in [*Backend]:
        return FfnbenchError(
            f"{name!r} is a backend, not a variant",
            f"write @backend={name} behind a variant, or give a list to --backend",
        )
    if name in [*Weights]:
        return FfnbenchError(
            f"{name!r} is a format of weights, not a variant",
            f"write @weights={name} behind a variant, or give a list: --weights none,int8",
        )
    names = ACTIVATIONS.spellings() + GATED.spellings() + PRESETS.names()
    names += [f"{activation}_glu" for activation in ACTIVATIONS.names()]
    where = "`ffnbench list variants` shows all; your own code is package.module:Attr or path/to/file.py:Attr"
    if name.lower() in ("true", "false"):
        hint = "a flag such as --bias takes no value; a key does: relu@bias=true"
        return FfnbenchError(f"unknown variant {name!r}", hint)
    if name.isdigit():
        where = f"a number is the value of a flag, such as --d-model {name}"
    elif set(near(name, names)) & set(PRESETS.names()):
        where = "`ffnbench list presets` shows all models"
    for key in KEYS:
        if key.name == name:
            where = f"it is a key of a variant, as in {key.example}"
    return FfnbenchError(f"unknown variant {name!r}", hint_for(name, names, where))

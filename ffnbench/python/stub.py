"""The stub `ffnbench/__init__.pyi`: what editors and type checkers know of the public functions.

`python -m ffnbench.python.stub` writes it anew, from the same bundles that make the flags and the signatures.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Sequence
from pathlib import Path

import ffnbench
from ffnbench.features import calls
from ffnbench.python import CALLS
from ffnbench.python.arguments import CHOICES, choice_name

STUB = Path(__file__).parents[1] / "__init__.pyi"
HEAD = '''"""Generated from the bundles of flags by `python -m ffnbench.python.stub`."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, overload

import torch
from matplotlib.figure import Figure
from torch import nn

from ffnbench.errors import FfnbenchError as Error
from ffnbench.ffn.spec import FFNSpec as FFNSpec
from ffnbench.ffn.user_activation import activation as activation
from ffnbench.gate.shown import ShownCheck as Check
from ffnbench.report.answers import Answer as Answer
from ffnbench.report.shown_report import ShownReport as Report

__version__: str

Variant = str | os.PathLike[str] | Callable[..., nn.Module | torch.Tensor]
Variants = Variant | Sequence[Variant] | Mapping[str, Variant]
Activation = str | os.PathLike[str] | Callable[..., torch.Tensor]
Activations = Activation | Sequence[Activation]
'''


def stub_text() -> str:
    """The whole file, as the formatter would have it."""
    names = "\n".join(f'    "{name}",' for name in sorted(ffnbench.__all__))
    choices = (f"{choice_name(name)} = Literal[{', '.join(map(_literal, known))}]" for name, known in CHOICES.items())
    functions = (_function(name) for name in sorted([*CALLS, *calls()]))
    return "\n".join([HEAD + "\n".join(choices), f"\n__all__ = [\n{names}\n]\n", *functions])


def _function(name: str) -> str:
    function = getattr(ffnbench, name)
    signature = inspect.signature(function)
    parameters, doc = list(signature.parameters.values()), f'\n"""{inspect.getdoc(function)}\n"""\n'
    if signature.return_annotation != "Figure | Path":
        return _definition(name, parameters, signature.return_annotation, doc)
    *others, path = parameters  # with a path it writes a file, and else it gives a figure
    figure = [*others, path.replace(annotation="None")]
    file = [*others, path.replace(annotation="str | os.PathLike[str]", default=path.empty)]
    drawn, written = _definition(name, figure, "Figure", " ..."), _definition(name, file, "Path", doc)
    return f"@overload\n{drawn}\n@overload\n{written}"


def _definition(name: str, parameters: Sequence[inspect.Parameter], returns: str, body: str) -> str:
    lines, starred = [], False
    for one in parameters:
        if one.kind is inspect.Parameter.KEYWORD_ONLY and not starred:
            lines.append("    *,")
            starred = True
        default = "" if one.default is inspect.Parameter.empty else f" = {_literal(one.default)}"
        lines.append(f"    {one.name}: {one.annotation}{default},")
    return "\n".join(
        [f"def {name}(", *lines, f") -> {returns}:" + textwrap.indent(body, "    " * body.startswith("\n"))]
    )


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


if __name__ == "__main__":
    STUB.write_text(stub_text(), encoding="utf-8")

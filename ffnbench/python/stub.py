"""The stub `ffnbench/__init__.pyi`: what editors and type checkers know of the public functions.

`python -m ffnbench.python.stub` writes it anew, from the same bundles that make the flags and the signatures.
"""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path

import ffnbench
from ffnbench.python.calls import PUBLIC

STUB = Path(__file__).parents[1] / "__init__.pyi"
HEAD = '''"""Generated from the bundles of flags by `python -m ffnbench.python.stub`."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import nn

from ffnbench.activations.user_activation import activation as activation
from ffnbench.errors import FfnbenchError as Error
from ffnbench.ffn.spec import FFNSpec as FFNSpec
from ffnbench.report.answers import Answer as Answer
from ffnbench.report.answers import ShownCheck as Check
from ffnbench.report.shown_report import ShownReport as Report
from ffnbench.version import __version__ as __version__

Variant = str | Callable[..., nn.Module | torch.Tensor]
Variants = Variant | Sequence[Variant] | Mapping[str, Variant]
Activations = str | Callable[..., torch.Tensor] | Sequence[str | Callable[..., torch.Tensor]]
'''


def stub_text() -> str:
    """The whole file, as the formatter would have it."""
    names = "\n".join(f'    "{name}",' for name in sorted(ffnbench.__all__))
    return "\n".join([HEAD, f"__all__ = [\n{names}\n]\n", *(_function(name) for name in sorted(PUBLIC))])


def _function(name: str) -> str:
    signature = inspect.signature(PUBLIC[name])
    lines, starred = [], False
    for one in signature.parameters.values():
        if one.kind is inspect.Parameter.KEYWORD_ONLY and not starred:
            lines.append("    *,")
            starred = True
        default = "" if one.default is inspect.Parameter.empty else f" = {_literal(one.default)}"
        lines.append(f"    {one.name}: {one.annotation}{default},")
    doc = textwrap.indent(f'"""{inspect.getdoc(PUBLIC[name])}\n"""', "    ")
    return "\n".join([f"def {name}(", *lines, f") -> {signature.return_annotation}:", doc, ""])


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


if __name__ == "__main__":
    STUB.write_text(stub_text(), encoding="utf-8")

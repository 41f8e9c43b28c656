"""The command that looks at whole models."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console

from ffnbench.cli import options
from ffnbench.cli.app import app


@app.command(epilog="Examples: ffnbench inspect deepseek-v3; ffnbench inspect path/to/config.json --format json")
def inspect(
    model: Annotated[
        str, typer.Argument(metavar="CONFIG|PRESET", help="A config.json, a folder that holds one, or a preset.")
    ],
    format_: options.Format = "table",
    out: options.Out = None,
    wide: options.Wide = False,
) -> None:
    """Show a model's FFNs in words and numbers, one row a kind of layer."""
    from ffnbench import api
    from ffnbench.cli.show import check_format
    from ffnbench.report.models import MODEL_WRITERS, model_table
    from ffnbench.report.store import FORMATS, Outputs
    from ffnbench.report.text import show

    check_format(format_)
    with Outputs(out or [], "inspect") as outputs:
        found = api.inspect(model)
        if format_ == "table":
            show(model_table(found), Console(), wide=wide)
        else:
            sys.stdout.write(MODEL_WRITERS[FORMATS[format_]](found))
        for path in outputs.write(lambda suffix: MODEL_WRITERS[suffix](found).encode()):
            print(f"wrote {path}", file=sys.stderr)

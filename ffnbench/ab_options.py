"""The flags of `ab`: what the two sides are. Those that it shares with other commands are in options.py."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ffnbench.options import GATE

SIDES = "Sides"


def _side(flag: str, metavar: str, help_: str) -> Any:
    return typer.Option(flag, metavar=metavar, rich_help_panel=SIDES, help=help_)


BaseRev = Annotated[str | None, _side("--base-rev", "REV", "Base is this git revision, checked out for the while.")]
HeadRev = Annotated[str | None, _side("--head-rev", "REV", "Head is this revision, not the working tree as it is.")]
BaseSource = Annotated[str | None, _side("--base-source", "DIR", "Base is the code in this folder.")]
HeadSource = Annotated[str | None, _side("--head-source", "DIR", "Head is the code in this folder.")]
BasePython = Annotated[
    str | None, _side("--base-python", "PATH", "Base runs in this interpreter; it needs torch alone.")
]
HeadPython = Annotated[str | None, _side("--head-python", "PATH", "Head runs in this interpreter.")]
BaseEnv = Annotated[list[str] | None, _side("--base-env", "NAME:VALUE", "A variable of base's processes. Repeatable.")]
HeadEnv = Annotated[list[str] | None, _side("--head-env", "NAME:VALUE", "A variable of head's processes. Repeatable.")]
FailAbove = Annotated[
    str | None,
    typer.Option(
        "--fail-above",
        metavar="PCT%",
        rich_help_panel=GATE,
        help="Short for --tolerance latency=PCT%: how much slower head may be. \\[default: 5%]",
    ),
]
AllowMismatch = Annotated[
    bool,
    typer.Option("--allow-mismatch", rich_help_panel=GATE, help="Go on, and pass, where head's output has changed."),
]

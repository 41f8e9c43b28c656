"""How is it typed? One file a family of commands; importing this gives the whole command line."""

from ffnbench.cli import compare, block, check, activations, tools  # noqa: F401, I001 - in the order of the help
from ffnbench.cli.app import app, main

__all__ = ["app", "main"]

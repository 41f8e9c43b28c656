"""How is it typed? One file a family of commands; importing this gives the whole command line."""

from ffnbench.cli import activations, block, check, compare, models  # noqa: F401 - in the order of the help
from ffnbench.cli.app import app, main

__all__ = ["app", "main"]

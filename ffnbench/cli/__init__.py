"""How is it typed? One file a family of commands, loaded when one of it is typed."""

from ffnbench.cli.app import main, run_command_line

__all__ = ["main", "run_command_line"]

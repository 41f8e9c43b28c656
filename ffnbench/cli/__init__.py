"""How is it typed? The command line: its commands, options, defaults and errors."""

from ffnbench.cli.app import main, run_command_line

__all__ = ["main", "run_command_line"]

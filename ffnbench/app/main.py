"""The command line: it finds the command, writes every error in the same form, and ends
with the exit code.

0 done; 2 usage or input, before measuring; 3 could not finish, a row failed,
or a bug (with its traceback); 130 interrupted. Code 1 is kept for a check that found a
regression.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ffnbench import __version__
from ffnbench.app.command import UsageError
from ffnbench.app.commands import app
from ffnbench.common.errors import (
    EXIT_INTERRUPTED,
    EXIT_UNFINISHED,
    EXIT_USAGE,
    FfnbenchError,
    complain,
    termination_as_interruption,
)
from ffnbench.common.streams import hush, prepare_streams

INTERRUPTED = "interrupted before the answer was complete"
NO_MEMORY = "there is not enough memory"


def _version(wanted: bool) -> None:
    if wanted:
        print(f"ffnbench {__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            "-V",
            callback=_version,
            is_eager=True,
            help="Show the version.",
        ),
    ] = False,
) -> None:
    """Build any Transformer FFN from flags, count it exactly, and measure it."""


def run_command_line(words: Sequence[str]) -> int:
    """Run a command line; gives the exit code. Raises FfnbenchError, and Typer's own
    errors.
    """
    if "_FFNBENCH_COMPLETE" in os.environ:
        if app([*words], standalone_mode=False, prog_name="ffnbench"):
            return EXIT_USAGE
        return 0
    # not app(): that ends an interruption, and a broken pipe, in its own ways
    group: Any = typer.main.get_command(app)
    try:
        with group.make_context("ffnbench", [*words] or ["--help"]) as ctx:
            return group.invoke(ctx) or 0
    except typer.Exit as ended:
        # --help, --version and --install-completion end so; 1 would mean a regression
        return EXIT_USAGE if ended.exit_code else 0


def main() -> None:
    """Run the console script. Every error ends with a message and an exit code, so that
    a bug never looks like a result.
    """
    prepare_streams()
    try:
        with termination_as_interruption():
            code = run_command_line(sys.argv[1:])
    except SystemExit as ended:  # a completion ends so
        code = EXIT_USAGE if ended.code else 0
    except KeyboardInterrupt:
        code = complain(INTERRUPTED, "", EXIT_INTERRUPTED)
    except BrokenPipeError:
        hush()
        code = 0
    except Exception as problem:
        code = _exit_code_of(problem)
    sys.exit(code)


def _exit_code_of(problem: Exception) -> int:
    """Write what is wrong to stderr; gives the exit code."""
    if isinstance(problem, FfnbenchError):
        return complain(problem.message, problem.hint, problem.exit_code)
    if isinstance(problem, OSError):
        hush()
        return complain(
            f"{problem.strerror or problem}",
            "can stdout be written to?",
            EXIT_UNFINISHED,
        )
    if isinstance(problem, MemoryError) or "can't start new thread" in str(problem):
        return complain(
            NO_MEMORY, "`ulimit -a` shows the limits of this shell", EXIT_UNFINISHED
        )
    if isinstance(problem, UsageError):
        return _usage_error(problem)
    traceback.print_exception(problem)
    return complain(
        "this is a bug in ffnbench",
        "please report it with the lines above",
        EXIT_UNFINISHED,
    )


def _usage_error(problem: Any) -> int:
    """Write a complaint of Typer's own (an unknown command or option, a missing value)
    as an error, and an example of the command; gives the exit code.
    """
    message = " ".join(problem.format_message().split()).rstrip(".")
    context = problem.ctx
    command = context.command_path if context else "ffnbench"
    epilog = context.command.epilog if context else app.info.epilog
    example = str(epilog).splitlines()[1]
    return complain(
        message[:1].lower() + message[1:],
        f"for example `{example.strip()}`; `{command} --help` shows what there is",
        EXIT_USAGE,
    )

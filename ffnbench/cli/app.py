"""The command line itself: the app that commands join, one voice for every error, and the exit codes.

0 done; 2 usage or input, before measuring; 3 could not finish, or a bug (with its traceback); 130 interrupted. Code 1
is kept for a check that found a regression.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated, Any

import typer

from ffnbench.cli.completing import prepare_bash
from ffnbench.cli.help import FlagGroup, examples
from ffnbench.errors import (
    EXIT_INTERRUPTED,
    EXIT_UNFINISHED,
    EXIT_USAGE,
    FfnbenchError,
    complain,
    termination_as_interruption,
    want_of_files,
)
from ffnbench.streams import hush, prepare
from ffnbench.version import __version__

INTERRUPTED = "interrupted before the answer was complete"
NO_MEMORY = "there is not enough memory"
NO_FILES = "too many files are open: a process may not have more here"
COMPLETE = "_FFNBENCH_COMPLETE"
NO_COMPLETION = ("nothing can be completed for this shell", "bash, zsh, fish and powershell: `--install-completion`")


def _with_dashes(name: str) -> str:
    """`--d_model` is `--d-model`."""
    return name.replace("_", "-")


class _Commands(FlagGroup):
    """Typer would end silently at an interruption, and with 1 for a shell that it does not know."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except typer.Exit as ended:
            raise typer.Exit(complain(*NO_COMPLETION, EXIT_USAGE) if ended.exit_code else 0) from None

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(complain(INTERRUPTED, "", EXIT_INTERRUPTED)) from None


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"], "token_normalize_func": _with_dashes},
    help="Build any Transformer FFN from flags, count it exactly, measure it honestly.",
    epilog=examples(
        "ffnbench compare --d-model 768 --variants relu,gelu,swiglu",
        "ffnbench cost --preset llama3-8b",
        "ffnbench list variants",
        docs="README.md",
    ),
)


def main() -> None:
    """The console script: one voice for every error, and a bug never looks like a result."""
    prepare()
    try:
        if os.environ.get(COMPLETE) == "complete_bash":
            prepare_bash()
        with termination_as_interruption():
            code = app(standalone_mode=False, prog_name="ffnbench")
    except SystemExit as ended:  # of a completion; fish asks whether there is one, and hears it by the code
        asks = os.environ.get(COMPLETE) == "complete_fish"
        code = 0 if not ended.code else EXIT_USAGE if asks else complain(*NO_COMPLETION, EXIT_USAGE)
    except KeyboardInterrupt:
        code = complain(INTERRUPTED, "", EXIT_INTERRUPTED)
    except BrokenPipeError:
        hush()
        code = 0
    except Exception as problem:
        code = _told(problem)
    sys.exit(code)


def _told(problem: Exception) -> int:
    """Say what is wrong; gives the exit code."""
    if want_of_files(problem):
        return complain(NO_FILES, "`ulimit -n` shows how many may be; 256 are enough", EXIT_UNFINISHED)
    if isinstance(problem, FfnbenchError):
        return complain(problem.message, problem.hint, problem.exit_code)
    if isinstance(problem, OSError):
        return complain(f"{problem.strerror or problem}", "can stdout be written to?", EXIT_UNFINISHED)
    if isinstance(problem, MemoryError):
        return complain(NO_MEMORY, "is it limited here? `ulimit -a` shows that", EXIT_UNFINISHED)
    return _usage_error(problem)


def leave(code: int) -> None:
    """End a command with this exit code."""
    if code:
        raise typer.Exit(code)


def _usage_error(problem: Exception) -> int:
    """Typer's own complaints (an unknown option, a word for a number) in our voice; anything else is a bug."""
    if not isinstance(problem, typer.BadParameter.__bases__[0]):
        traceback.print_exception(problem)
        return complain("this is a bug in ffnbench", "please report it with the lines above", EXIT_UNFINISHED)
    context: Any = getattr(problem, "ctx", None)
    command = context.command_path if context else "ffnbench"
    message = " ".join(str(getattr(problem, "format_message")()).split()).rstrip(".")  # noqa: B009
    if not message:  # no_args_is_help
        return 0
    cut = "a list has commas and no spaces, as 128,512; " if "unexpected extra argument" in message else ""
    return complain(message[:1].lower() + message[1:], f"{cut}`{command} --help` shows what there is", EXIT_USAGE)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"ffnbench {__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Build any Transformer FFN from flags, count it exactly, measure it honestly."""

"""The command line itself: the app with its commands, one voice for every error, and the exit codes.

0 done; 2 usage or input, before measuring; 3 could not finish, or a bug (with its traceback); 130 interrupted. Code 1
is kept for a check that found a regression.
"""

from __future__ import annotations

import sys
import traceback
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ffnbench import __version__
from ffnbench.cli.bundles import Described, built, registered
from ffnbench.cli.help import examples, write_examples, write_options
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

INTERRUPTED = "interrupted before the answer was complete"
NO_MEMORY = "there is not enough memory"
NO_FILES = "too many files are open: a process may not have more here"
FILES = {  # of each command, in the order of the help
    "compare": "compare", "cost": "compare", "report": "compare", "block": "block", "check": "check", "ab": "check",
    "plot-activations": "activations", "activations": "activations", "list": "tools", "env": "tools",
    "inspect": "tools", "selftest": "tools",
}  # fmt: skip


def described(name: str) -> Described:
    """What a command is; its file is loaded."""
    import_module(f"ffnbench.cli.{FILES[name]}")
    return registered(name)


class _Commands(TyperGroup):
    """A command is built when it is typed: to build all of them took most of the start."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(FILES)

    def get_command(self, ctx: Any, name: str) -> Any:
        if name in FILES and name not in self.commands:
            self.commands[name] = built(described(name), described_all)
        return self.commands.get(name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if _with_dashes(args[0]) not in FILES:  # typer suggests what is there
            for name in FILES:
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(one.name, one.help.partition("\n\n")[0]) for one in described_all()])
        write_options(self, ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        write_examples(self, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except typer.Exit as ended:  # with 1 for a shell that can't be completed
            raise typer.Exit(EXIT_USAGE if ended.exit_code else 0) from None

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # typer would end silently
            raise typer.Exit(complain(INTERRUPTED, "", EXIT_INTERRUPTED)) from None


def described_all() -> list[Described]:
    """What every command is."""
    return [described(name) for name in FILES]


def _with_dashes(name: str) -> str:
    """`--d_model` is `--d-model`."""
    return name.replace("_", "-")


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": _with_dashes,
        "max_content_width": 100,
    },
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
        with termination_as_interruption():
            code = app(standalone_mode=False, prog_name="ffnbench")
    except SystemExit as ended:  # of a completion
        code = EXIT_USAGE if ended.code else 0
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
        hush()
        return complain(f"{problem.strerror or problem}", "can stdout be written to?", EXIT_UNFINISHED)
    if isinstance(problem, MemoryError) or "can't start new thread" in str(problem):
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
    told = str(getattr(problem, "format_message")())  # noqa: B009
    if type(problem).__name__ == "NoArgsIsHelpError":  # its message is the help
        print(told)
        return 0
    message = " ".join(told.split()).rstrip(".")
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

"""The command line itself: it finds the command, has one voice for every error, and ends with the exit code.

0 done; 2 usage or input, before measuring; 3 could not finish, or a bug (with its traceback); 130 interrupted. Code 1
is kept for a check that found a regression.
"""

from __future__ import annotations

import os
import shlex
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ffnbench import __version__
from ffnbench.cli.commands import Commands, UsageError, command_names, ending, options_of, settings_here
from ffnbench.common.errors import (
    EXIT_INTERRUPTED,
    EXIT_UNFINISHED,
    EXIT_USAGE,
    FfnbenchError,
    complain,
    termination_as_interruption,
)
from ffnbench.common.files import content_of
from ffnbench.common.names import hint_for, near
from ffnbench.common.streams import hush, prepare
from ffnbench.request import EXAMPLES, spelling

INTERRUPTED = "interrupted before the answer was complete"
NO_MEMORY = "there is not enough memory"
OWN = ("--help", "-h", "--version", "-V", "--install-completion", "--show-completion")  # flags without a command
UNNEEDED = {"warmup", "iters", "num_iters", "iterations", "n", "number", "repeat", "repeats", "reps", "steps", "trials"}

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich" if sys.stdout.isatty() else None,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": lambda name: name.replace("_", "-"),
        "max_content_width": 80,
    },
    epilog=ending(
        "ffnbench compare relu gelu swiglu --d-model 768",
        "ffnbench cost --preset llama3-8b",
        "ffnbench list variants",
        docs="README.md",
    ),
)


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


def run(words: Sequence[str]) -> int:
    """Do what a command line says; gives the exit code. Raises FfnbenchError, and Typer's own complaints."""
    if "_FFNBENCH_COMPLETE" in os.environ:
        return EXIT_USAGE if app([*words], standalone_mode=False, prog_name="ffnbench") else 0
    name = words[0].replace("_", "-") if words else "--help"
    defaults = {}
    if name in command_names():
        settings = settings_here()
        if settings is not None:
            defaults = {name: settings.of_command(name, options_of(name))}
    elif name.partition("=")[0] not in OWN:
        what = "no command before" if name.startswith("-") else "no such command"
        raise FfnbenchError(f"{what} {name!r}", _command_meant(name, words))
    group = typer.main.get_command(app)  # not app(): that ends an interruption, and a broken pipe, in its own ways
    try:
        with group.make_context("ffnbench", [*words], default_map=defaults) as ctx:
            return group.invoke(ctx) or 0
    except typer.Exit as ended:  # of --help, --version, --install-completion; 1 is a regression here
        return EXIT_USAGE if ended.exit_code else 0


def _command_meant(name: str, words: Sequence[str]) -> str:
    """What to type in place of a first word that is no command."""
    from ffnbench.models.presets import PRESETS
    from ffnbench.planning.variant_text import is_variant
    from ffnbench.report.listing import LISTINGS

    typed = shlex.join(words)
    commands = [word for word in words[1:] if word in command_names()]
    if name == "help":
        return f"`ffnbench {commands[0]} --help`" if commands else "`ffnbench --help`"
    if name.startswith("-") and commands:
        others = [word for word in words if word != commands[0]]
        return f"the command comes first: `ffnbench {shlex.join([commands[0], *others])}`"
    if name in LISTINGS:
        return f"`ffnbench list {name}`"
    if words[0].endswith(".json") and os.path.isfile(words[0]):
        config = b'"model_type"' in content_of(words[0])
        return f"`ffnbench cost --preset {typed}` counts its FFN" if config else f"`ffnbench report {typed}` shows it"
    if words[0] in PRESETS:
        return f"`ffnbench cost {typed}` counts its FFN, `ffnbench compare {typed}` measures it"
    if name.startswith("-") or all(map(is_variant, words[0].split(","))):
        return f"`ffnbench compare {typed}` measures"
    return hint_for(name, command_names(), "`ffnbench --help` shows what there is")


def main() -> None:
    """The console script: one voice for every error, and a bug never looks like a result."""
    prepare()
    try:
        with termination_as_interruption():
            code = run(sys.argv[1:])
    except SystemExit as ended:  # of a completion
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
    """Say what is wrong; gives the exit code."""
    if isinstance(problem, FfnbenchError):
        return complain(problem.message, problem.hint, problem.exit_code)
    if isinstance(problem, OSError):
        hush()
        return complain(f"{problem.strerror or problem}", "can stdout be written to?", EXIT_UNFINISHED)
    if isinstance(problem, MemoryError) or "can't start new thread" in str(problem):
        return complain(NO_MEMORY, "is it limited here? `ulimit -a` shows that", EXIT_UNFINISHED)
    if isinstance(problem, UsageError):
        return _usage_error(problem)
    traceback.print_exception(problem)
    return complain("this is a bug in ffnbench", "please report it with the lines above", EXIT_UNFINISHED)


def _usage_error(problem: Any) -> int:
    """Typer's own complaints (an unknown option, a value that lacks) in our voice."""
    message = str(problem.format_message())
    if type(problem).__name__ == "NoArgsIsHelpError":  # its message is the help
        print(message)
        return 0
    command = problem.ctx.command_path if problem.ctx else "ffnbench"
    message = " ".join(message.partition(" (Possible options")[0].split()).rstrip(".")
    option = str(getattr(problem, "option_name", ""))
    hint = ""
    if "requires an argument" in message:
        examples = {spelling(name): example for name, example in EXAMPLES.items()}
        hint = f"for example {option} {examples[option]}; " if option in examples else ""
    elif "does not take a value" in message:
        hint = "it is a switch, on where it stands; "
    elif "unexpected extra argument" in message:
        hint = "it takes no further names; "
    elif option:
        hint = _flag_meant(option, command.split()[-1], problem.ctx)
    return complain(message[:1].lower() + message[1:], f"{hint}`{command} --help` shows what there is", EXIT_USAGE)


def _flag_meant(option: str, command: str, ctx: Any) -> str:
    """What there is for a flag that a command has not: one spelt alike, another command, a key of a variant, or no need
    of it.
    """
    from ffnbench.planning.keys import KEYS

    field = option.lstrip("-").replace("-", "_")
    own = [param.name for param in ctx.command.params]
    if field in UNNEEDED and "budget" in own:
        return "it warms up, and finds out how often to repeat; --budget 30s limits its time; "
    for key in KEYS:
        if key.name == field:
            return f"it is a key of a variant, as in {key.example}; "
    for other in command_names():
        if other != command and field in options_of(other):
            return f"`ffnbench {other}` has it; "
    similar = [spelling(name) for name in near(field, own)]
    return f"did you mean {' or '.join(similar)}? " if similar else ""

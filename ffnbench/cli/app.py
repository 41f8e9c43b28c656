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
from typer.core import TyperGroup

from ffnbench import __version__
from ffnbench.cli.commands import CONTEXT, UsageError, built, command_names, described, is_command, with_dashes
from ffnbench.cli.help import write_end, write_options
from ffnbench.errors import (
    EXIT_INTERRUPTED,
    EXIT_UNFINISHED,
    EXIT_USAGE,
    FfnbenchError,
    complain,
    termination_as_interruption,
)
from ffnbench.files import content_of
from ffnbench.names import hint_for
from ffnbench.request import EXAMPLES, spelling
from ffnbench.streams import hush, prepare

INTERRUPTED = "interrupted before the answer was complete"
NO_MEMORY = "there is not enough memory"
OWN = ("--help", "-h", "--version", "-V", "--install-completion", "--show-completion")  # flags without a command
EXAMPLES_OF_ALL = (
    "ffnbench compare relu gelu swiglu --d-model 768",
    "ffnbench cost --preset llama3-8b",
    "ffnbench list variants",
)
ALSO = {  # what others call a command
    **dict.fromkeys(("bench", "benchmark", "measure", "run", "time"), "compare"), "version": "--version",
    **dict.fromkeys(("count", "flops", "params"), "cost"), "models": "list presets",
    "plot": "plot-activations",
    **dict.fromkeys(("diff", "show"), "report"), **dict.fromkeys(("devices", "doctor", "info"), "env"),
}  # fmt: skip
UNNEEDED = {"warmup", "iters", "num_iters", "iterations", "n", "number", "repeat", "repeats", "reps", "steps", "trials"}


class Commands(TyperGroup):
    """What answers where no command is typed: the help, the version, and a shell that asks how a line could go on."""

    def list_commands(self, ctx: Any) -> list[str]:
        return command_names()

    def get_command(self, ctx: Any, name: str) -> Any:
        return built(described(name)) if is_command(name) else None

    def format_options(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, described(name).help.partition("\n\n")[0]) for name in command_names()])
        write_options(self, ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        write_end(formatter, EXAMPLES_OF_ALL, "README.md")


app = typer.Typer(cls=Commands, no_args_is_help=True, rich_markup_mode=None, context_settings=CONTEXT)


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
    name = with_dashes(words[0]) if words else "--help"
    if name.partition("=")[0] in OWN or "_FFNBENCH_COMPLETE" in os.environ:
        failed = app([*words], standalone_mode=False, prog_name="ffnbench")  # with 1, which is a regression here
        return EXIT_USAGE if failed else 0
    if not is_command(name):
        told = "no command before" if name.startswith("-") else "no such command"
        raise FfnbenchError(f"{told} {name!r}", _command_meant(name, words))
    command = built(described(name))
    try:
        with command.make_context(f"ffnbench {name}", [*words[1:]]) as context:
            return command.invoke(context)
    except typer.Exit:  # of --help
        return 0


def _are_variants(text: str) -> bool:
    from ffnbench.planning.variant_text import is_variant

    return all(map(is_variant, text.split(",")))


def _command_meant(name: str, words: Sequence[str]) -> str:
    """What to type in place of a first word that is no command."""
    from ffnbench.models.presets import PRESETS
    from ffnbench.report.listing import LISTINGS

    behind, typed = words[1:], shlex.join(words)
    if name in ALSO and behind and os.path.isfile(behind[0]):
        return _command_meant(behind[0], behind)
    if name in ALSO:
        return f"`ffnbench {shlex.join([*ALSO[name].split(), *behind])}`"
    if name == "help":
        return f"`ffnbench {behind[0]} --help`" if behind and is_command(behind[0]) else "`ffnbench --help`"
    for word in behind:
        if name.startswith("-") and is_command(word):  # flags before the command
            return f"the command comes first: `ffnbench {shlex.join([word, *(w for w in words if w != word)])}`"
    if name in LISTINGS:
        return f"`ffnbench list {name}`"
    if os.path.isfile(words[0]) and words[0].endswith(".json"):
        config = b'"model_type"' in content_of(words[0])
        return f"`ffnbench cost --preset {typed}` counts its FFN" if config else f"`ffnbench report {typed}` shows it"
    if words[0] in PRESETS:
        return f"`ffnbench cost {typed}` counts its FFN, `ffnbench compare {typed}` measures it"
    if name.startswith("-") or _are_variants(words[0]):
        flags = {word.partition("=")[0] for word in words if word.startswith("-")}
        counts = f", `ffnbench cost {typed}` counts" * (flags <= {spelling(field) for field in described("cost").named})
        return f"`ffnbench compare {typed}` measures{counts}"
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
        code = _told(problem)
    sys.exit(code)


def _told(problem: Exception) -> int:
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
    told = str(problem.format_message())
    if type(problem).__name__ == "NoArgsIsHelpError":  # its message is the help
        print(told)
        return 0
    command = problem.ctx.command_path if problem.ctx else "ffnbench"
    message = " ".join(told.split()).rstrip(".")
    more = "it takes no further names; " if "unexpected extra argument" in message else ""
    option = str(getattr(problem, "option_name", ""))
    if "requires an argument" in message:
        more = "".join(f"for example {option} {EXAMPLES[name]}; " for name in EXAMPLES if spelling(name) == option)
    elif option:
        more = _flag_elsewhere(option, command.split()[-1])
    return complain(message[:1].lower() + message[1:], f"{more}`{command} --help` shows what there is", EXIT_USAGE)


def _flag_elsewhere(option: str, command: str) -> str:
    """What there is for a flag that a command has not: another command, a key of a variant, or no need of it."""
    from ffnbench.planning.keys import KEYS

    field = option.lstrip("-").replace("-", "_")
    if field in UNNEEDED and is_command(command) and "budget" in described(command).named:
        return "it warms up, and finds out how often to repeat; --budget 30s limits its time; "
    if found := [name for name in command_names() if field in described(name).named]:
        return f"`ffnbench {found[0]}` has it; "
    return next((f"it is a key of a variant, as in {key.example}; " for key in KEYS if field and key.name == field), "")

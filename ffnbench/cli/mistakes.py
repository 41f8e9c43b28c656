"""What to say of a mistake in the command line: what was meant, and where a flag is at home."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import Any

from ffnbench.cli.commands import command_names, options_of
from ffnbench.common.errors import (
    EXIT_USAGE,
    complain,
)
from ffnbench.common.files import content_of
from ffnbench.common.names import hint_for
from ffnbench.request import EXAMPLES, spelling

UNNEEDED = {"warmup", "iters", "num_iters", "iterations", "n", "number", "repeat", "repeats", "reps", "steps", "trials"}


def _are_variants(text: str) -> bool:
    from ffnbench.planning.variant_text import is_variant

    return all(map(is_variant, text.split(",")))


def command_meant(name: str, words: Sequence[str]) -> str:
    """What to type in place of a first word that is no command."""
    from ffnbench.models.presets import PRESETS
    from ffnbench.report.listing import LISTINGS

    behind, typed = words[1:], shlex.join(words)
    if name == "help":
        return f"`ffnbench {behind[0]} --help`" if behind and behind[0] in command_names() else "`ffnbench --help`"
    for word in behind:
        if name.startswith("-") and word in command_names():  # flags before the command
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
        counts = ""
        if flags <= {spelling(option) for option in options_of("cost")}:
            counts = f", `ffnbench cost {typed}` counts"
        return f"`ffnbench compare {typed}` measures{counts}"
    return hint_for(name, command_names(), "`ffnbench --help` shows what there is")


def usage_error(problem: Any) -> int:
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
    elif "does not take a value" in message:
        more = "it is a switch, on where it stands; "
    elif option:
        more = _flag_elsewhere(option, command.split()[-1])
    return complain(message[:1].lower() + message[1:], f"{more}`{command} --help` shows what there is", EXIT_USAGE)


def _flag_elsewhere(option: str, command: str) -> str:
    """What there is for a flag that a command has not: another command, a key of a variant, or no need of it."""
    from ffnbench.planning.keys import KEYS

    field = option.lstrip("-").replace("-", "_")
    if field in UNNEEDED and command in command_names() and "budget" in options_of(command):
        return "it warms up, and finds out how often to repeat; --budget 30s limits its time; "
    having = [name for name in command_names() if field in options_of(name)]
    if having and command not in having:
        return f"`ffnbench {having[0]}` has it; "
    return next((f"it is a key of a variant, as in {key.example}; " for key in KEYS if field and key.name == field), "")

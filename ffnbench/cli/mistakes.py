"""Hints for mistakes in the command line: which command or flag was meant, and which
command has it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import Any

from ffnbench.cli.commands import command_names, options_of
from ffnbench.common.errors import EXIT_USAGE, complain
from ffnbench.common.files import content_of
from ffnbench.common.names import hint_for, near
from ffnbench.request import EXAMPLES, spelling

# flags of other tools, for what ffnbench does by itself
UNNEEDED = {
    "warmup",
    "iters",
    "num_iters",
    "iterations",
    "n",
    "number",
    "repeat",
    "repeats",
    "reps",
    "steps",
    "trials",
}

# what others, and earlier versions, call a flag
OTHER_FLAGS = {
    "bs": "batch",
    "ffn_dim": "d_ff",
    "n_embd": "d_model",
    "output": "out",
    "seqlen": "seq_len",
}
# flags that there are no more: what to do in their place
INSTEAD_OF_FLAG = {
    **dict.fromkeys(("ref", "reference"), "the first variant is the reference"),
    **dict.fromkeys(
        ("head_python", "head_source", "head_env"),
        "head is what runs ffnbench: run `ab` in head's environment",
    ),
    **dict.fromkeys(
        ("head_dim", "causal", "no_textbook"),
        "a config.json says what attention is: --preset config.json",
    ),
    **dict.fromkeys(
        ("size", "dpi", "style"),
        "from Python the Figure of `.plot()` has them",
    ),
    "control": "`ffnbench compare relu again=relu` measures one variant twice; check and ab always do",
    "export": "-o junit.xml, -o run.json and --format github are what programs read",
    "force": "move the file away, and it is not in the way",
    "launch": "run ffnbench on that machine with --json, and show the file here: `ffnbench report run.json`",
    "shard": "--on slurm measures groups as jobs, --resume goes on",
    "tokens": "a call has batch times seq_len tokens: --seq-len 2048",
    "whole_model": "`ffnbench inspect llama3-8b --length 512` counts a whole model",
}
# what others, and earlier versions, call a command
OTHER_COMMANDS = {
    **dict.fromkeys(("bench", "benchmark", "measure", "run", "time"), "compare"),
    **dict.fromkeys(("count", "flops", "params"), "cost"),
    **dict.fromkeys(("diff", "show"), "report"),
    **dict.fromkeys(("devices", "doctor", "info"), "env"),
}


def command_meant(name: str, words: Sequence[str]) -> str:
    """A hint for a first word that is no command: what to type in its place."""
    from ffnbench.models.presets import PRESETS
    from ffnbench.planning.variant_text import is_variant
    from ffnbench.report.listing import LISTINGS

    typed = shlex.join(words)
    commands = [word for word in words[1:] if word in command_names()]
    if name == "help":
        if commands:
            return f"`ffnbench {commands[0]} --help`"
        return "`ffnbench --help`"
    if name.startswith("-") and commands:
        others = [word for word in words if word != commands[0]]
        return (
            f"the command comes first: `ffnbench {shlex.join([commands[0], *others])}`"
        )
    if name in LISTINGS:
        return f"`ffnbench list {name}`"
    if name in OTHER_COMMANDS:
        return f"`ffnbench {shlex.join([OTHER_COMMANDS[name], *words[1:]])}`"
    if name == "plot":
        return "`ffnbench report run.json -o run.png` draws a saved run, `ffnbench plot-activations` curves of activations"
    if name == "schema":
        return "docs/result.schema.json is installed with ffnbench"
    if name == "version":
        return "`ffnbench --version`"
    if words[0].endswith(".json") and os.path.isfile(words[0]):
        config = b'"model_type"' in content_of(words[0])
        if config:
            return f"`ffnbench cost --preset {typed}` counts its FFN"
        return f"`ffnbench report {typed}` shows it"
    if words[0] in PRESETS:
        return f"`ffnbench cost {typed}` counts its FFN, `ffnbench compare {typed}` measures it"
    if name.startswith("-") or all(map(is_variant, words[0].split(","))):
        return f"`ffnbench compare {typed}` measures"
    return hint_for(name, command_names(), "`ffnbench --help` shows what there is")


def usage_error(problem: Any) -> int:
    """Write a complaint of Typer's own (an unknown option, a missing value) as an error
    of ffnbench; gives the exit code.
    """
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
        if option in examples:
            hint = f"for example {option} {examples[option]}; "
    elif "does not take a value" in message:
        hint = "it is a switch, which takes no value; "
    elif "unexpected extra argument" in message:
        hint = "it takes no further names; "
    elif option:
        hint = _flag_meant(option, command.split()[-1], problem.ctx)
    return complain(
        message[:1].lower() + message[1:],
        f"{hint}`{command} --help` shows what there is",
        EXIT_USAGE,
    )


def _flag_meant(option: str, command: str, ctx: Any) -> str:
    """A hint for a flag that a command has not, which ends with its separator; "" where
    nothing is known. It may be unneeded, have another name, be a key of a variant, or
    be a flag of another command.
    """
    from ffnbench.planning.keys import KEYS

    field = option.lstrip("-").replace("-", "_")
    own = [param.name for param in ctx.command.params]
    if field in UNNEEDED and "budget" in own:
        return "it warms up, and finds out how often to repeat; --budget 30s limits its time; "
    if OTHER_FLAGS.get(field) in own:
        return f"it is called {spelling(OTHER_FLAGS[field])} here; "
    if field in INSTEAD_OF_FLAG:
        return f"{INSTEAD_OF_FLAG[field]}; "
    for key in KEYS:
        # block runs a form as it is written
        is_read = field != "weights" or command != "block"
        if key.name == field and is_read:
            return f"it is a key of a variant, as in {key.example}; "
    for other in command_names():
        typed = [
            option for param in options_of(other).values() for option in param.opts
        ]
        if other != command and spelling(field) in typed:
            return f"`ffnbench {other}` has it; "
    similar = [spelling(name) for name in near(field, own)]
    return f"did you mean {' or '.join(similar)}? " if similar else ""

"""What all public functions share: a mistake is raised as one short exception, and
Ctrl-C as KeyboardInterrupt with what was measured by then; a terminal or a notebook
shows the progress.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from ffnbench.cli.commands import Commands, command_names
from ffnbench.common.errors import FfnbenchError, WrongArgument, interruption
from ffnbench.common.names import hint_for
from ffnbench.common.units import counted
from ffnbench.following import Following
from ffnbench.messages import WORKER_VARIABLE
from ffnbench.planning.keys import KEYS
from ffnbench.python.arguments import ARGUMENTS_HINT
from ffnbench.report.progress import NotebookProgress, TerminalProgress
from ffnbench.report.shown_report import notebook_shell
from ffnbench.run import world

P = ParamSpec("P")
T = TypeVar("T")


def public(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a public function: it keeps its signature, and raises short exceptions
    for mistakes and for an interruption.
    """
    signature = inspect.signature(function)

    @wraps(function)
    def call(*placed: P.args, **named: P.kwargs) -> T:
        try:
            _refuse_unknown(function.__name__, signature, len(placed), named)
            answer = function(*placed, **named)
        except FfnbenchError as problem:
            raise problem.with_traceback(None) from None
        except KeyboardInterrupt:
            raise interruption() from None
        if getattr(answer, "interrupted", False) or getattr(answer, "cut_short", False):
            measured: Any = getattr(answer, "now", answer)  # a check has its report so
            raise interruption(answer if measured.samples else None)
        return answer

    call.__module__ = "ffnbench"
    call.__doc__ = "\n".join(
        [inspect.getdoc(function) or "", *_arguments(signature, function.__name__)]
    )
    return call


def _arguments(signature: inspect.Signature, name: str) -> list[str]:
    """The lines of a docstring that say what each argument means: those of the flags of
    its command; none where no command has the name.
    """
    name = name.removeprefix("time_").replace("_", "-")
    if name not in command_names():
        return []
    params = Commands().get_command(None, name).params
    helps = {param.name.rstrip("_"): param.help for param in params if param.help}
    known = [each for each in signature.parameters if each in helps]
    return ["", "Arguments:", *(f"    {each}: {helps[each]}" for each in known)]


def _refuse_unknown(
    function: str, signature: inspect.Signature, placed: int, named: Any
) -> None:
    """Raise WrongArgument, with did-you-mean, for an unknown name of an argument, and
    for more arguments than may be given by place.
    """
    parameters = signature.parameters
    for name in named:
        if name not in parameters:
            examples = [key.example for key in KEYS if key.name == name]
            if examples:
                hint = f"write it as a key of each variant: {examples[0]!r}"
            else:
                hint = hint_for(name, parameters, ARGUMENTS_HINT)
            raise WrongArgument(f"{function} has no argument {name!r}", hint)
    by_place = [
        parameter
        for parameter in parameters.values()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    if placed > len(by_place):
        hint = "name the others"
        if parameters and next(iter(parameters)) == "variants":
            hint = f"several variants are one list: {function}(['relu', 'gelu'], d_model=512)"
        raise WrongArgument(
            f"{function} has {counted(len(by_place), 'argument')} by place, not {placed}",
            hint,
        )


@dataclass(frozen=True, slots=True)
class CalledHere:
    """What a call needs of this process: the machine, and where its progress is
    shown.
    """

    world: world.World
    progress: TerminalProgress | NotebookProgress

    @property
    def following(self) -> Following:
        """How the run is followed: by its progress alone, without a journal or a run to
        resume.
        """
        return Following(progress=self.progress)


@contextmanager
def called_here(*, quiet: bool = False, wait: bool = False) -> Iterator[CalledHere]:
    """Begin a call, and end its progress with it.

    Raises FfnbenchError inside a worker: it runs the file of a class once more, and a
    call in that file would start workers of its own, and so on.
    """
    if os.environ.get(WORKER_VARIABLE):
        raise FfnbenchError(
            "it calls ffnbench while a worker loads it",
            'put what calls ffnbench under `if __name__ == "__main__":`',
        )
    progress: TerminalProgress | NotebookProgress
    if not quiet and notebook_shell():
        progress = NotebookProgress()
    else:
        terminal = sys.stderr is not None and sys.stderr.isatty()
        progress = TerminalProgress(quiet=quiet or not terminal)
    try:
        yield CalledHere(world.this_machine(wait=wait), progress)
    finally:
        progress.close()

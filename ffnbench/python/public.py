"""What every public function does around its own sentence: a mistake is raised as one short exception, and Ctrl-C as
KeyboardInterrupt, with what was measured by then.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from ffnbench.common.errors import FfnbenchError, WrongArgument, interruption
from ffnbench.ffn.imported import D_FF_NAMES, D_MODEL_NAMES
from ffnbench.following import Following
from ffnbench.messages import MARK
from ffnbench.python.arguments import NAMED
from ffnbench.report.progress import NotebookProgress, TerminalProgress
from ffnbench.report.shown_report import notebook_shell
from ffnbench.run import world

P = ParamSpec("P")
T = TypeVar("T")
ELSEWHERE = {  # what other libraries call an argument
    **dict.fromkeys(D_MODEL_NAMES, "d_model"),
    **dict.fromkeys(D_FF_NAMES, "d_ff"),
    **dict.fromkeys(("sequence_length", "max_seq_len", "seqlen", "n_tokens", "tokens"), "seq_len"),
    **dict.fromkeys(("batch_size", "batchsize", "bs"), "batch"),
    **dict.fromkeys(("num_threads", "n_threads"), "threads"),
    "config": "preset",
}


def public(function: Callable[P, T]) -> Callable[P, T]:
    """Make a function public, with its own signature."""
    parameters = inspect.signature(function).parameters

    @wraps(function)
    def call(*placed: P.args, **named: P.kwargs) -> T:
        try:
            _refuse_unknown(function.__name__, parameters, len(placed), named)
            answer = function(*placed, **named)
        except FfnbenchError as problem:
            raise problem.with_traceback(None) from None
        except KeyboardInterrupt:
            raise interruption() from None
        if getattr(answer, "interrupted", False) or getattr(answer, "cut_short", False):
            measured: Any = getattr(answer, "now", answer)  # of a check, its report
            raise interruption(answer if measured.samples else None)
        return answer

    call.__module__ = "ffnbench"
    return call


def _refuse_unknown(function: str, parameters: Any, placed: int, named: Any) -> None:
    """Raise WrongArgument, with did-you-mean, for an argument that there is not, and for more than there are places."""
    by_place = [name for name, one in parameters.items() if one.kind is one.POSITIONAL_OR_KEYWORD]
    if placed > len(by_place):
        message = f"{function} takes {len(by_place)} argument{'s' if len(by_place) != 1 else ''} by place, not {placed}"
        if by_place == ["variants"]:
            raise WrongArgument(message, f"several variants are one list: {function}(['relu', 'gelu'], d_model=512)")
        raise WrongArgument(message, "name the others")
    for name in named:
        if name not in parameters:
            near = [ELSEWHERE[name]] if ELSEWHERE.get(name) in parameters else get_close_matches(name, parameters, n=1)
            hint = f"did you mean {near[0]!r}?" if near else NAMED
            raise WrongArgument(f"unexpected argument {name!r}", hint)


@dataclass(frozen=True, slots=True)
class CalledHere:
    """A call in this process."""

    world: world.World
    progress: TerminalProgress | NotebookProgress

    @property
    def following(self) -> Following:
        """Its progress alone: nothing is kept, and nothing gone on with."""
        return Following(progress=self.progress)


@contextmanager
def called_here(*, quiet: bool = False, wait: bool = False) -> Iterator[CalledHere]:
    """A call that begins now. A worker runs the file of a class once more: what measures there would start workers of
    its own, and so on; that is refused.
    """
    if os.environ.get(MARK):
        raise FfnbenchError(
            "it calls ffnbench while a worker loads it", 'put what calls ffnbench under `if __name__ == "__main__":`'
        )
    terminal = sys.stderr is not None and sys.stderr.isatty()
    progress: TerminalProgress | NotebookProgress
    if not quiet and notebook_shell():
        progress = NotebookProgress()
    else:
        progress = TerminalProgress(quiet=quiet or not terminal)
    try:
        yield CalledHere(world.this_machine(wait=wait), progress)
    finally:
        progress.close()

"""What every public function does around its own sentence: a mistake is raised as one short exception, and Ctrl-C as
KeyboardInterrupt, with what was measured by then.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from ffnbench.common.errors import FfnbenchError, WrongArgument, interruption
from ffnbench.ffn.imported import D_FF_NAMES, D_MODEL_NAMES
from ffnbench.python.arguments import NAMED

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

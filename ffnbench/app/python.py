"""The functions of Python: those of the commands, and what Python alone has: `build`,
which makes a module, and `load`, which reads a saved run.
"""
# mypy: disable-error-code="arg-type"

import inspect
import sys
from collections.abc import Callable, Collection, Mapping
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from ffnbench.app import commands
from ffnbench.app import options as o
from ffnbench.app.command import command_line, flags_of, values_of
from ffnbench.common.choices import Mode
from ffnbench.common.errors import (
    FfnbenchError,
    WrongArgument,
    interruption,
    wrong_value,
)
from ffnbench.common.names import hint_for

if TYPE_CHECKING:
    from torch import nn

    from ffnbench.report.shown_report import ShownReport as Report

P = ParamSpec("P")
R = TypeVar("R")


def python_function(
    function: Callable[P, R], *, answers: bool = True
) -> Callable[P, R]:
    """A function whose arguments are read as those of a command, and a mistake in them
    is raised as one short exception. One that `answers` shows its progress in a
    terminal.
    """
    signature = inspect.signature(function)
    flags = flags_of(function)
    name = function.__name__

    @wraps(function)
    def call(*placed: P.args, **named: P.kwargs) -> R:
        try:
            given = _bound(name, signature, placed, named)
            answer_of = partial(function, **values_of(flags, given))
            if not answers:
                return answer_of()  # type: ignore[call-arg]
            passed = [n for n, v in given.items() if v is not None and v is not False]
            line = command_line(name, flags, given)
            answer: R = answer_python(answer_of, line, passed)
        except FfnbenchError as problem:
            raise wrong_value(problem).with_traceback(None) from None
        return answer

    parameters = [
        each.replace(annotation=each.annotation.__origin__)
        for each in signature.parameters.values()
    ]
    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    text = inspect.getdoc(function) or ""
    arguments = [f"    {flag.name}: {flag.info.help}" for flag in flags]
    call.__doc__ = "\n".join((text, "", "Arguments:", *arguments))
    call.__module__ = "ffnbench"
    return call


def _bound(
    function: str,
    signature: inspect.Signature,
    placed: tuple[Any, ...],
    named: dict[str, Any],
) -> Mapping[str, Any]:
    """The arguments by their names. Raises WrongArgument, with did-you-mean, for a name
    that the function does not know, and for too many by place.
    """
    hint = f"help(ffnbench.{function}) shows its arguments"
    for name in named.keys() - signature.parameters.keys():
        hint = hint_for(name, signature.parameters, hint)
        raise WrongArgument(f"{function} has no argument {name!r}", hint)
    try:
        return signature.bind(*placed, **named).arguments
    except TypeError as problem:
        raise WrongArgument(f"{function}: {problem}", hint) from None


def answer_python(
    answer_of: Callable[[], Any], line: str, passed: Collection[str]
) -> Any:
    """The answer of a function. A terminal or a notebook shows its progress. Raises
    KeyboardInterrupt at Ctrl-C, with what was measured by then.
    """
    from ffnbench.api.call import Call, calling
    from ffnbench.report.answer import notebook_shell
    from ffnbench.report.progress import TerminalProgress, progress_of

    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    progress = TerminalProgress(quiet=not (is_terminal or notebook_shell()))
    try:
        call = Call(command=line, given=passed, progress=progress_of(progress))
        with calling(call):
            answer = answer_of()
    except KeyboardInterrupt:
        raise interruption() from None
    finally:
        progress.close()
    if getattr(answer, "interrupted", False) or getattr(answer, "cut_short", False):
        measured: Any = getattr(answer, "now", answer)  # a check has its report so
        raise interruption(answer if measured.samples else None)
    return answer


@partial(python_function, answers=False)
def build(
    variants: o.Variants,
    *,
    d_model: o.DModel = None,
    d_ff: o.DFF = None,
    match: o.Match = "params",
    dtype: o.DType = "float32",
    device: o.AnyDevice = None,
) -> "nn.Module":
    """The nn.Module of one variant, in this process: maps (..., d_model) to (...,
    d_model).

    Widths follow the same rules as in `compare`: a gated form has the parameters of the
    classic one at 4 * d_model unless d_ff, rule or match="none" say otherwise.
    `@dtype=` and `@device=` in the variant work too.

    >>> module = ffnbench.build("swiglu", d_model=768)
    """
    from ffnbench.api.building import build_planned

    flags = {
        "d_model": d_model,
        "dtype": dtype,
        "mode": (Mode.FORWARD,),
        "threads": (1,),
        "batch": (1,),
        "d_ff": d_ff,
        "device": ("auto",),
    }
    return build_planned(variants, flags, device, match=match)


@partial(python_function, answers=False)
def load(path: o.File) -> "Report":
    """A saved run, by `Report.save("run.json")` or `-o run.json`; its figures are
    computed again from its samples.

    >>> report = ffnbench.load("run.json")
    """
    from ffnbench.api.saved_runs import load_shown

    return load_shown(path)


ab = python_function(commands.ab)
activations = python_function(commands.activations)
block = python_function(commands.block)
check = python_function(commands.check)
compare = python_function(commands.compare)
cost = python_function(commands.cost)
inspect_ = python_function(commands.inspect)
plot_activations = python_function(commands.plot_activations)

"""What makes a function public: its signature and its help come from the bundle of flags that it asks by.

A mistake is raised as one short exception. Ctrl-C is raised as KeyboardInterrupt, with what was measured by then.
"""

from __future__ import annotations

import inspect
import os
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from typing import Any, TypeVar

from ffnbench.errors import FfnbenchError, WrongArgument, interruption
from ffnbench.python.arguments import NAMED, Argument, TypeText, arguments_of, as_python, request_of, shown
from ffnbench.python.following import Following
from ffnbench.request import CompareRequest, Request
from ffnbench.worker.channel import MARK

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
PATHS = ("path", "model")
WIDTH = 110  # of a line of help
QUIET, WAIT, PATH, DEVICE = "quiet", "wait", "path", "device"
BESIDE = {  # arguments that are of the call, and not of what is asked
    QUIET: ("bool", False, "No progress bar, and no line about the machine."),
    WAIT: ("bool", False, "Wait while another run of ffnbench measures on this machine."),
    DEVICE: ("str | torch.device | None", None, "torch's device."),
    PATH: ("str | os.PathLike[str] | None", None, "Write the picture there (.png, .svg, .pdf; .csv: its points)."),
}


def asks(
    kind: type[Request], *, first: Sequence[str] = (), hidden: tuple[str, ...] = (), beside: Sequence[str] = ()
) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Make a public function of one that takes a request and what follows it; `first` may be given by place."""

    def public(function: Callable[..., T]) -> Callable[..., T]:
        parameters = _parameters(kind, first, hidden, beside)
        names = [one.name for one in parameters]
        known = arguments_of(kind)

        @wraps(function)
        def call(*places: Any, **named: Any) -> T:
            given = _placed(function.__name__, first, places) | named
            own = {name: given.pop(name) for name in beside if name in given}
            following = {name: own.pop(name) for name in (QUIET, WAIT) if name in own}
            try:
                if DEVICE not in beside:  # a factory in a file may build
                    _refuse_within_worker(function.__name__)
                request = request_of(kind, given, hidden, names)
                with Following(**following, spoken=partial(as_python, known=known)) as sink:
                    found = function(request, sink, **own)
            except FfnbenchError as problem:
                raise in_python(problem, known) from None
            except KeyboardInterrupt:
                raise interruption() from None
            if getattr(found, "interrupted", False) or getattr(found, "cut_short", False):
                raise interruption(found if _measured(found) else None)
            return found

        returns = function.__annotations__["return"]
        call.__signature__ = inspect.Signature(parameters, return_annotation=TypeText(returns))  # type: ignore[attr-defined]
        call.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": TypeText(returns)}
        call.__doc__ = f"{inspect.getdoc(function)}\n\n{_told(kind, names, hidden)}"
        call.__module__ = "ffnbench"
        del call.__wrapped__  # type: ignore[attr-defined]
        return call

    return public


def spoken(function: F) -> F:
    """A public function without a request: a mistake is one short exception here too."""
    signature = inspect.signature(function)

    @wraps(function)
    def call(*places: Any, **named: Any) -> Any:
        try:
            try:
                bound = signature.bind(*places, **named)
            except TypeError as problem:
                raise WrongArgument(f"{function.__name__}: {problem}", NAMED) from None
            for name, value in bound.arguments.items():
                if name in PATHS and not isinstance(value, str | os.PathLike):
                    raise WrongArgument(f"{name} must be a text or a path, not {shown(value)}", NAMED)
            return function(*places, **named)
        except FfnbenchError as problem:
            raise in_python(problem, arguments_of(CompareRequest)) from None

    call.__module__ = "ffnbench"
    return call  # type: ignore[return-value]


def in_python(problem: FfnbenchError, known: Mapping[str, Argument]) -> FfnbenchError:
    """An error in the words of a call: arguments in the place of flags, and no traceback of what is inside."""
    problem.message, problem.hint = as_python(problem.message, known), as_python(problem.hint, known)
    problem.args = (problem.message,)
    return problem.with_traceback(None)


def _measured(found: Any) -> bool:
    """Whether a report, or the one that a check made, holds anything."""
    return bool(getattr(found, "samples", ()) or getattr(getattr(found, "now", None), "samples", ()))


def _parameters(
    kind: type[Request], first: Sequence[str], hidden: tuple[str, ...], beside: Sequence[str]
) -> list[inspect.Parameter]:
    known = arguments_of(kind, hidden)
    place, name_only = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    found = [
        inspect.Parameter(name, place if name in first else name_only, default=one.default, annotation=one.kind)
        for name in (*first, *(name for name in known if name not in first))
        for one in [known[name]]
    ]
    return found + [
        inspect.Parameter(name, name_only, default=BESIDE[name][1], annotation=TypeText(BESIDE[name][0]))
        for name in beside
    ]


def _placed(name: str, first: Sequence[str], places: tuple[Any, ...]) -> dict[str, Any]:
    """Arguments that were given by place; raises WrongArgument for more than there are places."""
    if len(places) > len(first):
        takes = f"{len(first)} argument{'s' * (len(first) != 1)} by place"
        several = first == ("variants",) and f"several variants are one list: {name}(['relu', 'gelu'], d_model=512)"
        hint = several or f"name the others: {name}(..., quiet=True)"
        raise WrongArgument(f"{name} takes {takes}, not {len(places)}", hint)
    return dict(zip(first, places, strict=False))


def _told(kind: type[Request], names: Sequence[str], hidden: tuple[str, ...]) -> str:
    known = arguments_of(kind, hidden)
    return _listed({name: known[name].help if name in known else BESIDE[name][2] for name in names})


def _listed(told: dict[str, str]) -> str:
    """What arguments mean, a line each."""
    lines = (
        textwrap.fill(f"{name}: {text}", WIDTH, initial_indent="    ", subsequent_indent="        ")
        for name, text in told.items()
    )
    return "Arguments:\n" + "\n".join(lines)


def _refuse_within_worker(name: str) -> None:
    """A worker runs the file of a class once more: what measures there would start workers of its own, and so on."""
    if os.environ.get(MARK):
        raise FfnbenchError(
            f"it calls ffnbench.{name} while a worker loads it",
            'put what calls ffnbench under `if __name__ == "__main__":`',
        )

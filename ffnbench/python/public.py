"""What makes a function public: its signature and its help come from the bundle of flags that it asks by.

A mistake is raised as one short exception. Ctrl-C is raised as KeyboardInterrupt, with what was measured by then.
"""

from __future__ import annotations

import inspect
import os
import textwrap
from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any, TypeVar

from ffnbench.errors import FfnbenchError, WrongArgument, interruption
from ffnbench.planning.fields import flag_of, typed_order
from ffnbench.python import following
from ffnbench.python.arguments import FOLLOWING, Argument, TypeText, arguments_of, as_python, unknown_argument
from ffnbench.request import Request
from ffnbench.worker.channel import MARK

T = TypeVar("T")
WIDTH = 110  # of a line of help


def asks(
    kind: type[Request], *, hidden: tuple[str, ...] = (), follows: bool = False, in_worker: bool = False
) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Make a public function of one that takes a request and what follows it; further parameters are its own.

    `hidden` are fields that are no arguments. A call that `follows` takes `quiet` and `wait`. Only one with `in_worker`
    may be called while a worker loads a file.
    """

    def public(function: Callable[..., T]) -> Callable[..., T]:
        known, words = arguments_of(kind, hidden), arguments_of(kind)
        every = known | FOLLOWING if follows else known
        places = [name for name, one in known.items() if flag_of(one.field).place]
        by_name = inspect.Parameter.KEYWORD_ONLY
        parameters = [
            inspect.Parameter(
                name, inspect.Parameter.POSITIONAL_OR_KEYWORD if name in places else by_name, default=one.default,
                annotation=one.type,
            )
            for name, one in every.items()
        ]  # fmt: skip
        _, _, *others = inspect.signature(function).parameters.values()
        parameters += [one.replace(kind=by_name, annotation=TypeText(one.annotation)) for one in others]
        names = [one.name for one in parameters]

        @wraps(function)
        def call(*placed: Any, **named: Any) -> T:
            try:
                given = _by_name(function.__name__, places, placed) | named
                if os.environ.get(MARK) and not in_worker:
                    raise _within_worker(function.__name__)
                if unknown := [name for name in given if name not in names]:
                    raise unknown_argument(unknown[0], names)
                values = {name: every[name].value(one) if name in every else one for name, one in given.items()}
                request = _request(kind, known, values)
                follow = {name: values.pop(name) for name in FOLLOWING if name in values}
                here = following.call(**follow, spoken=partial(as_python, known=words))
                try:
                    found = function(request, here, **values)
                finally:
                    here.progress.close()
            except FfnbenchError as problem:
                for name in ("message", "hint"):  # in the words of a call
                    setattr(problem, name, as_python(getattr(problem, name), words))
                problem.args = (problem.message,)
                raise problem.with_traceback(None) from None
            except KeyboardInterrupt:
                raise interruption() from None
            if getattr(found, "interrupted", False) or getattr(found, "cut_short", False):
                measured: Any = getattr(found, "now", found)  # of a check, its report
                raise interruption(found if measured.samples else None)
            return found

        returns = TypeText(function.__annotations__["return"])
        told = "\n".join(_told(name, one.help) for name, one in every.items())
        call.__signature__ = inspect.Signature(parameters, return_annotation=returns)  # type: ignore[attr-defined]
        call.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": returns}
        call.__doc__ = f"{inspect.getdoc(function)}\n\nArguments:\n{told}"
        call.__module__ = "ffnbench"
        del call.__wrapped__  # type: ignore[attr-defined]
        return call

    return public


def _request(kind: type[Request], known: Mapping[str, Argument], values: dict[str, Any]) -> Request:
    """The request of those values that are its own, taken out of them."""
    asked = {name: values.pop(name) for name in list(values) if name in known}
    return kind(**{known[name].field.name: value for name, value in asked.items()}, typed=typed_order(asked))


def _by_name(function: str, names: list[str], placed: tuple[Any, ...]) -> dict[str, Any]:
    """Arguments that were given by place; raises WrongArgument for more than there are places."""
    if len(placed) > len(names):
        takes = f"{len(names)} argument{'s' * (len(names) != 1)} by place"
        several = names == ["variants"] and f"several variants are one list: {function}(['relu', 'gelu'], d_model=512)"
        raise WrongArgument(f"{function} takes {takes}, not {len(placed)}", several or "name the others")
    return dict(zip(names, placed, strict=False))


def _told(name: str, text: str) -> str:
    """What an argument means, as it stands in the help."""
    return textwrap.fill(f"{name}: {text}", WIDTH, initial_indent="    ", subsequent_indent="        ")


def _within_worker(name: str) -> FfnbenchError:
    """A worker runs the file of a class once more: what measures there would start workers of its own, and so on."""
    return FfnbenchError(
        f"it calls ffnbench.{name} while a worker loads it",
        'put what calls ffnbench under `if __name__ == "__main__":`',
    )

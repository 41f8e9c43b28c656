"""The errors of ffnbench: each has a message of what happened, a hint of what to do,
and an exit code.

Exit codes live here so that no command invents its own: 2 is the user's input (nothing
was measured), 3 is "could not finish". Code 1 is kept for a check that found a
regression and is never used for an error.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ffnbench.common.streams import short, with_short_inputs

TERMINATIONS = (signal.SIGTERM, signal.SIGHUP)
EXIT_REGRESSED = 1
EXIT_USAGE = 2
EXIT_UNFINISHED = 3
EXIT_INTERRUPTED = 130


class FfnbenchError(Exception):
    """A mistake that the user can mend: shown as one `error:` line and one `hint:`
    line, never as a traceback.
    """

    exit_code = EXIT_USAGE

    def __init__(self, message: str, hint: str = "") -> None:
        message = with_short_inputs(message)
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        """Message and hint: Python shows this where nobody catches the exception."""
        if not self.hint:
            return self.message
        return f"{self.message}\nhint: {self.hint}"

    def _render_traceback_(self, *_: object) -> list[str]:
        """The lines that a notebook shows in place of a traceback."""
        lines = [f"error: {short(self.message)}"]
        if self.hint:
            lines.append(f"hint: {short(self.hint)}")
        return lines


class Unfinished(FfnbenchError):
    """The run started and could not give an answer."""

    exit_code = EXIT_UNFINISHED


class Unsupported(FfnbenchError):
    """What was asked for is no mistake, but torch can't do it on this device. It
    becomes a row without numbers.
    """


class Raised(Unsupported):
    """Code of the user has raised an exception while it was built. It becomes a row
    that crashed.
    """


class Interrupted(FfnbenchError):
    """The user ended the run before there was anything to save."""

    exit_code = EXIT_INTERRUPTED


class WrongArgument(FfnbenchError, TypeError, ValueError):
    """A Python call has an argument that the function does not have, or a value of the
    wrong type.
    """


class WrongValue(FfnbenchError, ValueError):
    """An argument of a Python call has a value that it can't have."""


def wrong_value(problem: FfnbenchError) -> FfnbenchError:
    """A mistake as Python raises it: a ValueError too, unless it is one of another
    kind.
    """
    if type(problem) is not FfnbenchError:
        return problem
    return WrongValue(problem.message, problem.hint)


def interruption(report: Any = None) -> KeyboardInterrupt:
    """The exception of Ctrl-C while a Python call measured: its `report` is what was
    measured by then, None where nothing was.

    It is a plain KeyboardInterrupt with an attribute, not a class of its own: so a
    script that it ends is ended by SIGINT, and a loop of a shell around it ends too.
    """
    message = "interrupted before the answer was complete"
    if report is not None:
        message += "; its .report holds what was measured by then"
    problem: Any = KeyboardInterrupt(message)
    problem.report = report
    problem._render_traceback_ = lambda *_: [f"KeyboardInterrupt: {problem}"]
    return problem  # type: ignore[no-any-return]


@contextmanager
def termination_as_interruption() -> Iterator[None]:
    """Raise KeyboardInterrupt at the first SIGTERM or SIGHUP; further ones are ignored,
    so that they do not disturb the cleaning up.

    A SIGHUP that is ignored before (nohup) stays ignored.
    """
    terminating = [
        number
        for number in TERMINATIONS
        if signal.getsignal(number) is not signal.SIG_IGN
    ]

    def interrupt(*_: object) -> None:
        for number in terminating:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    try:
        handlers = [signal.signal(number, interrupt) for number in terminating]
    except ValueError:  # signals belong to the main thread
        yield
        return
    try:
        yield
    finally:
        for number, handler in zip(terminating, handlers, strict=True):
            signal.signal(number, handler)


def complain(message: str, hint: str, code: int) -> int:
    """Write an `error:` and a `hint:` to stderr; gives the exit code back."""
    try:
        print(f"error: {short(message)}", file=sys.stderr)
        if hint:
            print(f"hint: {short(hint)}", file=sys.stderr)
    except OSError:  # nobody reads stderr: only the exit code is left
        pass
    return code

"""Turns an exception into the answer to a request: a kind, one line, and whether the
worker can be used afterwards. Needs torch.

It is loaded when something has failed.
"""

from __future__ import annotations

import re

from ffnbench.common.errors import FfnbenchError, Raised, Unsupported
from ffnbench.common.targets import one_line
from ffnbench.device.accelerator import device_error, first_line, is_full
from ffnbench.record.messages import Failed
from ffnbench.record.result import FailureKind
from ffnbench.worker.backends.compiling import Recompiled, why_not_compiled
from ffnbench.worker.correctness import Mismatch

RECOMPILED = "FailOnRecompileLimitHit"  # of torch's compiler, which is not loaded here
ALLOCATING = re.compile(r"you tried to allocate (\d+) bytes")


def failure_of(problem: BaseException, *, compiled: bool, measures: bool) -> Failed:
    """The answer to a request that raised. `compiled` is whether it was about a case
    that is compiled, `measures` whether there is a plan that is measured.

    A failure ends this process where it has broken its device, or where torch.compile
    failed: what a compiler leaves behind then makes later rows of a process wrong.
    """
    broken = device_error(problem)
    if broken:
        return Failed(kind=FailureKind.CRASH, message=broken, ends_process=True)
    if not isinstance(problem, FfnbenchError):
        ends_process = compiled and not _leaves_compiler_intact(problem)
        return Failed(
            kind=_kind_of(problem),
            message=_message_of(problem),
            ends_process=ends_process,
        )
    cause = problem.__cause__  # of an error of ours, the exception that led to it
    ends_process = compiled and cause is not None and not _leaves_compiler_intact(cause)
    # code of the user's that raises is a crash of its case; while a plan is made, there
    # is no case yet
    unsupported = isinstance(problem, Unsupported) and (
        not measures or not isinstance(problem, Raised)
    )
    kind = FailureKind.UNSUPPORTED if unsupported else FailureKind.CRASH
    return Failed(
        kind=kind, message=problem.message, hint=problem.hint, ends_process=ends_process
    )


def _is_recompiled(problem: BaseException) -> bool:
    return isinstance(problem, Recompiled) or type(problem).__name__ == RECOMPILED


def _leaves_compiler_intact(problem: BaseException) -> bool:
    """Whether torch.compile works as before after this failure."""
    return isinstance(problem, Mismatch) or _is_recompiled(problem)


def _kind_of(problem: BaseException) -> FailureKind:
    text = str(problem)
    full = (
        is_full(problem)
        or "can't allocate memory" in text
        or "not enough memory" in text
    )
    if full or isinstance(problem, MemoryError):
        return FailureKind.OOM
    if (
        isinstance(problem, NotImplementedError)
        or "not implemented for" in text
        or why_not_compiled(problem)
    ):
        return FailureKind.UNSUPPORTED
    if isinstance(problem, Mismatch):
        return FailureKind.MISMATCH
    if _is_recompiled(problem):
        return FailureKind.RECOMPILED
    return FailureKind.CRASH


def _message_of(problem: BaseException) -> str:
    """What an exception that is none of ours says, in one line."""
    text = " ".join(str(problem).split())
    asked = ALLOCATING.search(text)
    if asked:
        return f"it tried to allocate {int(asked[1]) / 2**30:,.2f} GiB at once"
    if is_full(problem):
        return first_line(str(problem))
    if isinstance(problem, Mismatch | Recompiled):
        return text
    return why_not_compiled(problem) or one_line(problem)

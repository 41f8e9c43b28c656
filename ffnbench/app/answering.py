"""Calls a command's function, and shows its answer or gives it to Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ffnbench.api.call import Call, calling
from ffnbench.report.answer import Drawing
from ffnbench.report.destination import Destination


def show_answer(
    answer_of: Callable[[], Any],
    shown: dict[str, Any],
    given: Mapping[str, Any],
    *,
    command: str,
    line: str,
    checks: bool = False,
    default_out: str = "",
    **how: Any,
) -> int:
    """Show the answer of a command; gives the exit code.

    `shown` and `how` are arguments of Destination; `given` is what was typed: no file
    that it names is written over. `line` asks the same again. `checks` says that the
    answer is that of a check. `default_out` is written where no file is asked for.
    """
    if default_out:
        shown["out"] = shown["out"] or (default_out,)
    if shown.get("out"):
        from ffnbench.report.files import inputs_of

        how["inputs"] = inputs_of(*given.values())
    kind = Destination
    if checks:
        from ffnbench.gate.shown_check import CheckDestination

        kind, command = CheckDestination, "check"
        how["baseline"] = str(given.get("baseline", ""))
    with kind(command, **shown, **how) as destination:
        call = Call(
            command=line,
            given=given.keys(),
            progress=destination.progress,
            destination=destination,
        )
        with calling(call):
            answer = answer_of()
        if isinstance(answer, Drawing):
            destination.draw(answer)
        else:
            destination.show(answer)
    return destination.code

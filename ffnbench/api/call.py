"""A call of a command, from a shell or from Python: what it has from outside, and how
it measures or counts its plan.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ffnbench.api.preparing import Prepared, refuse_device, with_costs
from ffnbench.common.choices import WORKER_VARIABLE
from ffnbench.common.errors import FfnbenchError
from ffnbench.plan.plan import Plan, Probe
from ffnbench.plan.reading import spelling
from ffnbench.record.progress import SILENT, Progress

if TYPE_CHECKING:
    from ffnbench.record.hardware import Hardware
    from ffnbench.record.result import Report
    from ffnbench.report.destination import Destination
    from ffnbench.report.shown_report import ShownReport
    from ffnbench.run.world import World


@dataclass(kw_only=True)
class Call:
    """`command` asks the same again. `given` are the names of the arguments that were
    typed or passed, without switches that are off. `destination` is where a command
    shows its answer; None in Python.
    """

    command: str
    given: Collection[str] = ()
    progress: Progress = SILENT
    destination: Destination | None = None
    closing: ExitStack = field(default_factory=ExitStack)

    @cached_property
    def world(self) -> World:
        """The machine."""
        from ffnbench.run import world

        return world.this_machine()

    @property
    def updates(self) -> bool:
        """Whether the run will replace a baseline."""
        return self.destination is not None and self.destination.updates

    def probe(
        self, timeout_s: float, devices: Sequence[str] = (), names: str | None = "@"
    ) -> Any:
        """What learns something of the user's code, until the call ends; of `names`
        without a key and without code of the user's there is nothing to learn.

        Raises FfnbenchError for one of these devices that this machine has not.
        """
        as_jobs = self.destination is not None and self.destination.on
        for device in devices:
            if device not in ("auto", "cpu") and not as_jobs:
                refuse_device(device, self.world)
        if not {":", "@"} & {*(names or "")}:
            return Probe()
        return self.closing.enter_context(self.world.prober(timeout_s))

    def refuse_unread(self, why: str, *flags: str) -> None:
        """Raise FfnbenchError for a flag that is given and has no effect."""
        for name in flags:
            if name in self.given:
                raise FfnbenchError(
                    f"{spelling(name)} has no effect {why}", "leave it out"
                )

    def told(self, plan: Plan) -> Plan:
        """The plan with the command that asks the same again."""
        return replace(plan, command=self.command)

    def count(
        self,
        plan: Plan,
        probe: Probe,
        machines: Sequence[Hardware] = (),
        *,
        lenient: bool = True,
    ) -> ShownReport:
        """The costs of a plan, with the bounds on these machines."""
        return with_costs(self.told(plan), probe, lenient=lenient).cost_report(machines)

    def measure(
        self, plan: Plan, probe: Probe, *, lenient: bool = False
    ) -> ShownReport:
        """Count the costs of a plan, and measure it."""
        return self.measure_prepared(
            with_costs(self.told(plan), probe, lenient=lenient)
        )

    def measure_prepared(
        self,
        prepared: Prepared,
        *,
        text_of: Callable[[Report], str] | None = None,
        **how: Any,
    ) -> ShownReport:
        """Measure what was prepared. `text_of` makes the text of the file that is
        written meanwhile, where that is more than the run; `how` is of measure_plan.
        """
        from ffnbench.api.measuring import measure_plan

        if self.destination is None:
            return measure_plan(prepared, self.world, self.progress, **how)
        file, on = self.destination.file, self.destination.on
        if on:
            from ffnbench.api.cluster import measure_as_jobs

            return measure_as_jobs(prepared, self.progress, file, on)
        if file is not None and text_of is not None:
            file.text_of = text_of
        return measure_plan(prepared, self.world, self.progress, file, **how)


_CALL: ContextVar[Call] = ContextVar("call")


def this_call() -> Call:
    """The call that this function serves."""
    return _CALL.get()


@contextmanager
def calling(call: Call) -> Iterator[None]:
    """Make it the call of this context, and end what it has opened.

    Raises FfnbenchError inside a worker: it runs the file of a class once more, and a
    call in that file would start workers of its own, and so on.
    """
    if os.environ.get(WORKER_VARIABLE):
        raise FfnbenchError(
            "it calls ffnbench while a worker loads it",
            'put what calls ffnbench under `if __name__ == "__main__":`',
        )
    token = _CALL.set(call)
    try:
        with call.closing:
            yield
    finally:
        _CALL.reset(token)

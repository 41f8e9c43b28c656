"""The workers of a plan with several arms, one of each, alive at once: the runner speaks to them as to one worker.

Each case goes to the process of its arm. The runner asks for one sample at a time, so that only one of them works;
and the next one waits until the threads of the last have gone to sleep. OpenMP's spin for some milliseconds after
their work, on the CPUs that the next process needs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ffnbench.bench.channel import Message
from ffnbench.plan import CONTROL, OWN, Arm, Plan
from ffnbench.result import Side


class Worker(Protocol):
    """What the runner needs of a worker; the tests' fake one has no process and no torch."""

    settle_s: float  # how long its threads spin on after their work

    def greeting(self) -> dict[str, Any]: ...
    def ask(self, request: Message, timeout_s: float) -> Message: ...
    def close(self) -> None: ...


Launch = Callable[..., Worker]  # of an arm; without one of this process's own


def start_for(plan: Plan, launch: Launch) -> Worker:
    """What measures a plan: a plain worker where nothing has an arm of its own, else a group of them."""
    return launch() if plan.arms == (OWN,) else WorkerGroup(plan, launch)


class WorkerGroup:
    """One worker of each arm. Where one is lost, all are: what they had in common was the moment."""

    settle_s = 0.0  # it waits between its own

    def __init__(self, plan: Plan, launch: Launch, pause: Callable[[float], None] = time.sleep) -> None:
        self._pause = pause
        self._last: Worker | None = None
        self._awake: Worker | None = None  # whose threads and caches a sample has just warmed
        self._first = plan.arms[0]
        self._arm_of = {case.label: case.arm for case in plan.cases}
        self._members: dict[Arm, Worker] = {}
        try:
            for arm in plan.arms:
                self._members[arm] = launch(arm)
        except BaseException:
            self.close()
            raise

    def greeting(self) -> dict[str, Any]:
        """Those of the reference's worker, the GPUs that all of them see, and under `arms` what each says of itself."""
        told = {arm: member.greeting() for arm, member in self._members.items()}
        arms = [(arm, self._cases(arm), said.get("build", {})) for arm, said in told.items()]
        fewest = min(said["gpus"] for said in told.values())
        return told[self._first] | {"gpus": fewest, "arms": [found for found in arms if found[1] != (CONTROL,)]}

    def ask(self, request: Message, timeout_s: float) -> Message:
        """The plan goes to all of them, each its own part; anything else to the worker of its case."""
        if request["do"] != "plan":
            return self._turn(self._members[self._arm_of[request["label"]]], request, timeout_s)
        answers = [member.ask(self._part(request, arm), timeout_s) for arm, member in self._members.items()]
        return next((answer for answer in answers if "failure" in answer), answers[0])

    def _turn(self, member: Worker, request: Message, timeout_s: float) -> Message:
        """The next works once the last has settled; its own threads and caches wake in a sample that is not kept."""
        if self._last is not None and self._last is not member:
            self._pause(self._last.settle_s)
        if request["do"] == "sample" and self._awake is not member:
            woken = member.ask(request, timeout_s)
            if woken.get("ends"):  # it answers no second time
                return woken
        self._last, self._awake = member, member if request["do"] in ("sample", "roof") else None
        return member.ask(request, timeout_s)

    def close(self) -> None:
        """End every one."""
        for member in self._members.values():
            member.close()

    def _cases(self, arm: Arm) -> tuple[str, ...]:
        return tuple(label for label, own in self._arm_of.items() if own == arm)

    def _part(self, request: Message, arm: Arm) -> Message:
        mine = self._cases(arm)
        cases = [case for case in request["plan"]["cases"] if case["label"] in mine]
        return {**request, "plan": {**request["plan"], "cases": cases}}


NONE = "none"


def sides_of(told: Sequence[tuple[Arm, tuple[str, ...], dict[str, str]]]) -> tuple[Side, ...]:
    """Of each arm its cases and what its worker told: kept is what differs."""
    facts = [_own(arm) | said for arm, _, said in told]
    names = dict.fromkeys(name for found in facts for name in found)
    differ = [name for name in names if len({found.get(name, NONE) for found in facts}) > 1]
    return tuple(
        Side(
            name=arm.name or ", ".join(cases),
            cases=cases,
            differing=tuple((name, found.get(name, NONE)) for name in differ),
        )
        for (arm, cases, _), found in zip(told, facts, strict=True)
    )


def _own(arm: Arm) -> dict[str, str]:
    """What the arm itself says; a name tells its source better than a path."""
    source = {"source": arm.source} if arm.source and not arm.name else {}
    return {"interpreter": arm.python or "ffnbench's own"} | source | dict(arm.env)

"""The processes of a plan with several arms, one of each, alive at once: the runner speaks to them as to one worker.

Each case goes to the process of its arm. The runner asks for one sample at a time, so that only one of them works.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ffnbench.plan import CONTROL, OWN, Arm, Plan
from ffnbench.result import Side
from ffnbench.worker.channel import Message


class Worker(Protocol):
    """What the runner needs of a worker; the tests' fake one has no process and no torch."""

    def greeting(self) -> dict[str, Any]: ...
    def ask(self, request: Message, timeout_s: float) -> Message: ...
    def rest(self, rests: bool) -> None: ...
    def close(self) -> None: ...


class Starter(Worker, Protocol):
    """A process that can be forked, or serves as a worker itself."""

    @property
    def ended(self) -> bool: ...
    def fork(self, timeout_s: float) -> Worker | None: ...


Launch = Callable[..., Starter]  # of an arm; without one of this process's own


def start_for(plan: Plan, launch: Launch) -> Starter:
    """What measures a plan: a plain process where nothing has an arm of its own, else a group of them."""
    if plan.arms == (OWN,):
        return launch()
    members: dict[Arm, Starter] = {}
    try:
        for arm in plan.arms:
            members[arm] = launch(arm)
    except BaseException:
        for member in members.values():
            member.close()
        raise
    return WorkerGroup(plan, members)


class WorkerGroup:
    """One process of each arm. Where one is lost, all are: what they had in common was the moment."""

    def __init__(self, plan: Plan, members: Mapping[Arm, Worker]) -> None:
        self._plan, self._members = plan, members
        self._arm_of = {case.label: case.arm for case in plan.cases}

    @property
    def ended(self) -> bool:
        """Whether one of them has ended."""
        return any(member.ended for member in self._members.values())  # type: ignore[attr-defined]

    def fork(self, timeout_s: float) -> WorkerGroup | None:
        """A fork of each; None where one can't be forked."""
        forks: dict[Arm, Worker] = {}
        self.rest(False)
        for arm, member in self._members.items():
            if (fork := member.fork(timeout_s)) is None:  # type: ignore[attr-defined]
                for made in forks.values():
                    made.close()
                return None
            forks[arm] = fork
        return WorkerGroup(self._plan, forks)

    def part(self, plan: Plan) -> WorkerGroup:
        """Its processes that a plan with fewer cases needs."""
        return WorkerGroup(plan, {arm: self._members[arm] for arm in plan.arms})

    def greeting(self) -> dict[str, Any]:
        """Those of the reference's, the GPUs that all of them see, and under `arms` what each says of itself."""
        told = {arm: member.greeting() for arm, member in self._members.items()}
        arms = [(arm, self._cases(arm), said.get("build", {})) for arm, said in told.items()]
        fewest = min(said["gpus"] for said in told.values())
        found = [one for one in arms if one[1] != (CONTROL,)]
        return told[self._plan.arms[0]] | {"gpus": fewest, "arms": found}

    def ask(self, request: Message, timeout_s: float) -> Message:
        """What is for all goes to all of them, the plan in parts; anything else to the process of its case."""
        if label := request.get("label"):
            return self._ask(self._arm_of[label], request, timeout_s)
        answers = [self._ask(arm, self._part(request, arm), timeout_s) for arm in self._members]
        return next((answer for answer in answers if "failure" in answer), answers[0])

    def _ask(self, arm: Arm, request: Message, timeout_s: float) -> Message:
        """Ask one while the others are stopped: their OpenMP threads spin for some milliseconds after a product, on the
        CPUs that it needs.
        """
        member = self._members[arm]
        member.rest(False)
        try:
            return member.ask(request, timeout_s)
        finally:
            member.rest(True)

    def rest(self, rests: bool) -> None:
        """Stop all, or let them go on."""
        for member in self._members.values():
            member.rest(rests)

    def close(self) -> None:
        """End every one."""
        self.rest(False)
        for member in self._members.values():
            member.close()

    def _cases(self, arm: Arm) -> tuple[str, ...]:
        return tuple(label for label, own in self._arm_of.items() if own == arm)

    def _part(self, request: Message, arm: Arm) -> Message:
        if "plan" not in request:
            return request
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

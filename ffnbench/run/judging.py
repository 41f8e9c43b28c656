"""What the parent does about outputs of timed calls: it draws the calls, keeps what comes, asks a judge, and decides.

The judge is a worker of its own that times nothing, forked when there is something to judge and nothing is measured. No
torch here.
"""

from __future__ import annotations

import random
import secrets
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ffnbench import jsonable
from ffnbench.ffn.spec import ImportedSpec
from ffnbench.plan import CONTROL, Case, Plan
from ffnbench.result import Against, Judged
from ffnbench.run.session import WorkerLost
from ffnbench.run.worker_pool import Launch, Worker, start_for
from ffnbench.worker.channel import Message

SHARE = 0.01  # of a run's time that judging may take, once every case has been judged
AT_FIRST_S = 0.05  # for each case
FIRST_S = 20.0  # of a run, before anything is judged: so soon a long one finds a case that goes on for nothing
NO_FAULT = ("oom", "unsupported")  # of a module that its judge can't build
KEPT = 200  # pieces of evidence of a case that wait, at most: later ones take the places of others


@dataclass(slots=True)
class OutputChecks:
    """The judge of a run. Without a `launch` there is none, and no output is looked at. `aside` forks one for a plan;
    where that gives None, one is launched and stays.
    """

    launch: Launch | None
    weights: str
    wait_s: Callable[[], float]  # for an answer; 0 where there is no time for one
    now: Callable[[], float]
    aside: Callable[[Plan], Worker | None] = lambda _: None
    seconds: float = 0.0
    _worker: Worker | None = None
    _stays: bool = False
    _waiting: dict[str, list[Message]] = field(default_factory=lambda: defaultdict(list))
    _found: dict[str, Judged] = field(default_factory=dict)
    _losses: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    @property
    def enabled(self) -> bool:
        """Whether outputs are judged."""
        return self.launch is not None

    def draw(self, calls: int) -> Message:
        """Of a sample of so many calls: the `salt` that its inputs are made of, and the calls, in order, whose outputs
        are looked at: one, and in a quarter of the samples another, so that a look which was noticed need not be the
        last. No seed tells them in advance.
        """
        looks = {secrets.randbelow(calls) for _ in range(2 if secrets.randbelow(4) == 0 else 1)}
        return {"salt": secrets.randbits(56), "looks": sorted(looks) if self.enabled else []}

    def add_evidence(self, label: str, evidence: Message) -> None:
        """Keep what a sample has told."""
        waiting = self._waiting[label]
        if len(waiting) < KEPT:
            waiting.append(evidence)
        else:
            waiting[random.randrange(KEPT)] = evidence

    def seconds_to_judge(self, label: str, elapsed_s: float, *, at_the_end: bool = False) -> float:
        """For how many seconds a case may be judged now; 0 where it has to wait, or nothing waits. A short run is
        judged at its end alone.
        """
        if not self._waiting.get(label) or (elapsed_s < FIRST_S and not at_the_end):
            return 0.0
        left = (SHARE * elapsed_s - self.seconds) / max(1, len(self._waiting))
        return AT_FIRST_S if label not in self._found or (at_the_end and left <= 0) else max(0.0, left)

    def judge(self, label: str, seconds: float, plan: Plan) -> str:
        """Judge what waits of a case. Gives why it is suspect, "" where it is not."""
        evidence, case = self._waiting.pop(label), plan.case(label)
        if not self.wait_s():
            self._keep(case, plan, {}, "the budget was over")
            return ""
        random.shuffle(evidence)
        of = self._label_of(case, plan)
        start = self.now()
        try:
            found = self._ask(plan, {"do": "judge", "label": of, "evidence": evidence, "seconds": seconds})
        except WorkerLost as lost:
            return self._lost(case, plan, lost)
        finally:
            self.seconds += self.now() - start
        return self._concluded(case, plan, found)

    @property
    def judged(self) -> tuple[Judged, ...]:
        """What was found of every case."""
        return tuple(self._found.values())

    def found(self, label: str) -> Judged | None:
        """What was found of a case so far."""
        return self._found.get(label)

    def close(self) -> None:
        """End its process."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def release_worker(self) -> None:
        """A judge that was forked ends until the next time."""
        if not self._stays:
            self.close()

    def _ask(self, plan: Plan, request: Message) -> Message:
        if self._worker is None:
            self._begin(plan)
        assert self._worker is not None
        answer = self._worker.ask({**request, "weights": self.weights}, self.wait_s())
        if answer.get("ends"):
            self.close()
            raise WorkerLost(answer["failure"], answer["message"])
        return answer

    def _begin(self, plan: Plan) -> None:
        """A judge is told the cases which it makes modules of."""
        assert self.launch is not None
        shown = tuple(case for case in plan.shown if not self._by_side(plan) or plan.is_reference(case.label))
        sent = replace(plan, cases=shown)
        forked = self.aside(sent)
        self._worker, self._stays = forked or start_for(sent, self.launch), forked is None
        self._worker.ask({"do": "plan", "plan": jsonable.encode(sent)}, self.wait_s())

    def _label_of(self, case: Case, plan: Plan) -> str:
        """Whose module judges it: in `ab` the base's."""
        return plan.reference if self._by_side(plan) or case.label == CONTROL else case.label

    def _by_side(self, plan: Plan) -> bool:
        """Whether the base's module, with the weights that both have, says what the head should give."""
        return bool(self.weights) and "--allow-mismatch" not in plan.command

    def _lost(self, case: Case, plan: Plan, lost: WorkerLost) -> str:
        """Nothing was judged; a second time the case is to blame, unless memory is."""
        self.close()
        self._losses[case.label] += 1
        if self._losses[case.label] > 1 and lost.kind != "oom" and self.wait_s():
            return f"the process that checks its outputs died twice: {lost}"
        self._keep(case, plan, {}, str(lost))
        return ""

    def _concluded(self, case: Case, plan: Plan, found: Message) -> str:
        """From an answer to a reason, or none."""
        if "failure" in found:
            self._keep(case, plan, {}, found["message"])
            excused = found["failure"] in NO_FAULT or not isinstance(case.ffn, ImportedSpec)
            return "" if excused else f"a second instance of it can't be built: {found['message']}"
        self._keep(case, plan, found, found["why"] if found["finite"] else "not finite")
        if found["wrong"]:
            return str(found["wrong"])
        if not found["finite"]:
            return f"the {found['what']} of a call is not finite"
        if (error := found["error"]) is not None and not error <= found["tolerance"]:
            return f"the {found['what']} of a call differs from {self._of(case, plan)} by {error:.1e}"
        return ""

    def _keep(self, case: Case, plan: Plan, found: Message, why: str) -> None:
        """What an answer has found, beside what was found before; `why` there is no error, where there is none."""
        before, form = self._found.get(case.label), found.get("form", "")
        side = self._by_side(plan) and not plan.is_reference(case.label) and case.label != CONTROL
        errors = [one for one in (found.get("error"), before.error if before else None) if one is not None]
        self._found[case.label] = Judged(
            case=case.label,
            against=Against.SIDE if side else Against.FORM if form else Against.ITSELF,
            name=plan.reference if side else form,
            outputs=found.get("outputs", 0) + (before.outputs if before else 0),
            gradients=found.get("gradients", 0) + (before.gradients if before else 0),
            error=max(errors, default=None),
            why="" if errors else why,
        )

    def _of(self, case: Case, plan: Plan) -> str:
        judged = self._found[case.label]
        if judged.against is Against.SIDE:
            return f"{plan.reference}'s"
        return "the float64 reference" if judged.against is Against.FORM else "a second instance of it"

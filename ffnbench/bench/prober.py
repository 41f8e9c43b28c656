"""Asks about code without measuring it, in a worker that is used for nothing else and started only if needed.

Handed to `request.build` as its probe; every mistake in user code that can be found without measuring comes
out here as one clear error. Facts and curves of activations come from here too: the parent has no torch.
"""

from __future__ import annotations

import math
from dataclasses import replace
from types import TracebackType

from ffnbench import jsonable
from ffnbench.bench.session import Session, WorkerLost
from ffnbench.bench.wire import Message
from ffnbench.errors import FfnbenchError
from ffnbench.ffn.cost import Cost
from ffnbench.ffn.facts import Facts
from ffnbench.ffn.model import OwnMLP
from ffnbench.ffn.own import OwnActivation
from ffnbench.ffn.spec import ActivationSpec, ImportedSpec
from ffnbench.plan import Workload
from ffnbench.result import Curve

BY_ITSELF = "does it import by itself, in a plain `python`?"


class Prober:
    """A context manager; `count` starts the worker on first use and remembers every answer."""

    def __init__(self, timeout_s: float = 300.0) -> None:
        self._timeout_s = timeout_s
        self._session: Session | None = None
        self._known: dict[tuple[ImportedSpec, Workload], Cost] = {}
        self._described: dict[str, OwnActivation | None] = {}
        self._models: dict[str, OwnMLP] = {}

    def __enter__(self) -> Prober:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            self._session.close()

    def count(self, spec: ImportedSpec, workload: Workload) -> Cost:
        """Parameters and FLOPs of a user's module; raises FfnbenchError where it can't serve as an FFN."""
        key = (spec, replace(workload, device="cpu"))
        if key not in self._known:
            asked = {"do": "count", "spec": jsonable.encode(spec), "workload": jsonable.encode(key[1])}
            self._known[key] = jsonable.decode(Cost, self._ask(spec.target, asked))
        return self._known[key]

    def describe(self, target: str) -> OwnActivation | None:
        """What a function declares as an activation; None for a module's class or factory."""
        if target not in self._described:
            own = self._ask(target, {"do": "describe", "target": target})["own"]
            self._described[target] = None if own is None else jsonable.decode(OwnActivation, own)
        return self._described[target]

    def own_mlp(self, target: str) -> OwnMLP:
        """The MLP of transformers that `hf:CONFIG` names; raises FfnbenchError where there is none."""
        if target not in self._models:
            answer = self._ask(target, {"do": "own_mlp", "target": target})
            self._models[target] = jsonable.decode(OwnMLP, answer["own"])
        return self._models[target]

    def facts(self, spec: ActivationSpec) -> Facts:
        """The facts of an activation."""
        return jsonable.decode(Facts, self._ask(spec.activation, {"do": "facts", "spec": jsonable.encode(spec)}))

    def curve(self, spec: ActivationSpec, low: float, high: float, points: int) -> Curve:
        """f and f' at `points` equidistant x of [low, high]; raises FfnbenchError where f is not finite."""
        asked = {"do": "curve", "spec": jsonable.encode(spec), "low": low, "high": high, "points": points}
        answer = self._ask(spec.activation, asked)
        if not answer.pop("finite"):
            raise FfnbenchError(f"{spec.activation} is not finite on [{low:g}, {high:g}]", "choose a smaller --range")
        answer["slope"] = [math.nan if slope is None else slope for slope in answer["slope"]]
        return jsonable.decode(Curve, answer)

    def _ask(self, target: str, request: Message) -> Message:
        if self._session is None:
            self._session = Session()
        try:
            answer = self._session.ask(request, self._timeout_s)
        except WorkerLost as lost:
            late = lost.kind == "timeout"
            raise FfnbenchError(f"{target}: {lost}", "give it longer with --timeout" if late else BY_ITSELF) from lost
        if "failure" in answer:
            message, hint = answer["message"], answer.get("hint") or BY_ITSELF
            named = target.partition(":")[0] in message or target.rpartition(":")[2] in message
            raise FfnbenchError(message if named else f"{target}: {message}", hint)
        return answer

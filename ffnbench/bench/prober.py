"""Counts modules of the user's own in a worker that is used for nothing else, and only if there are any.

Handed to `request.build` as its `count`; every mistake in user code that can be found without measuring comes
out here as one clear error.
"""

from __future__ import annotations

from dataclasses import replace
from types import TracebackType

from ffnbench import jsonable
from ffnbench.bench.session import Session, WorkerLost
from ffnbench.errors import FfnbenchError
from ffnbench.ffn.cost import Cost
from ffnbench.ffn.spec import ImportedSpec
from ffnbench.plan import Workload


class Prober:
    """A context manager; `count` starts the worker on first use and remembers every answer."""

    def __init__(self, timeout_s: float = 300.0) -> None:
        self._timeout_s = timeout_s
        self._session: Session | None = None
        self._known: dict[tuple[ImportedSpec, Workload], Cost] = {}

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
            self._known[key] = self._ask(*key)
        return self._known[key]

    def _ask(self, spec: ImportedSpec, workload: Workload) -> Cost:
        if self._session is None:
            self._session = Session()
        request = {"do": "count", "spec": jsonable.encode(spec), "workload": jsonable.encode(workload)}
        try:
            answer = self._session.ask(request, self._timeout_s)
        except WorkerLost as lost:
            hint = (
                "give it longer with --timeout"
                if lost.kind == "timeout"
                else "does it import by itself, in a plain `python`?"
            )
            raise FfnbenchError(f"{spec.target}: {lost}", hint) from lost
        if "failure" in answer:
            raise FfnbenchError(
                answer["message"], answer.get("hint") or "does it import by itself, in a plain `python`?"
            )
        return jsonable.decode(Cost, answer)

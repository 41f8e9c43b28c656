"""The worker's side of each request: open a case, take a sample, weigh it, check it. Needs torch.

A subject that claims to be one of ffnbench's forms is held against a float64 reference before timing, in the first
worker; afterwards, and in the others, a seeded random projection of its output is held against that of the reference.
A module of the user's own is held against its own output before timing.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ffnbench import jsonable
from ffnbench.bench import meters
from ffnbench.bench.backends import changed, prepare
from ffnbench.bench.building import build, carried
from ffnbench.bench.ceilings import Ceilings
from ffnbench.bench.compiling import settled
from ffnbench.bench.counting import check_output
from ffnbench.bench.environment import usable_cpus
from ffnbench.bench.waiting import WaitMeter
from ffnbench.errors import FfnbenchError, Unsupported
from ffnbench.ffn.attention_module import Attention, attention_reference
from ffnbench.ffn.dtypes import DTYPES
from ffnbench.ffn.experts import MixtureOfExperts
from ffnbench.ffn.modules import OwnForm, reference_output
from ffnbench.ffn.moe import Routing, shares
from ffnbench.ffn.spec import HFSpec, ImportedSpec
from ffnbench.metrics import ERROR, HIT, LOAD
from ffnbench.models.transformers import as_ours
from ffnbench.plan import Case, Plan, Workload
from ffnbench.planning.backends import lacks
from ffnbench.result import Roof


class Mismatch(Exception):
    """The module does not compute what it claims to, or not any more."""


NO_ERROR = "its error is not known: the module can't be copied and run in float64"
DIRECTIONS = 16  # of a projection: a relative error is known from so many to a quarter of itself


@dataclass(slots=True)
class Jobs:
    """All cases of a plan inside one process. `proofs` are projections of float64 references, by label."""

    plan: Plan
    subjects: dict[str, meters.Subject] = field(default_factory=dict)
    first_outputs: dict[str, Tensor] = field(default_factory=dict)
    proofs: dict[str, list[float]] = field(default_factory=dict)
    exact: dict[str, Tensor | None] = field(default_factory=dict)  # outputs in float64 of modules of the user's
    errors: dict[str, float] = field(default_factory=dict)  # relative, against float64, before timing
    waits: WaitMeter = field(default_factory=lambda: WaitMeter(usable_cpus()))
    ceilings: Ceilings = field(default_factory=Ceilings)

    def open(
        self,
        label: str,
        calls: int | None,
        proof: list[float] | None = None,
        weights: str = "",
        split: int | None = None,
    ) -> dict[str, Any]:
        """Build, check and warm up a case; finds how many calls make a sample unless that is known.

        `proof` and `split` are what an earlier worker has found out; `weights` is the folder that a base has written
        its own to.
        """
        case, protocol = self.plan.case(label), self.plan.protocol
        work = case.workload
        if reason := lacks(case.ffn, work):
            raise Unsupported(reason)
        _settle(work)
        torch.manual_seed(protocol.seed)
        module = build(case.ffn, device=work.device, dtype=getattr(torch, work.dtype))
        module = changed(module, case.ffn, work.backend)
        if isinstance(module, MixtureOfExperts) and work.routing:
            impose(module, Routing(work.routing), tokens=work.tokens, seed=self.plan.protocol.seed)
        subject = meters.subject_of(module, work, case.ffn.d_model, protocol.seed)
        if proof is not None:
            self.proofs[label] = proof
        made = self._made(subject, case, weights, split)
        proved = self._first_call(subject, case)
        with settled(work):
            if not self.subjects:
                meters.warm_up(subject, protocol.warmup_s)
            elif calls is None:  # the processor is warm; where calls are known, the practice round does the rest
                meters.warm_up(subject, protocol.warmup_s / 4)
            calls = calls or meters.calls_for(subject, protocol.min_sample_s)
        self.subjects[label] = subject
        return {"calls": calls, "proof": proved, ERROR: self.errors.get(label)} | made

    def place(self, label: str, seed: str) -> dict[str, Any]:
        """New storages for a case's tensors; `moved` is False for one that can't be moved."""
        work = self.plan.case(label).workload
        _settle(work)
        with settled(work):
            return {"moved": self.subjects[label].place(seed)}

    def sample(self, label: str, calls: int) -> dict[str, Any]:
        """Mean seconds of one call, and the share of the time that threads waited for a CPU."""
        subject, work = self.subjects[label], self.plan.case(label).workload
        _settle(work)
        with settled(work):
            value, waited = self.waits.with_share(partial(meters.sample, subject, calls), work.threads)
        return {"value": value, "waited": waited}

    def explore(self, label: str, roofs: list[Any], seconds: float, keep: int) -> dict[str, Any]:
        """The fastest roofs of each group, with the seconds and the number of calls of a sample."""
        asked = [jsonable.decode(Roof, roof) for roof in roofs]
        found = self.ceilings.explore(asked, seconds, keep, self.waits)
        return {"found": [{"roof": jsonable.encode(roof), "seconds": s, "calls": calls} for roof, s, calls in found]}

    def prepare_roofs(self, label: str, roofs: list[Any]) -> dict[str, Any]:
        """Make the calls of roofs that are known; the names of those that can be made."""
        return {"made": self.ceilings.prepare([jsonable.decode(Roof, roof) for roof in roofs])}

    def roof(self, label: str, roof: dict[str, Any], calls: int) -> dict[str, Any]:
        """Mean seconds of one call of a roof, and the share of the time that threads waited for a CPU."""
        value, waited = self.ceilings.sample(jsonable.decode(Roof, roof), calls, self.waits)
        return {"value": value, "waited": waited}

    def weigh(self, label: str) -> dict[str, Any]:
        """Exact bytes: peak of one call, and in train mode what is kept for backward."""
        subject = self.subjects[label]
        _settle(self.plan.case(label).workload)
        return {
            "peak_bytes": meters.peak_bytes(subject),
            "saved_bytes": meters.saved_bytes(subject) if subject.train else None,
        }

    def sparsity(self, label: str) -> dict[str, Any]:
        """How sparse the hidden layer is at the declared init and the seeded input."""
        zero, dead = meters.sparsity(self.subjects[label])
        return {"zero_share": zero, "dead_share": dead}

    def route(self, label: str) -> dict[str, Any]:
        """How the tokens are spread over the experts, where there are any."""
        subject = self.subjects[label]
        if not isinstance(subject.module, MixtureOfExperts):
            return {LOAD: None, HIT: None}
        busiest, hit = expert_load(subject.module, subject.x)
        return {LOAD: busiest, HIT: hit}

    def verify(self, label: str) -> dict[str, Any]:
        """After timing: still the same function."""
        self._check_values(self.subjects[label], self.plan.case(label), "after timing")
        return {}

    def _made(self, subject: meters.Subject, case: Case, weights: str, split: int | None) -> dict[str, Any]:
        """Make the subject ready by its backend, once it has the weights that it will be called with."""
        foreign = isinstance(case.ffn, ImportedSpec) and not isinstance(subject.module, OwnForm)
        if weights or (foreign and not case.workload.eager):
            # a lazy module makes its weights now: those of inference mode could not be set afterwards
            with torch.set_grad_enabled(subject.train):
                subject.module(subject.x)
        if weights:
            carried(weights, subject.module)
        if foreign and case.label not in self.proofs and any(not one.workload.eager for one in self.plan.cases):
            self.exact[case.label] = _in_float64(subject)
        made = prepare(subject, case.workload, split)
        if case.label in self.exact and self.exact[case.label] is None:
            made["notes"] = [*made.get("notes", ()), NO_ERROR]
        return made

    def _first_call(self, subject: meters.Subject, case: Case) -> list[float] | None:
        """The first call of all: its shape, its dtype, its values. Gives the proof for later workers."""
        try:
            with torch.inference_mode(not subject.train):
                y = subject.forward(subject.x)
            check_output(y, subject.x, case.label)
            del y
        except FfnbenchError as problem:
            raise Mismatch(problem.message) from problem
        self.first_outputs[case.label] = subject.output()
        reference = self._check_values(subject, case, "before timing")
        if reference is None:
            return None
        self.proofs[case.label] = projection(reference, self.plan.protocol.seed)
        return self.proofs[case.label]

    def _check_values(self, subject: meters.Subject, case: Case, when: str) -> Tensor | None:
        """Raise Mismatch for wrong values; gives the float64 reference where one was computed."""
        y, proof = subject.output(), self.proofs.get(case.label)
        if not bool(torch.isfinite(y).all()):
            raise Mismatch(f"the output is not finite {when}")
        reference = None
        if proof is not None:
            of, error = "the float64 reference", projected_error(y, proof, self.plan.protocol.seed)
        elif (found := _reference(subject, case)) is not None:
            reference, of = found
            error = self.errors[case.label] = relative_error(y, reference)
        elif (exact := self.exact.pop(case.label, None)) is not None:
            of, error = "the module's own in float64", relative_error(y, exact)
            self.errors[case.label] = error
            reference = None if subject.train else exact
        elif subject.train:  # state that training moves on purpose, such as running means, is not ours to judge
            return None
        else:
            of, error = "its own first output", relative_error(y, self.first_outputs[case.label])
        if error > DTYPES.get(case.workload.dtype).tolerance:
            raise Mismatch(f"the output differs from {of} by {error:.1e} {when}")
        return reference


def _in_float64(subject: meters.Subject) -> Tensor | None:
    """The output of the module as it is written, run in float64; None where it can't be copied, or run so."""
    try:
        copied = deepcopy(subject.module).double().eval()
        with torch.no_grad():
            y = copied(subject.x.detach().double())
    except Exception:  # it is code of the user's: a kernel for some dtypes alone, a lock that can't be copied
        return None
    return y.detach()[:1, :16] if isinstance(y, Tensor) and y.shape == subject.x.shape else None


def _reference(subject: meters.Subject, case: Case) -> tuple[Tensor, str] | None:
    """The output of the form that a module is, in float64, and what to call it; None for a form that is not known."""
    x = subject.x[:1, :16]
    if isinstance(subject.module, OwnForm):
        return reference_output(subject.module, x), "the float64 reference"
    if isinstance(subject.module, Attention):
        return attention_reference(subject.module, x), "the float64 reference"
    ours = _as_ours(subject.module, case)
    return None if ours is None else (reference_output(ours, x), "the float64 reference of ffnbench's own form")


def projection(y: Tensor, seed: int) -> list[float]:
    """A tensor on DIRECTIONS random directions: as long as the tensor itself, on average (Johnson & Lindenstrauss)."""
    values = y.detach().double().cpu().reshape(-1)
    generator = torch.Generator().manual_seed(seed)
    directions = torch.randn(DIRECTIONS, values.numel(), generator=generator, dtype=torch.float64)
    found: list[float] = (directions @ values / DIRECTIONS**0.5).tolist()
    return found


def projected_error(y: Tensor, proof: list[float], seed: int) -> float:
    """The relative error of a tensor of which the projection is known."""
    return relative_error(torch.tensor(projection(y, seed)), torch.tensor(proof))


def _as_ours(module: torch.nn.Module, case: Case) -> OwnForm | None:
    """A module of transformers as the form that its config says it is, on its own weights; None where none is known."""
    if not isinstance(case.ffn, HFSpec) or case.ffn.form is None:
        return None
    try:
        return as_ours(module, case.ffn.form)
    except FfnbenchError as problem:
        raise Mismatch(f"{case.ffn.target} is not {case.ffn.form.name}: {problem.message}") from problem


def relative_error(y: Tensor, expected: Tensor) -> float:
    """The norm of the difference over the norm of what is expected, in float64."""
    y, expected = y.double(), expected.double()
    size = expected.norm()
    return float((y - expected).norm() / size) if size else float(y.norm())


def _settle(work: Workload) -> None:
    """Threads and current device are properties of the case: user code and other cases may have changed them."""
    if work.device.startswith("cuda"):
        torch.cuda.set_device(torch.device(work.device).index or 0)  # events are recorded on the current device
    if torch.get_num_threads() != work.threads:
        torch.set_num_threads(work.threads)


def impose(module: MixtureOfExperts, routing: Routing, *, tokens: int, seed: int) -> None:
    """Give every token its experts, drawn by `shares` without putting back, from a generator of that seed.

    The k smallest of exponential variables with the shares as rates are such a draw (Efraimidis & Spirakis 2006).
    """
    rates = torch.tensor(shares(routing, module.moe.experts), dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    waits = torch.empty(tokens, module.moe.experts, dtype=torch.float64).exponential_(generator=generator) / rates
    chosen = waits.topk(module.moe.top_k, largest=False).indices
    module.imposed = chosen.to(module.router.weight.device)


def expert_load(module: MixtureOfExperts, x: torch.Tensor) -> tuple[float, int]:
    """The busiest expert's tokens over the mean, and how many experts are asked at all, for an input."""
    with torch.inference_mode():
        chosen = module.choose(x.detach().reshape(-1, x.shape[-1]))
    asked = torch.bincount(chosen.reshape(-1), minlength=module.moe.experts)
    return float(asked.max() / asked.double().mean()), int((asked > 0).sum())

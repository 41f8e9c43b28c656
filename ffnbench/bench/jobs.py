"""The worker's side of each request: open a case, take a sample, weigh it, check it. Needs torch.

A subject that claims to be one of ffnbench's forms is held against a float64 reference before timing, in the first
worker; afterwards, and in the others, a seeded random projection of its output is held against that of the reference.
A module of the user's own is held against its own output before timing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ffnbench.bench import meters
from ffnbench.bench.backends import compile_now, compiled_of, settled
from ffnbench.bench.building import build, carried
from ffnbench.bench.counting import check_output
from ffnbench.bench.environment import usable_cpus
from ffnbench.bench.waiting import WaitMeter
from ffnbench.errors import FfnbenchError
from ffnbench.ffn.attention_module import Attention, attention_reference
from ffnbench.ffn.dtypes import DTYPES
from ffnbench.ffn.experts import MixtureOfExperts
from ffnbench.ffn.modules import OwnForm, reference_output
from ffnbench.ffn.moe import Routing, shares
from ffnbench.ffn.spec import HFSpec
from ffnbench.metrics import COMPILE, HIT, LOAD
from ffnbench.models.transformers import as_ours
from ffnbench.plan import Case, Plan, Workload


class Mismatch(Exception):
    """The module does not compute what it claims to, or not any more."""


DIRECTIONS = 16  # of a projection: a relative error is known from so many to a quarter of itself


@dataclass(slots=True)
class Jobs:
    """All cases of a plan inside one process. `proofs` are projections of float64 references, by label."""

    plan: Plan
    subjects: dict[str, meters.Subject] = field(default_factory=dict)
    first_outputs: dict[str, Tensor] = field(default_factory=dict)
    proofs: dict[str, list[float]] = field(default_factory=dict)
    waits: WaitMeter = field(default_factory=lambda: WaitMeter(usable_cpus()))

    def open(
        self, label: str, calls: int | None, proof: list[float] | None = None, weights: str = ""
    ) -> dict[str, Any]:
        """Build, check and warm up a case; finds how many calls make a sample unless that is known.

        `proof` is what an earlier worker has found out; `weights` is the folder that a base has written its own to.
        """
        case, protocol = self.plan.case(label), self.plan.protocol
        work = case.workload
        _settle(work)
        torch.manual_seed(protocol.seed)
        module = build(case.ffn, device=work.device, dtype=getattr(torch, work.dtype))
        if isinstance(module, MixtureOfExperts) and work.routing:
            impose(module, Routing(work.routing), tokens=work.tokens, seed=self.plan.protocol.seed)
        compiled = compiled_of(module, work.backend)
        subject = meters.subject_of(module, work, case.ffn.d_model, protocol.seed, compiled)
        cold = compile_now(subject.call, subject.x.device) if compiled else None
        if proof is not None:
            self.proofs[label] = proof
        proved = self._first_call(subject, case, weights)
        with settled(work.backend):
            if not self.subjects:
                meters.warm_up(subject, protocol.warmup_s)
            elif calls is None:  # the processor is warm; where calls are known, the practice round does the rest
                meters.warm_up(subject, protocol.warmup_s / 4)
            calls = calls or meters.calls_for(subject, protocol.min_sample_s)
        self.subjects[label] = subject
        told = {COMPILE: cold.seconds, "graphs": cold.graphs} if cold else {}
        return {"calls": calls, "proof": proved, **told}

    def place(self, label: str, seed: str) -> dict[str, Any]:
        """New storages for a case's tensors; `moved` is False for one that can't be moved."""
        work = self.plan.case(label).workload
        _settle(work)
        with settled(work.backend):
            return {"moved": self.subjects[label].place(seed)}

    def sample(self, label: str, calls: int) -> dict[str, Any]:
        """Mean seconds of one call, and the share of the time that threads waited for a CPU."""
        subject, work = self.subjects[label], self.plan.case(label).workload
        _settle(work)
        with settled(work.backend):
            value, waited = self.waits.with_share(partial(meters.sample, subject, calls), work.threads)
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

    def _first_call(self, subject: meters.Subject, case: Case, weights: str) -> list[float] | None:
        """The first call of all: its shape, its dtype, its values. Gives the proof for later workers."""
        try:
            # a lazy module makes its weights now: those of inference mode could not be set afterwards
            with torch.no_grad() if weights and not subject.train else torch.inference_mode(not subject.train):
                y = subject.forward(subject.x)
            check_output(y, subject.x, case.label)
            del y
        except FfnbenchError as problem:
            raise Mismatch(problem.message) from problem
        if weights:  # a lazy module has its own after its first call
            carried(weights, subject.module)
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
            error = relative_error(y, reference)
        elif subject.train:  # state that training moves on purpose, such as running means, is not ours to judge
            return None
        else:
            of, error = "its own first output", relative_error(y, self.first_outputs[case.label])
        if error > DTYPES.get(case.workload.dtype).tolerance:
            raise Mismatch(f"the output differs from {of} by {error:.1e} {when}")
        return reference


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

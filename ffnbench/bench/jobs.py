"""The worker's side of each request: open a case, take a sample, weigh it, check it. Needs torch.

A subject that claims to be one of ffnbench's forms is held against a float64 reference before and after timing;
a module of the user's own against its own output before timing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ffnbench.bench import meters
from ffnbench.bench.backends import compile_now, compiled_of, settled
from ffnbench.bench.building import build
from ffnbench.bench.counting import check_output
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


@dataclass(slots=True)
class Jobs:
    """All cases of a plan inside one process."""

    plan: Plan
    subjects: dict[str, meters.Subject] = field(default_factory=dict)
    first_outputs: dict[str, Tensor] = field(default_factory=dict)

    def open(self, label: str, calls: int | None) -> dict[str, Any]:
        """Build, check and warm up a case; finds how many calls make a sample unless that is known."""
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
        self._first_call(subject, case)
        with settled(work.backend):
            meters.warm_up(subject, protocol.warmup_s)
            calls = calls or meters.calls_for(subject, protocol.min_sample_s)
        self.subjects[label] = subject
        told = {COMPILE: cold.seconds, "graphs": cold.graphs} if cold else {}
        return {"calls": calls, **told}

    def sample(self, label: str, calls: int) -> dict[str, Any]:
        """Mean seconds of one call."""
        subject, work = self.subjects[label], self.plan.case(label).workload
        _settle(work)
        with settled(work.backend):
            return {"value": meters.sample(subject, calls)}

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

    def _first_call(self, subject: meters.Subject, case: Case) -> None:
        """The first call of all: its shape, its dtype, its values."""
        try:
            with torch.inference_mode(not subject.train):
                y = subject.forward(subject.x)
            check_output(y, subject.x, case.label)
            del y
        except FfnbenchError as problem:
            raise Mismatch(problem.message) from problem
        self.first_outputs[case.label] = subject.output()
        self._check_values(subject, case, "before timing")

    def _check_values(self, subject: meters.Subject, case: Case, when: str) -> None:
        y = subject.output()
        if not bool(torch.isfinite(y).all()):
            raise Mismatch(f"the output is not finite {when}")
        if isinstance(subject.module, OwnForm):
            expected, of = reference_output(subject.module, subject.x[:1, :16]), "the float64 reference"
        elif isinstance(subject.module, Attention):
            expected, of = attention_reference(subject.module, subject.x[:1, :16]), "the float64 reference"
        elif (ours := _as_ours(subject.module, case)) is not None:
            expected, of = reference_output(ours, subject.x[:1, :16]), "the float64 reference of ffnbench's own form"
        elif subject.train:  # state that training moves on purpose, such as running means, is not ours to judge
            return
        else:
            expected, of = self.first_outputs[case.label], "its own first output"
        error = relative_error(y, expected)
        if error > DTYPES.get(case.workload.dtype).tolerance:
            raise Mismatch(f"the output differs from {of} by {error:.1e} {when}")


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

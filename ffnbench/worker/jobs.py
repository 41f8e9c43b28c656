"""The worker's side of each request: open a case, take a sample, measure its memory, check it. Needs torch.

Before timing a subject that claims to be one of ffnbench's forms is held against a float64 reference, in the first
worker. What its timed calls give goes to a judge in another process (output_judge.py).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from resource import RUSAGE_SELF, getrusage
from typing import Any

import torch
from torch import Tensor

from ffnbench import jsonable
from ffnbench.backends.backend import changed
from ffnbench.backends.building import as_own, build, carried, impose_routing, in_float64, seed_all
from ffnbench.backends.compiling import compile_now, compiled_of, settled
from ffnbench.backends.onednn import pack
from ffnbench.device.accelerator import accelerator_of, place_of
from ffnbench.device.environment import usable_cpus
from ffnbench.device.nvml import DeviceWatch
from ffnbench.device.waiting import WaitMeter
from ffnbench.errors import FfnbenchError, Unsupported
from ffnbench.ffn.attention_module import Attention, attention_reference
from ffnbench.ffn.experts import MixtureOfExperts
from ffnbench.ffn.like import relative_error
from ffnbench.ffn.modules import OwnForm, reference_output
from ffnbench.ffn.spec import ActivationSpec, ImportedSpec
from ffnbench.metrics import COMPILE, DEVICE_TIME, ERROR, HELD, HIT, HOST_TIME, LOAD, PACK
from ffnbench.plan import Backend, Case, Plan, Workload
from ffnbench.planning.workload import lacks
from ffnbench.result import Roof
from ffnbench.worker import meters, peak_memory, precision
from ffnbench.worker.ceiling_calls import Ceilings
from ffnbench.worker.counting import check_output
from ffnbench.worker.evidence import OutputRecorder
from ffnbench.worker.inputs import gradient_salt, most_inputs
from ffnbench.worker.output_judge import Judge
from ffnbench.worker.padding import padded
from ffnbench.worker.subject import Subject, subject_of
from ffnbench.worker.tampering import Originals


class Mismatch(Exception):
    """The module does not compute what it claims to."""


COPIES = 4  # of a pool: as it is written and as it is read, inputs and gradients


@dataclass(slots=True)
class Jobs:
    """All cases of a plan inside one process. `memory_bytes` is what the machine has to give."""

    plan: Plan
    memory_bytes: int | None = None
    block: str = ""  # the seed of where its tensors lie
    originals: Originals = field(default_factory=Originals)
    subjects: dict[str, Subject] = field(default_factory=dict)
    _judge: tuple[str, Judge] | None = None  # the last one, and its case
    waits: WaitMeter = field(default_factory=lambda: WaitMeter(usable_cpus()))
    ceilings: Ceilings = field(default_factory=Ceilings)
    devices: DeviceWatch = field(default_factory=DeviceWatch)
    held: dict[str, Any] = field(default_factory=dict)  # what features keep from one request to the next

    def open(self, label: str, calls: int | None, checked: bool = False, weights: str = "") -> dict[str, Any]:
        """Build, check and warm up a case; finds how many calls make a sample unless that is known.

        `checked` is whether an earlier worker has checked it; `weights` is the folder with a base's.
        """
        case, protocol = self.plan.case(label), self.plan.protocol
        work = case.workload
        if reason := lacks(case.ffn, work):
            raise Unsupported(reason)
        if work.slowdown and work.device != "cpu":
            raise Unsupported("@slowdown works on the CPU only: @device=cpu")
        _settle(work)
        seed_all(protocol.seed, case.ffn)
        with padded(f"{self.block}/{label}", work.device) as pads:
            module = build(case.ffn, device=place_of(work.device), dtype=getattr(torch, work.dtype))
        module = changed(module, case.ffn, work.backend)
        impose_routing(module, work, protocol.seed)
        subject = subject_of(module, work, case.ffn.d_model, protocol.seed)
        subject.pads = pads
        if weights:
            carried(weights, subject.module)
        unknown = isinstance(case.ffn, ImportedSpec) and case.ffn.ours is None
        exact = _exactly(subject) if unknown and not work.eager and not checked else None
        made = prepare(subject, work)
        if not checked or subject.accelerator is not None:
            _first_call(subject, case)
        error = None if checked else _error_of(subject, case, exact)
        with settled(work):
            if calls is None:  # where they are known, the round of practice does the rest
                meters.warm_up(subject, protocol.warmup_s)
            calls = calls or meters.calls_for(subject, protocol.min_sample_s)
        free = self.memory_bytes if subject.accelerator is None else subject.accelerator.free_bytes()
        share = None if free is None else free // (COPIES * len(self.plan.cases))
        most = 1 if self._alone(case) else most_inputs(subject.x, share)
        calls = calls if self._alone(case) else min(calls, most)
        inputs = min(calls, most)
        subject.pool.renew(protocol.seed, inputs)
        if subject.train:
            subject.grads.renew(protocol.seed, inputs)
        self.subjects[label] = subject
        self.originals.keep(label, module)
        pool = {"count": inputs, "bytes": subject.pool.memory.nbytes}
        told = {"calls": calls, "inputs": pool, ERROR: error}
        return told | {"replaced": self.originals.replaced()} | made

    def drain(self, label: str) -> None:
        """Wait for the device of a case, so that an error of what it still does comes up now."""
        if (accelerator := accelerator_of(self.plan.case(label).workload.device)) is not None:
            accelerator.synchronize()

    def has_compiled(self, label: str) -> bool:
        """Whether it is a case that is compiled, and the compiler is at work in this process."""
        compiled = {case.label for case in self.plan.cases if case.workload.compiled}
        return label in compiled and "torch._dynamo" in sys.modules

    def forget(self, label: str) -> None:
        """Let go of all that a case holds: it has failed, and others want the memory."""
        self.subjects.pop(label, None)
        self.originals.forget(label)

    def _alone(self, case: Case) -> bool:
        """Whether it is an activation of ffnbench's own among such: timed on one input, which stays in a cache."""
        return isinstance(case.ffn, ActivationSpec) and not any(
            isinstance(one.ffn, ActivationSpec) and one.ffn.own for one in self.plan.cases
        )

    def sample(self, label: str, calls: int, salt: int = 0, looks: Sequence[int] = ()) -> dict[str, Any]:
        """Mean seconds of one call, those of the device and of the host where it runs on an accelerator, and the share
        of the time that threads waited for a CPU.

        Inputs are made of `salt`. `looks` are the numbers of the calls, in order, whose outputs are told.
        """
        subject, case = self.subjects[label], self.plan.case(label)
        work, count = case.workload, 1 if self._alone(case) else calls
        _settle(work)
        inputs = subject.pool.renew(salt, count) * (calls // count)
        grads = subject.grads.renew(gradient_salt(salt), count) * (calls // count) if subject.train else []
        # a CPU's sample stands before each call anyway where there is a backward, or caches are flushed
        draws = subject.draws or (subject.accelerator is None and (subject.train or subject.cold))
        witnesses = [
            OutputRecorder(subject.module, subject.pool, salt, count, number, isinstance(case.ffn, ImportedSpec),
                    draws, subject.accelerator, None if subject.same_places else subject.outputs)
            for number in looks
        ]  # fmt: skip
        with settled(work):
            before = getrusage(RUSAGE_SELF).ru_minflt
            times, waited = self.waits.with_share(
                partial(meters.sample, subject, inputs, witnesses, grads), work.threads
            )
            faults = getrusage(RUSAGE_SELF).ru_minflt - before
        told: dict[str, Any] = {"value": times.value, "waited": waited, "faults": faults}
        told |= self.devices.told(work.device)
        told |= _apart(subject, times)
        if witnesses:
            # without a look before the call it is not known what one that draws numbers drew from
            told["evidence"] = [witness.told() for witness in witnesses if draws or not witness.drew]
            subject.draws |= any(witness.drew for witness in witnesses)
            told["replaced"] = self.originals.replaced()
            if torch.get_num_threads() != work.threads:
                told["replaced"] = f"the {work.threads} threads of its row by {torch.get_num_threads()}"
        return told

    def judge(self, label: str, evidence: list[dict[str, Any]], seconds: float, weights: str = "") -> dict[str, Any]:
        """What a judge finds of the outputs of timed calls."""
        _settle(self.plan.case(label).workload)
        if self._judge is None or self._judge[0] != label:
            self._judge = None  # its memory goes first
            self._judge = label, Judge(self.plan.case(label), self.plan.protocol.seed, weights)
        return self._judge[1].judge(evidence, seconds)

    def explore(self, label: str, roofs: list[Any], seconds: float, keep: int) -> dict[str, Any]:
        """The fastest roofs of each group, with the seconds and the number of calls of a sample."""
        asked = [jsonable.decode(Roof, roof) for roof in roofs]
        found = self.ceilings.explore(asked, seconds, keep)
        return {"found": [{"roof": jsonable.encode(roof), "seconds": s, "calls": calls} for roof, s, calls in found]}

    def roof(self, label: str, roof: dict[str, Any], calls: int) -> dict[str, Any]:
        """Mean seconds of one call of a roof, and the share of the time that threads waited for a CPU."""
        value, waited = self.ceilings.sample(jsonable.decode(Roof, roof), calls, self.waits)
        return {"value": value, "waited": waited}

    def settle(self, label: str) -> Case:
        """A case, with threads, device and precision as it has them."""
        case = self.plan.case(label)
        _settle(case.workload)
        return case

    def memory(self, label: str) -> dict[str, Any]:
        """Exact bytes: peak of one call, and in train mode what is kept for backward."""
        subject = self.subjects[label]
        _settle(self.plan.case(label).workload)
        return {
            "peak_bytes": peak_memory.peak_bytes(subject),
            "saved_bytes": peak_memory.saved_bytes(subject) if subject.train else None,
        }

    def sparsity(self, label: str) -> dict[str, Any]:
        """How sparse the hidden layer is at the declared init and the seeded input."""
        _settle(self.plan.case(label).workload)
        zero, dead = peak_memory.sparsity(self.subjects[label])
        return {"zero_share": zero, "dead_share": dead}

    def route(self, label: str) -> dict[str, Any]:
        """How the tokens are spread over the experts, where there are any."""
        subject = self.subjects[label]
        if not isinstance(subject.module, MixtureOfExperts):
            return {LOAD: None, HIT: None}
        _settle(self.plan.case(label).workload)
        busiest, hit = expert_load(subject.module, subject.x)
        return {LOAD: busiest, HIT: hit}


def prepare(subject: Subject, work: Workload) -> dict[str, Any]:
    """Make a subject ready to be called by its backend, and say what that took: seconds to compile or to pack, and
    the bytes of the weights that a call computes with. Raises Unsupported where it can't be run so.
    """
    weights = sum(parameter.nbytes for parameter in subject.module.parameters())
    if work.compiled:
        subject.run = compiled_of(subject.module, work)
        seconds, graphs = compile_now(subject.call, subject.x.device, subject.accelerator, freeze=work.freeze)
        # frozen weights are constants in layouts of the compiler's own
        return {COMPILE: seconds, "graphs": graphs, HELD: None if work.freeze else weights}
    if work.backend == Backend.ONEDNN.value:
        packed = pack(subject.module, subject.x.detach())
        called = f"{packed.layers - packed.unused} of {packed.layers} linear layers"
        unused = f"oneDNN runs {called}: the others are not called as modules"
        return {PACK: packed.seconds, HELD: packed.bytes, "notes": [unused] if packed.unused else []}
    return {HELD: weights}


def _first_call(subject: Subject, case: Case) -> None:
    """The first call of all: its shape and its dtype, and whether its input is as it was."""
    before = subject.x.detach().clone()
    try:
        with torch.inference_mode(not subject.train):
            check_output(subject.forward(subject.x), subject.x, case.label)
    except FfnbenchError as problem:
        raise Mismatch(problem.message) from problem
    if not torch.equal(subject.x, before):
        raise Unsupported("it changes its input, which later calls read again: return a new tensor")


def _error_of(subject: Subject, case: Case, exact: Tensor | None) -> float | None:
    """The relative error of its values, where it is known which are right: by its form, or `exact`, what the module
    itself gives in float64. Raises Mismatch for wrong ones.
    """
    y = subject.output()
    if not bool(torch.isfinite(y).all()):
        raise Mismatch("the output is not finite")
    reference, of = _reference(subject, case) or (exact, "the module's own in float64")
    if reference is None:
        return None
    error = relative_error(y, reference)
    if error > case.workload.tolerance:
        raise Mismatch(f"the output differs from {of} by {error:.1e}")
    return error


def _exactly(subject: Subject) -> Tensor | None:
    """The first tokens of the output of the module as it is written, run in float64; None where it can't be copied or
    run so, draws random numbers, or has buffers that training may move.
    """
    if subject.train and list(subject.module.buffers()):
        return None
    where = subject.accelerator
    state = torch.random.get_rng_state() if where is None else where.rng_state()
    y = in_float64(subject.module, subject.x.detach())
    drew = not torch.equal(state, torch.random.get_rng_state() if where is None else where.rng_state())
    (torch.random.set_rng_state if where is None else where.set_rng_state)(state)
    return y[:1, :16] if y is not None and y.shape == subject.x.shape and not drew else None


def _reference(subject: Subject, case: Case) -> tuple[Tensor, str] | None:
    """The output of the form that a module is, in float64, and what to call it; None for a form that is not known."""
    x = subject.x[:1, :16]
    if isinstance(subject.module, OwnForm):
        return reference_output(subject.module, x), "the float64 reference"
    if isinstance(subject.module, Attention):
        return attention_reference(subject.module, x), "the float64 reference"
    try:
        ours = as_own(subject.module, case.ffn, x)
    except FfnbenchError as problem:
        raise Mismatch(problem.message) from problem
    if ours is None:
        return None
    return reference_output(ours, x), f"the float64 reference of ffnbench's own {ours.spec.form}"


def _apart(subject: Subject, times: meters.Times) -> dict[str, Any]:
    """What an accelerator's sample tells beside its value."""
    if subject.accelerator is None or subject.timer is None:
        return {}
    if times.device is not None:
        return {HOST_TIME: times.host, DEVICE_TIME: times.device}
    text = "device time can't be told apart: its calls wait for the device"
    return {HOST_TIME: times.host, **({"notes": [text]} if subject.timer.gives_up else {})}


def _settle(work: Workload) -> None:
    """Threads, device and precision are properties of the case: user code and other cases may have changed them."""
    if (accelerator := accelerator_of(work.device)) is not None:
        accelerator.settle()
    if torch.get_num_threads() != work.threads:
        torch.set_num_threads(work.threads)
    precision.set_for(work)


def expert_load(module: MixtureOfExperts, x: torch.Tensor) -> tuple[float, int]:
    """The busiest expert's tokens over the mean, and how many experts are asked at all, for an input."""
    with torch.inference_mode():
        chosen = module.choose(x.detach().reshape(-1, x.shape[-1]))
    asked = torch.bincount(chosen.reshape(-1), minlength=module.moe.experts)
    return float(asked.max() / asked.double().mean()), int((asked > 0).sum())

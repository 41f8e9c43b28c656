"""The worker's side of each request: open a case, take a sample, measure its memory, check it. Needs torch.

In the first worker of a run a subject is held against float64 before its rounds, and after them (correctness.py).
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from resource import RUSAGE_SELF, getrusage
from typing import TYPE_CHECKING, Any

import torch

from ffnbench.common import jsonable
from ffnbench.common.errors import FfnbenchError, Unsupported
from ffnbench.device.environment import accelerator_of, place_of, usable_cpus
from ffnbench.device.waiting import WaitMeter
from ffnbench.ffn.spec import ActivationSpec
from ffnbench.metrics import COMPILE, DEVICE_TIME, ERROR, GRADIENT_ERROR, HELD, HIT, HOST_TIME, LOAD, PACK
from ffnbench.plan import Backend, Case, Plan, Workload
from ffnbench.planning.workload import lacks
from ffnbench.result import Roof
from ffnbench.worker import meters, peak_memory
from ffnbench.worker.backends.building import build, carried, changed, impose_routing, seed_all
from ffnbench.worker.correctness import Correctness, Mismatch
from ffnbench.worker.probe_jobs import check_output
from ffnbench.worker.subject import Subject, gradient_salt, most_inputs, padded, set_precision_of, subject_of

if TYPE_CHECKING:
    from ffnbench.device.nvml import DeviceWatch
    from ffnbench.worker.ceiling_calls import Ceilings

COPIES = 4  # of a pool: as it is written and as it is read, inputs and gradients
LATER = 2  # beside the seed: of the input that is looked at after the rounds


@dataclass(slots=True)
class Jobs:
    """All cases of a plan inside one process. `memory_bytes` is what the machine has to give."""

    plan: Plan
    memory_bytes: int | None = None
    block: str = ""  # the seed of where its tensors lie
    subjects: dict[str, Subject] = field(default_factory=dict)
    checks: dict[str, Correctness] = field(default_factory=dict)
    waits: WaitMeter = field(default_factory=lambda: WaitMeter(usable_cpus()))
    ceilings: Ceilings | None = None  # where they are asked for
    devices: DeviceWatch | None = None  # where a case runs on one
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
        made = prepare(subject, work)
        if not checked or subject.accelerator is not None:
            _first_call(subject, case)
        self.checks[label] = Correctness(case, protocol.seed, weights)
        if not checked:
            self.checks[label].check(subject, protocol.seed)
        with _settled(work):
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
        pool = {"count": inputs, "bytes": subject.pool.memory.nbytes}
        return {"calls": calls, "inputs": pool} | made

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
        self.checks.pop(label, None)

    def _alone(self, case: Case) -> bool:
        """Whether it is an activation of ffnbench's own among such: timed on one input, which stays in a cache."""
        return isinstance(case.ffn, ActivationSpec) and not any(
            isinstance(one.ffn, ActivationSpec) and one.ffn.own for one in self.plan.cases
        )

    def sample(self, label: str, calls: int, salt: int = 0) -> dict[str, Any]:
        """Mean seconds of one call, those of the device and of the host where it runs on an accelerator, and the share
        of the time that threads waited for a CPU. Inputs are made of `salt`.
        """
        subject, case = self.subjects[label], self.plan.case(label)
        work, count = case.workload, 1 if self._alone(case) else calls
        _settle(work)
        inputs = subject.pool.renew(salt, count) * (calls // count)
        grads = subject.grads.renew(gradient_salt(salt), count) * (calls // count) if subject.train else []
        with _settled(work):
            before = getrusage(RUSAGE_SELF).ru_minflt
            times, waited = self.waits.with_share(partial(meters.sample, subject, inputs, grads), work.threads)
            faults = getrusage(RUSAGE_SELF).ru_minflt - before
        told: dict[str, Any] = {"value": times.value, "waited": waited, "faults": faults}
        return told if subject.accelerator is None else told | self._device_told(subject, work.device, times)

    def _device_told(self, subject: Subject, device: str, times: meters.Times) -> dict[str, Any]:
        """What an accelerator's sample tells beside its value."""
        from ffnbench.device.nvml import DeviceWatch

        if self.devices is None:
            self.devices = DeviceWatch()
        told = self.devices.told(device) | {HOST_TIME: times.host}
        if times.device is not None:
            return told | {DEVICE_TIME: times.device}
        assert subject.timer is not None
        text = "device time can't be told apart: its calls wait for the device"
        return told | ({"notes": [text]} if subject.timer.gives_up else {})

    def check(self, label: str) -> dict[str, Any]:
        """The relative errors of a case, before its rounds and after them; None where nothing tells what is right.

        Raises Mismatch where it has come to give something else.
        """
        check = self.checks[label]
        _settle(self.plan.case(label).workload)
        if check.again:
            check.check(self.subjects[label], self.plan.protocol.seed + LATER, "after its rounds ")
        return {ERROR: check.output_error, GRADIENT_ERROR: check.gradient_error}

    def explore(self, label: str, roofs: list[Any], seconds: float, keep: int) -> dict[str, Any]:
        """The fastest roofs of each group, with the seconds and the number of calls of a sample."""
        asked = [jsonable.decode(Roof, roof) for roof in roofs]
        found = self._roofs().explore(asked, seconds, keep)
        return {"found": [{"roof": jsonable.encode(roof), "seconds": s, "calls": calls} for roof, s, calls in found]}

    def roof(self, label: str, roof: dict[str, Any], calls: int) -> dict[str, Any]:
        """Mean seconds of one call of a roof, and the share of the time that threads waited for a CPU."""
        value, waited = self._roofs().sample(jsonable.decode(Roof, roof), calls, self.waits)
        return {"value": value, "waited": waited}

    def _roofs(self) -> Ceilings:
        from ffnbench.worker.ceiling_calls import Ceilings

        if self.ceilings is None:
            self.ceilings = Ceilings()
        return self.ceilings

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
        from ffnbench.ffn.experts import MixtureOfExperts, expert_load

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
        from ffnbench.worker.backends.compiling import compile_now, compiled_of

        subject.run = compiled_of(subject.module, work)
        seconds, graphs = compile_now(subject.call, subject.x.device, subject.accelerator, freeze=work.freeze)
        # frozen weights are constants in layouts of the compiler's own
        return {COMPILE: seconds, "graphs": graphs, HELD: None if work.freeze else weights}
    if work.backend == Backend.ONEDNN:
        from ffnbench.worker.backends.onednn import pack

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


def _settled(work: Workload) -> AbstractContextManager[None]:
    """Where it is compiled, nothing compiles in here."""
    if not work.compiled:
        return nullcontext()
    from ffnbench.worker.backends.compiling import settled

    return settled()


def _settle(work: Workload) -> None:
    """Threads, device and precision are properties of the case: user code and other cases may have changed them."""
    if (accelerator := accelerator_of(work.device)) is not None:
        accelerator.settle()
    if torch.get_num_threads() != work.threads:
        torch.set_num_threads(work.threads)
    set_precision_of(work)

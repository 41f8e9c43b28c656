"""What a worker does with the cases of a plan: open one, take a sample, measure its
memory, check it. Needs torch.

In the first worker of a run a subject is compared with float64 before its rounds, and
after them (correctness.py).
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from resource import RUSAGE_SELF, getrusage
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ffnbench import messages
from ffnbench.backends import BACKENDS
from ffnbench.common.errors import FfnbenchError, Unsupported
from ffnbench.device.environment import accelerator_of, torch_device, usable_cpus
from ffnbench.device.waiting import WaitMeter
from ffnbench.features import handler
from ffnbench.ffn.spec import ActivationSpec
from ffnbench.messages import (
    Check,
    ExploreRoofs,
    MeasureMemory,
    MeasureRouting,
    MeasureSparsity,
    OfCase,
    Open,
    Opened,
    ReachedRoofs,
    Sampled,
    SampleRoof,
    TakeSample,
    Values,
    WorkerRequest,
)
from ffnbench.metrics import (
    ERROR,
    GRADIENT_ERROR,
    HIT,
    LARGEST_ERROR,
    LOAD,
    PEAK,
    SAVED,
)
from ffnbench.plan import Case, Plan, Workload
from ffnbench.worker import peak_memory, probe_jobs, timing
from ffnbench.worker.backends.building import (
    build_module,
    impose_routing,
    load_base_weights,
    load_plan_weights,
    module_for_backend,
    seed_all,
)
from ffnbench.worker.backends.running import implementation_of
from ffnbench.worker.correctness import Correctness, Mismatch
from ffnbench.worker.probe_jobs import check_output
from ffnbench.worker.subject import (
    Subject,
    gradient_salt,
    most_inputs,
    random_gaps,
    set_precision_of,
    subject_of,
)

if TYPE_CHECKING:
    from ffnbench.device.nvml import DeviceWatch
    from ffnbench.worker.ceiling_calls import RoofCalls

COPIES = 4  # of a pool: as it is written and as it is read, inputs and gradients


@dataclass(slots=True)
class Jobs:
    """All cases of a plan inside one process. `memory_bytes` is what the machine has to
    give.
    """

    plan: Plan
    memory_bytes: int | None = None
    layout_seed: str = ""  # the seed of where its tensors lie
    subjects: dict[str, Subject] = field(default_factory=dict)
    checks: dict[str, Correctness] = field(default_factory=dict)
    wait_meter: WaitMeter = field(default_factory=lambda: WaitMeter(usable_cpus()))
    ceilings: RoofCalls | None = None  # where they are asked for
    devices: DeviceWatch | None = None  # where a case runs on one
    # what features keep from one request to the next
    feature_state: dict[str, Any] = field(default_factory=dict)

    def open(self, request: Open) -> Opened:
        """Build, check and warm up a case; finds how many calls make a sample unless
        that is known.
        """
        label, calls = request.label, request.calls
        case, protocol = self.plan.case(label), self.plan.protocol
        subject = self._build(case, request.weights)
        opened = implementation_of(case.workload.backend).prepare(
            subject, case.workload
        )
        if not request.checked or subject.accelerator is not None:
            _first_call(subject, case)
        self.checks[label] = Correctness(case, protocol.seed, request.weights)
        if not request.checked:
            self.checks[label].check(subject, protocol.seed)
        with _without_compiling(case.workload):
            # where they are known, the round of practice does the rest
            if calls is None:
                timing.warm_up(subject, protocol.warmup_s)
                calls = timing.calls_for(subject, protocol.min_sample_s)
        if self._is_alone(case):
            inputs = 1
        else:
            inputs = calls = min(calls, self._most_inputs(subject))
        subject.pool.renew(protocol.seed, inputs)
        if subject.train:
            subject.grads.renew(protocol.seed, inputs)
        self.subjects[label] = subject
        return replace(
            opened, calls=calls, inputs=inputs, input_bytes=subject.pool.memory.nbytes
        )

    def _build(self, case: Case, weights: str) -> Subject:
        """The module of a case with its inputs, as its backend wants it; `weights` is a
        folder with those it takes over. Raises Unsupported where it can't be run.
        """
        work, seed = case.workload, self.plan.protocol.seed
        if work.slowdown and work.device != "cpu":
            raise Unsupported("@slowdown works on the CPU only: @device=cpu")
        _set_conditions(work)
        seed_all(seed, case.ffn)
        with random_gaps(f"{self.layout_seed}/{case.label}", work.device) as pads:
            module = build_module(
                case.ffn,
                device=torch_device(work.device),
                dtype=getattr(torch, work.dtype),
            )
        if self.plan.state:
            load_plan_weights(module, self.plan)
        module = module_for_backend(module, case.ffn, work.backend)
        impose_routing(module, work, seed)
        subject = subject_of(module, work, case.ffn.d_model, seed)
        subject.pads = pads
        if weights:
            load_base_weights(weights, subject.module)
        return subject

    def _most_inputs(self, subject: Subject) -> int:
        """How many inputs its pool may have, so that those of all cases fit into
        memory.
        """
        free = self.memory_bytes
        if subject.accelerator is not None:
            free = subject.accelerator.free_bytes()
        if free is None:
            return most_inputs(subject.x, None)
        return most_inputs(subject.x, free // (COPIES * len(self.plan.cases)))

    def drain(self, label: str) -> None:
        """Wait for the device of a case, so that an error of what it still does comes
        up now.
        """
        accelerator = accelerator_of(self.plan.case(label).workload.device)
        if accelerator is not None:
            accelerator.synchronize()

    def has_compiled(self, label: str) -> bool:
        """Whether it is a case that is compiled, and the compiler is at work in this
        process.
        """
        is_compiled = any(
            case.label == label and case.workload.compiled for case in self.plan.cases
        )
        return is_compiled and "torch._dynamo" in sys.modules

    def forget(self, label: str) -> None:
        """Let go of all that a case holds: it has failed, and others want the
        memory.
        """
        self.subjects.pop(label, None)
        self.checks.pop(label, None)

    def _is_alone(self, case: Case) -> bool:
        """Whether it is an activation of ffnbench's own among such: timed on one input,
        which stays in a cache.
        """
        if not isinstance(case.ffn, ActivationSpec):
            return False
        return not any(
            isinstance(other.ffn, ActivationSpec) and other.ffn.own
            for other in self.plan.cases
        )

    def take_sample(self, request: TakeSample) -> Sampled:
        """Time the calls of a sample."""
        subject, case = self.subjects[request.label], self.plan.case(request.label)
        work = case.workload
        different, turns = request.calls, 1
        if self._is_alone(case):
            different, turns = 1, request.calls
        _set_conditions(work)
        inputs = subject.pool.renew(request.salt, different) * turns
        grads: list[Tensor] = []
        if subject.train:
            grads = subject.grads.renew(gradient_salt(request.salt), different) * turns
        with _without_compiling(work):
            before = getrusage(RUSAGE_SELF).ru_minflt
            times, waited = self.wait_meter.with_share(
                partial(timing.time_calls, subject, inputs, grads), work.threads
            )
            faults = getrusage(RUSAGE_SELF).ru_minflt - before
        sampled = Sampled(
            value=times.value,
            waited=waited,
            faults=faults,
            host_s=times.host,
            device_s=times.device,
        )
        if subject.accelerator is None:
            return sampled
        return self._on_device(sampled, subject, work.device)

    def _on_device(self, sampled: Sampled, subject: Subject, device: str) -> Sampled:
        """A sample with what is to be said of the accelerator that it was taken on."""
        from ffnbench.device.nvml import DeviceWatch
        from ffnbench.worker.device_timing import NO_DEVICE_TIME

        if self.devices is None:
            self.devices = DeviceWatch()
        sampled = self.devices.after(sampled, device)
        assert subject.timer is not None
        if sampled.device_s is None and subject.timer.gives_up:
            return replace(sampled, notes=(NO_DEVICE_TIME,))
        return sampled

    def check(self, request: Check) -> Values:
        """The relative errors of a case, before its rounds and after them; None where
        nothing tells what is right.

        Raises Mismatch where it has come to give something else.
        """
        check = self.checks[request.label]
        _set_conditions(self.plan.case(request.label).workload)
        if check.checks_again or check.output_error is None:
            salt = Random(f"{self.layout_seed}/check").getrandbits(56)
            check.check(self.subjects[request.label], salt, "after its rounds ")
        errors = {
            ERROR: check.output_error,
            LARGEST_ERROR: check.largest_error,
            GRADIENT_ERROR: check.gradient_error,
        }
        return Values(values=errors)

    def explore_roofs(self, request: ExploreRoofs) -> ReachedRoofs:
        """The fastest roofs of each group."""
        return ReachedRoofs(
            roofs=tuple(
                self._roofs().explore(request.roofs, request.seconds, request.keep)
            )
        )

    def sample_roof(self, request: SampleRoof) -> Sampled:
        """Time the calls of a roof."""
        value, waited = self._roofs().time_roof(
            request.roof, request.calls, self.wait_meter
        )
        return Sampled(value=value, waited=waited)

    def _roofs(self) -> RoofCalls:
        from ffnbench.worker.ceiling_calls import RoofCalls

        if self.ceilings is None:
            self.ceilings = RoofCalls()
        return self.ceilings

    def set_conditions_of(self, label: str) -> Case:
        """A case, with threads, device and precision as it has them."""
        case = self.plan.case(label)
        _set_conditions(case.workload)
        return case

    def measure_memory(self, request: MeasureMemory) -> Values:
        """Exact bytes: peak of one call, and in train mode what is kept for
        backward.
        """
        subject = self.subjects[request.label]
        work = self.plan.case(request.label).workload
        # what a runtime takes is hidden from torch
        if BACKENDS[work.backend].is_runtime:
            return Values(values={})
        _set_conditions(work)
        peak = peak_memory.peak_bytes(subject)
        saved = peak_memory.saved_bytes(subject) if subject.train else None
        return Values(values={PEAK: peak, SAVED: saved})

    def measure_sparsity(self, request: MeasureSparsity) -> Values:
        """How sparse the hidden layer is at the declared init and the seeded input."""
        _set_conditions(self.plan.case(request.label).workload)
        zero, dead = peak_memory.sparsity(self.subjects[request.label])
        return Values(values={"zero_share": zero, "dead_share": dead})

    def measure_routing(self, request: MeasureRouting) -> Values:
        """How the tokens are spread over the experts, where there are any."""
        from ffnbench.ffn.experts import MixtureOfExperts, expert_load

        subject = self.subjects[request.label]
        if not isinstance(subject.module, MixtureOfExperts):
            return Values(values={})
        _set_conditions(self.plan.case(request.label).workload)
        busiest, hit = expert_load(subject.module, subject.x)
        return Values(values={LOAD: busiest, HIT: hit})


def _first_call(subject: Subject, case: Case) -> None:
    """The first call of all: its shape and its dtype, and whether its input is as it
    was.
    """
    before = subject.x.detach().clone()
    try:
        with torch.inference_mode(not subject.train):
            check_output(subject.forward(subject.x), subject.x, case.label)
    except FfnbenchError as problem:
        raise Mismatch(problem.message) from problem
    if not torch.equal(subject.x, before):
        raise Unsupported(
            "it changes its input, which later calls read again: return a new tensor"
        )


def _without_compiling(work: Workload) -> AbstractContextManager[None]:
    """Where it is compiled, nothing compiles in here."""
    if not work.compiled:
        return nullcontext()
    from ffnbench.worker.backends.compiling import recompiling_refused

    return recompiling_refused()


def _set_conditions(work: Workload) -> None:
    """Threads, device and precision are properties of the case: user code and other
    cases may have changed them.
    """
    accelerator = accelerator_of(work.device)
    if accelerator is not None:
        accelerator.make_current()
    # beside a runtime with threads of its own torch has one: others would still spin,
    # after inputs are made, while a call is timed
    threads = 1 if BACKENDS[work.backend].is_runtime else work.threads
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
    set_precision_of(work)


def answer_to(request: WorkerRequest[Any], jobs: Jobs | None = None) -> Any:
    """Do what is asked; any exception becomes a Failed (failures.py)."""
    label = request.label if isinstance(request, OfCase) else ""
    try:
        answer = _dispatch(request, jobs)
        if jobs is not None and label:
            # what the device finds wrong later is this case's, and not the next one's
            jobs.drain(label)
        return answer
    except BaseException as problem:
        # user code may raise anything, SystemExit included
        from ffnbench.worker.failures import failure_of

        compiled = jobs is not None and jobs.has_compiled(label)
        return failure_of(problem, compiled=compiled, measures=jobs is not None)


def _dispatch(request: WorkerRequest[Any], jobs: Jobs | None) -> Any:
    """The answer of whoever does what is asked."""
    if jobs is not None:
        match request:
            case messages.Open():
                return jobs.open(request)
            case messages.TakeSample():
                return jobs.take_sample(request)
            case messages.Check():
                return jobs.check(request)
            case messages.MeasureMemory():
                return jobs.measure_memory(request)
            case messages.MeasureSparsity():
                return jobs.measure_sparsity(request)
            case messages.MeasureRouting():
                return jobs.measure_routing(request)
            case messages.ExploreRoofs():
                return jobs.explore_roofs(request)
            case messages.SampleRoof():
                return jobs.sample_roof(request)
    match request:
        case messages.Preload():
            return probe_jobs.preload(request)
        case messages.Describe():
            return probe_jobs.describe_activation(request)
        case messages.Locate():
            return probe_jobs.locate(request)
        case messages.Count():
            return probe_jobs.count(request.spec, request.workload)
        case messages.ListBackends():
            return probe_jobs.list_backends(request)
        case messages.MeasureTimer():
            return probe_jobs.measure_timer()
        case messages.DescribeDevice():
            return probe_jobs.describe_device(request)
        case messages.Trace():
            from ffnbench.worker.activation_jobs import trace

            return trace(request)
        case messages.MeasureCeilings():
            from ffnbench.worker.ceiling_calls import measure_ceilings

            return measure_ceilings(request)
        case messages.SaveOutput():
            from ffnbench.worker.agreement import save_output

            return save_output(request)
        case messages.CompareOutput():
            from ffnbench.worker.agreement import compare_output

            return compare_output(request)
    _, function = handler(type(request).__name__)
    return function(jobs, request)

"""The jobs of a worker: with the cases of a plan it opens a case, takes its samples,
measures its memory, checks it. Needs torch.

A job is a public name (record/messages.py: ANSWERS), and here a method of Jobs or,
where it needs no plan, a function. Its arguments are decoded by its own type hints.

In the first worker of a run a subject is compared with float64 before its rounds, and
after them (correctness.py).
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, get_type_hints

import torch
from torch import Tensor

from ffnbench.common import jsonable
from ffnbench.common.choices import Cache
from ffnbench.common.errors import FfnbenchError, Unsupported
from ffnbench.common.targets import origin_of
from ffnbench.common.units import IEC, quantity
from ffnbench.device.environment import (
    accelerator_of,
    usable_cpus,
    usable_memory,
)
from ffnbench.device.waiting import WaitMeter
from ffnbench.plan.backends import BACKENDS
from ffnbench.plan.metrics import (
    ERROR,
    GRADIENT_ERROR,
    HELD,
    HIT,
    LOAD,
    PEAK,
    SAVED,
)
from ffnbench.plan.plan import Case, Plan, Workload
from ffnbench.record.messages import (
    OF_CASE,
    SALT_BITS,
    MessageLine,
    Opened,
    Rated,
    Sampled,
    Values,
)
from ffnbench.worker import peak_memory, probe_jobs, timing
from ffnbench.worker.backends.building import (
    build_case,
    impose_routing,
    load_layer,
    module_for_backend,
)
from ffnbench.worker.backends.running import implementation_of
from ffnbench.worker.correctness import Correctness, Mismatch
from ffnbench.worker.probe_jobs import check_output
from ffnbench.worker.rotation import rotate
from ffnbench.worker.subject import (
    Subject,
    gradient_salt,
    most_inputs,
    random_gaps,
    set_precision_of,
    subject_of,
)

if TYPE_CHECKING:
    from ffnbench.worker.rate import BareCalls

# the jobs that need no plan, but for those in files that are seldom loaded
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "preload": probe_jobs.preload,
    "timer": probe_jobs.timer,
    "device": probe_jobs.device,
    "describe": probe_jobs.describe,
    "locate": origin_of,
    "count": probe_jobs.count,
}
DATA_PAGES = 5  # the field of /proc/self/statm with the size of data and stack
# a case has two pools, of inputs and of gradients, and each is in memory as it is
# written and as it is read
POOL_COPIES = 4


@dataclass(slots=True)
class Jobs:
    """All cases of a plan inside one process.

    `memory_bytes` is the memory that they may take, None where it is not known, and
    `layout_seed` the seed of where their tensors lie. `checks` has an entry for each
    case that is open.
    """

    plan: Plan
    memory_bytes: int | None = None
    layout_seed: str = ""
    subjects: dict[str, Subject] = field(default_factory=dict)
    checks: dict[str, Correctness] = field(default_factory=dict)
    wait_meter: WaitMeter = field(default_factory=lambda: WaitMeter(usable_cpus()))
    bare_calls: BareCalls | None = None  # made at the first job about a rate

    def open(self, label: str, calls: int | None, checked: bool = False) -> Opened:
        """Build, check and warm up a case, which is ready to be sampled then.

        `calls` is the number of calls in a sample, None where it has to be found.
        `checked` is whether an earlier worker has checked the case.
        """
        case, protocol = self.plan.case(label), self.plan.protocol
        subject = self._build(case)
        opened = implementation_of(case.workload.backend).prepare(
            subject, case.workload
        )
        check = self.checks[label] = Correctness(case, protocol.seed)
        # code of ffnbench's own that runs as it is written keeps shape and input
        if subject.accelerator is not None or (check.checks_again and not checked):
            _first_call(subject, case)
        if not checked:
            check.check(subject, protocol.seed)
        notes: tuple[str, ...] = ()
        if case.workload.cache is Cache.ROTATED:
            weight_bytes = int(opened.values[HELD] or subject.weight_bytes())
            copies = rotate(subject, case.workload, weight_bytes)
            held = quantity(copies * weight_bytes, IEC)
            notes = (f"{copies} copies of the weights take turns, {held}",)
        with _without_compiling(case.workload):
            # where the number is known, the first round warms up: it is not recorded
            if calls is None:
                calls = timing.calls_for(
                    subject, protocol.min_sample_s, protocol.warmup_s
                )
        calls = min(calls, self._most_inputs(subject))
        subject.pool.renew(protocol.seed, calls)
        if subject.train:
            subject.grads.renew(protocol.seed, calls)
        self.subjects[label] = subject
        return replace(opened, calls=calls, notes=(*opened.notes, *notes))

    def _build(self, case: Case) -> Subject:
        """Build the module of a case, as its backend needs it, and its inputs. Raises
        Unsupported where the case can't be run.
        """
        work, seed = case.workload, self.plan.protocol.seed
        if work.slowdown and work.device != "cpu":
            raise Unsupported("@slowdown works on the CPU only: @device=cpu")
        _set_conditions(work)
        with random_gaps(f"{self.layout_seed}/{case.label}", work.device) as pads:
            module = build_case(case, seed)
        if self.plan.layer is not None:
            load_layer(module, self.plan.model, self.plan.layer)
        module = module_for_backend(module, case.ffn, work.backend)
        impose_routing(module, work, seed)
        subject = subject_of(module, work, case.ffn.d_model, seed)
        subject.pads = pads
        return subject

    def _most_inputs(self, subject: Subject) -> int:
        """How many inputs the pool of a subject may have, so that the pools of all
        cases fit into memory.
        """
        free = self.memory_bytes
        if subject.accelerator is not None:
            free = subject.accelerator.free_bytes()
        if free is None:
            return most_inputs(subject.x, None)
        return most_inputs(subject.x, free // (POOL_COPIES * len(self.plan.cases)))

    def drain(self, label: str) -> None:
        """Wait until the device of a case is idle, so that an error in its pending
        work is raised now.
        """
        accelerator = accelerator_of(self.plan.case(label).workload.device)
        if accelerator is not None:
            accelerator.synchronize()

    def has_compiled(self, label: str) -> bool:
        """Whether the case of this label is to be compiled, and this process has loaded
        the compiler. False for a label that is of no case.
        """
        is_compiled = any(
            case.label == label and case.workload.compiled for case in self.plan.cases
        )
        return is_compiled and "torch._dynamo" in sys.modules

    def forget(self, label: str) -> None:
        """Release all that a failed case holds: others need the memory."""
        self.subjects.pop(label, None)
        self.checks.pop(label, None)

    def sample(self, label: str, calls: int, salt: int = 0) -> Sampled:
        """Time so many calls in a row, on inputs that are drawn from `salt`."""
        case = self._set_conditions_of(label)
        subject, work = self.subjects[label], case.workload
        inputs = subject.pool.renew(salt, calls)
        grads: list[Tensor] = []
        if subject.train:
            grads = subject.grads.renew(gradient_salt(salt), calls)
        with _without_compiling(work):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            times, waited = self.wait_meter.with_share(
                partial(timing.time_calls, subject, inputs, grads), work.threads
            )
            faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
        sampled = Sampled(
            value=times.value,
            waited=waited,
            faults=faults,
            host_s=times.host,
            device_s=times.device,
        )
        if subject.accelerator is None:
            return sampled
        return self._with_device_state(sampled, subject, work.device)

    def _with_device_state(
        self, sampled: Sampled, subject: Subject, device: str
    ) -> Sampled:
        """A sample with the state of the accelerator that it was taken on, and a note
        where its device time is not to be had.
        """
        from ffnbench.device.nvml import throttled
        from ffnbench.worker.device_timing import NO_DEVICE_TIME

        sampled = replace(sampled, throttled=throttled(device))
        assert subject.timer is not None
        if sampled.device_s is None and subject.timer.gives_up:
            return replace(sampled, notes=(NO_DEVICE_TIME,))
        return sampled

    def check(self, label: str) -> Values:
        """Check a case after its rounds, where that can find anything new, and return
        its relative errors so far; None where nothing says what is right.

        Raises Mismatch where its output has become another one.
        """
        check = self.checks[label]
        self._set_conditions_of(label)
        if check.checks_again or check.output_error is None:
            salt = Random(f"{self.layout_seed}/check").getrandbits(SALT_BITS)
            check.check(self.subjects[label], salt, "after its rounds ")
        return {ERROR: check.output_error, GRADIENT_ERROR: check.gradient_error}

    def rate(self, label: str) -> Rated:
        """Time the bare matrix products of a case, and a copy of its bytes."""
        from ffnbench.worker.rate import BareCalls

        if self.bare_calls is None:
            self.bare_calls = BareCalls(self.plan.protocol.min_sample_s)
        case = self._set_conditions_of(label)
        times, waited = self.wait_meter.with_share(
            partial(self.bare_calls.times, case), case.workload.threads
        )
        products_s, copy_s = times
        return Rated(products_s=products_s, copy_s=copy_s, waited=waited)

    def _set_conditions_of(self, label: str) -> Case:
        """Set threads, device and precision as a case has them, and return the case."""
        case = self.plan.case(label)
        _set_conditions(case.workload)
        return case

    def memory(self, label: str) -> Values:
        """Measure exact bytes: the peak of one call, and in train mode what is saved
        for backward. Empty for a runtime, whose memory torch does not see.
        """
        subject = self.subjects[label]
        case = self._set_conditions_of(label)
        if BACKENDS[case.workload.backend].is_runtime:
            return {}
        peak = peak_memory.peak_bytes(subject)
        saved = peak_memory.saved_bytes(subject) if subject.train else None
        return {PEAK: peak, SAVED: saved}

    def sparsity(self, label: str) -> Values:
        """Measure how sparse the hidden layer is at the declared init and the seeded
        input.
        """
        self._set_conditions_of(label)
        zero, dead = peak_memory.sparsity(self.subjects[label])
        return {"zero_share": zero, "dead_share": dead}

    def route(self, label: str) -> Values:
        """Measure how the tokens are spread over the experts; empty where there are
        none.
        """
        from ffnbench.ffn.experts import MixtureOfExperts, expert_load

        subject = self.subjects[label]
        if not isinstance(subject.module, MixtureOfExperts):
            return {}
        self._set_conditions_of(label)
        busiest, hit = expert_load(subject.module, subject.x)
        return {LOAD: busiest, HIT: hit}


def _first_call(subject: Subject, case: Case) -> None:
    """Make the first call of a case, and check its output and that its input is
    unchanged. Raises Mismatch for another shape or dtype than the input's, Unsupported
    where the input was changed.
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
    """A context in which nothing is compiled anew, where the workload is compiled."""
    if not work.compiled:
        return nullcontext()
    from ffnbench.worker.backends.compiling import recompiling_refused

    return recompiling_refused()


def _set_conditions(work: Workload) -> None:
    """Set threads, device and precision as a workload has them: user code and other
    cases may have changed them.
    """
    accelerator = accelerator_of(work.device)
    if accelerator is not None:
        accelerator.make_current()
    # a runtime has threads of its own: those of torch would still spin after they have
    # made the inputs, while a call is timed
    threads = 1 if BACKENDS[work.backend].is_runtime else work.threads
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
    set_precision_of(work)


def begin(plan: Plan, layout_seed: str = "", memory_bytes: int | None = None) -> Jobs:
    """Be ready to measure the cases of a plan.

    `layout_seed` is the seed of where their tensors lie in memory. `memory_bytes` is
    the memory that this process may take, found here where it is None. Where all cases
    run on the CPU, more can't be allocated.
    """
    memory = memory_bytes or usable_memory()
    if all(case.workload.device == "cpu" for case in plan.cases):
        _limit_memory(memory)
    return Jobs(plan, memory, layout_seed)


def _limit_memory(usable: int | None) -> None:
    """On Linux, let this process allocate so many bytes beside what it has now: an
    allocation beyond that fails as an error, and does not wake the OOM killer.
    """
    if sys.platform != "linux" or usable is None:
        return
    with open("/proc/self/statm", encoding="ascii") as file:
        data_pages = int(file.read().split()[DATA_PAGES])
    limit = data_pages * os.sysconf("SC_PAGE_SIZE") + usable
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def answer_to(job: str, arguments: MessageLine, jobs: Jobs | None = None) -> Any:
    """Do a job with the arguments of its message, and return its answer. Any exception
    becomes a Failed (failures.py). Without `jobs` there is no plan, and no case can be
    asked about.
    """
    label: str = arguments.get("label", "")
    try:
        function = function_of(job, jobs)
        answer = function(**decoded_arguments(function, arguments))
        if jobs is not None and label:
            # an error in work that is still queued belongs to this case, not the next
            jobs.drain(label)
        return answer
    except BaseException as problem:
        # user code may raise anything, SystemExit included
        from ffnbench.worker.failures import failure_of

        compiled = jobs is not None and jobs.has_compiled(label)
        return failure_of(problem, compiled=compiled, measures=jobs is not None)


def function_of(job: str, jobs: Jobs | None) -> Callable[..., Any]:
    """The function that does a job; raises ValueError for a name that is none."""
    if jobs is not None and job in OF_CASE:
        method: Callable[..., Any] = getattr(jobs, job)
        return method
    if job in FUNCTIONS:
        return FUNCTIONS[job]
    if job == "trace":
        from ffnbench.worker.activation_jobs import trace

        return trace
    if job in ("save_output", "compare_output"):
        from ffnbench.worker.agreement import compare_output, save_output

        return save_output if job == "save_output" else compare_output
    raise ValueError(f"a worker has no job {job!r}")


def decoded_arguments(function: Any, arguments: MessageLine) -> dict[str, Any]:
    """The arguments of a message, by the type hints of the function that takes them."""
    hints = get_type_hints(function)
    return {
        name: jsonable.decode(hints[name], value, name)
        for name, value in arguments.items()
    }

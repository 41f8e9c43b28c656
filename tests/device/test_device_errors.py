"""What a device's own messages come to: which end a worker, which are memory, which are
one short line.
"""

from __future__ import annotations

import pytest
import torch

from ffnbench.device.accelerator import device_error
from ffnbench.record.messages import Failed, Sampled
from ffnbench.record.result import FailureKind
from ffnbench.worker import jobs

# as torch and its libraries write them
ILLEGAL = (
    "CUDA error: an illegal memory access was encountered\nSearch for `cudaErrorIllegalAddress' in https://docs.nvidia."
    "com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more information.\nCUDA kernel errors might be "
    "asynchronously reported at some other API call, so the stacktrace below might be incorrect.\nFor debugging pass "
    "CUDA_LAUNCH_BLOCKING=1\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
)
ASSERTED = "CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported"
CUBLAS = "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx( handle, opa, opb, m, n, k, ...)`"
TRITON = "Triton Error [CUDA]: an illegal memory access was encountered"
NO_HANDLE = "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
FULL = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.20 GiB is free."
    " Including non-PyTorch memory, this process has 77.89 GiB memory in use. Of the allocated memory 76.00 GiB is "
    "allocated by PyTorch, and 1.20 GiB is reserved by PyTorch but unallocated."
)


def accelerator_error(text: str) -> RuntimeError:
    return getattr(torch, "AcceleratorError", RuntimeError)(text)


class Jobs:
    """Those of a worker whose device finds out later what a call did."""

    def __init__(
        self, problem: Exception | None = None, at_once: Exception | None = None
    ) -> None:
        self.problem, self.at_once, self.drained = problem, at_once, []

    def sample(self, label: str, calls: int) -> Sampled:
        if self.at_once:
            raise self.at_once
        return Sampled(value=1.0)

    def drain(self, label: str) -> None:
        self.drained.append(label)
        if self.problem:
            raise self.problem

    def has_compiled(self, label: str) -> bool:
        return False


def answer_to(problem: Exception) -> Failed:
    return jobs.answer_to("sample", dict(label="relu", calls=1), Jobs(at_once=problem))


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (
            accelerator_error(ILLEGAL),
            "CUDA error: an illegal memory access was encountered",
        ),
        (RuntimeError(ASSERTED), "CUDA error: device-side assert triggered"),
        (RuntimeError(CUBLAS), CUBLAS),
        (RuntimeError(TRITON), TRITON),
        (
            RuntimeError(ILLEGAL.replace("CUDA", "HIP")),
            "HIP error: an illegal memory access was encountered",
        ),
    ],
)
def test_what_breaks_the_context_ends_the_worker(problem: Exception, said: str) -> None:
    assert answer_to(problem) == Failed(
        kind=FailureKind.CRASH, message=said, ends_process=True
    )
    dressed = KeyError("my kernel failed")
    dressed.__cause__ = problem
    assert answer_to(dressed) == answer_to(problem)


@pytest.mark.parametrize(
    ("problem", "kind", "said"),
    [
        (torch.OutOfMemoryError(FULL), "oom", FULL.partition(" Including")[0]),
        (accelerator_error("CUDA error: out of memory\nmore"), "oom", "CUDA error: out of memory"),
        (RuntimeError(NO_HANDLE), "oom", NO_HANDLE),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), "crash",
         "RuntimeError: mat1 and mat2 shapes cannot be multiplied"),
    ],
)  # fmt: skip
def test_what_leaves_the_context_whole_is_a_row_and_no_more(
    problem: Exception, kind: str, said: str
) -> None:
    answer = answer_to(problem)
    assert (answer.kind.value, answer.message.partition(" (tests/")[0]) == (kind, said)
    assert device_error(problem) == ""


def test_an_error_that_the_device_finds_later_is_that_of_the_case_that_made_it() -> (
    None
):
    """Errors of kernels come up at the next wait: the worker waits before it
    answers.
    """
    broken = Jobs(accelerator_error(ILLEGAL))
    answer = jobs.answer_to("sample", dict(label="relu", calls=1), broken)
    assert (answer.kind, answer.ends_process, broken.drained) == (
        FailureKind.CRASH,
        True,
        ["relu"],
    )
    fine = Jobs()
    assert jobs.answer_to("sample", dict(label="gelu", calls=1), fine) == Sampled(
        value=1.0
    )
    assert fine.drained == ["gelu"]

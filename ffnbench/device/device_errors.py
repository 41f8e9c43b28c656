"""What an exception says of the device: whether it can still be used, and in how few words that can be told.

By names and texts alone, which are the same for CUDA and ROCm: no torch here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

STICKY = re.compile(r"(CUDA|HIP) error|device-side assert|Triton Error \[(CUDA|HIP)\]")
# what torch and the libraries say where the device's memory is full; the context stays whole then
FULL = re.compile(
    r"out of memory|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED|rocblas_status_memory_error", re.I
)


def _chain(problem: BaseException | None) -> Iterator[BaseException]:
    """It, and what it was raised from or while: user code may dress an error as one of its own."""
    for _ in range(100):  # one that is its own cause has no end
        if problem is not None:
            yield problem
            problem = problem.__cause__ or problem.__context__


def device_error(problem: BaseException) -> str:
    """What broke the device's context, in one line; "" where it was nothing such.

    Afterwards every call of this process on the device fails with it, whoever makes it.
    """
    for one in _chain(problem):
        text = str(one)
        sticky = isinstance(one, RuntimeError) and STICKY.search(text) is not None
        named = sticky or type(one).__name__ == "AcceleratorError"
        if named and not FULL.search(text):
            return first_line(text)
    return ""


def is_full(problem: BaseException) -> bool:
    """Whether the device's memory was too little."""
    full = isinstance(problem, RuntimeError) and FULL.search(str(problem)) is not None
    return full or type(problem).__name__ == "OutOfMemoryError"


def first_line(text: str) -> str:
    """An error of a device without the advice that follows it in every message, in lines or sentences."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "").partition(" Including non-PyTorch")[0]

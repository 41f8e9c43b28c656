"""What an exception says of the device: whether it can still be used, and in how few words that can be told.

By names and texts alone, which are the same for CUDA, ROCm and XPU: no torch here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

STICKY = re.compile(
    r"(CUDA|HIP|XPU|SYCL) error|device-side assert|Triton Error \[(CUDA|HIP)\]|UR_RESULT_ERROR_DEVICE_LOST"
)
# what torch and the libraries say where the device's memory is full; the context stays whole then
FULL = re.compile(
    r"out of memory|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED|rocblas_status_memory_error", re.I
)
NO_KERNEL = ("no kernel image is available", "invalid device function")  # this torch was not built for this device


def _chain(problem: BaseException | None) -> Iterator[BaseException]:
    """It, and what it was raised from or while: user code may dress an error as one of its own."""
    seen: set[int] = set()
    while problem is not None and id(problem) not in seen:
        seen.add(id(problem))
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
        if named and not FULL.search(text) and not any(mark in text for mark in NO_KERNEL):
            return first_line(text)
    return ""


def is_full(problem: BaseException) -> bool:
    """Whether the device's memory was too little."""
    full = isinstance(problem, RuntimeError) and FULL.search(str(problem)) is not None
    return full or type(problem).__name__ == "OutOfMemoryError"


def lacks_kernels(problem: BaseException) -> bool:
    """Whether torch has no code for this device."""
    return isinstance(problem, RuntimeError) and any(mark in str(problem) for mark in NO_KERNEL)


def first_line(text: str) -> str:
    """An error of a device without the advice that follows it in every message."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def out_of_memory(text: str) -> str:
    """Torch's account of a full device, in a few words: what was asked for, what was free of what there is."""
    asked = re.search(r"Tried to allocate ([\d.]+ \w+)", text)
    there = re.search(r"total capacity of ([\d.]+ \w+) of which ([\d.]+ \w+) is free", text)
    if not asked:
        return "the device's memory is full" if FULL.search(text) else ""
    where = f", and {there[2]} of the device's {there[1]} were free" if there else " on the device"
    return f"it tried to allocate {asked[1]} at once{where}"

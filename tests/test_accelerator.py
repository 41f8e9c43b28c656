"""What torch is asked for on a device with a queue of its own: in which order, and what comes of a capture that fails.
No such device is here: torch's own names are faked.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import pytest
import torch

from ffnbench.device.accelerator import CaptureFailed, CudaAccelerator


class Cuda:
    """torch.cuda, as far as a capture needs it: it notes what is done, on which stream."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: list[str] = []
        self.on, self.mode, self.invalid = "default", 0, False
        cuda = self

        class Stream:
            def __init__(self, device: object = None, name: str = "side") -> None:
                self.name = name

            def wait_stream(self, other: Stream) -> None:
                cuda.log.append(f"{self.name} waits for {other.name}")

        class Graph:
            def capture_begin(self, capture_error_mode: str = "global") -> None:
                cuda.log.append(f"begin on {cuda.on}")

            def capture_end(self) -> None:
                cuda.log.append("end")
                if cuda.invalid:
                    cuda.invalid = False
                    raise RuntimeError("operation failed due to a previous error during capture")

            def replay(self) -> None:
                cuda.log.append(f"replay on {cuda.on}")

        @contextmanager
        def stream(chosen: Stream):
            before, cuda.on = cuda.on, chosen.name
            try:
                yield
            finally:
                cuda.on = before

        def set_mode(mode: str | int) -> None:
            cuda.mode = mode

        for name, value in {
            "Stream": Stream, "CUDAGraph": Graph, "stream": stream, "set_sync_debug_mode": set_mode,
            "get_sync_debug_mode": lambda: cuda.mode, "current_stream": lambda device: Stream(name=cuda.on),
            "synchronize": lambda device: cuda.log.append("synchronize"),
        }.items():  # fmt: skip
            monkeypatch.setattr(torch.cuda, name, value)
        monkeypatch.setattr(
            torch._C, "_cuda_clearCublasWorkspaces", lambda: cuda.log.append("no workspaces"), raising=False
        )
        self.of = CudaAccelerator("cuda:0")
        self.of.device = torch.device("cpu")

    def work(self) -> str:
        self.log.append(f"work on {self.on}")
        return "kept"


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    return Cuda(monkeypatch)


def test_a_capture_is_warmed_up_on_its_side_stream_as_torch_asks(cuda: Cuda) -> None:
    """https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs, whole-network capture."""
    replay: Any = cuda.of.capture(cuda.work)
    assert cuda.log == [
        "side waits for default", "work on side", "default waits for side", "synchronize",
        "no workspaces", "begin on side", "work on side", "end", "no workspaces",
    ]  # fmt: skip
    replay.replay()
    assert cuda.log[-1] == "replay on default"
    assert replay.kept == "kept"


def test_what_waits_for_the_device_is_found_before_a_capture_begins(cuda: Cuda) -> None:
    def work() -> None:
        if cuda.mode == "error":
            raise RuntimeError("called a synchronizing CUDA operation\nand advice")

    with pytest.raises(CaptureFailed, match=r"^called a synchronizing CUDA operation$"):
        cuda.of.capture(work)
    assert not [line for line in cuda.log if line.startswith("begin")]
    assert (cuda.on, cuda.mode) == ("default", 0)


def test_after_a_capture_that_broke_off_the_stream_is_as_it_was(cuda: Cuda) -> None:
    """It is ended, and a trifle is captured after it, which takes the generator out of it."""

    def work() -> None:
        cuda.log.append("work")
        if cuda.log.count("work") > 1:
            cuda.invalid = True
            raise ValueError("operation not permitted when stream is capturing")

    with pytest.raises(CaptureFailed, match="not permitted"):
        cuda.of.capture(work)
    after = cuda.log[cuda.log.index("begin on side") :]
    assert after == [
        "begin on side", "work", "end", "no workspaces", "synchronize", "begin on side", "end", "synchronize",
    ]  # fmt: skip
    assert cuda.on == "default"

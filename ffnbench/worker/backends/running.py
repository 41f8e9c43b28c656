"""Finds the file that runs a backend, and says what such a file has. Runs in a worker;
needs torch.
"""

from __future__ import annotations

from typing import Protocol, assert_never

from ffnbench.common.choices import Backend
from ffnbench.plan.plan import Workload
from ffnbench.record.messages import Opened
from ffnbench.worker.subject import Subject


class Implementation(Protocol):
    """A file of this folder that runs modules in a way of its own."""

    def prepare(self, subject: Subject, work: Workload) -> Opened:
        """Make a subject ready to be called; set `subject.run` where the module itself
        is not called. Return how many seconds that took to compile or to pack, and how
        many bytes the weights have that a call computes with.

        Raises Unsupported where this backend can't run the module.
        """


def implementation_of(backend: Backend) -> Implementation:
    """The file of a backend."""
    match backend:
        case Backend.EAGER:
            from ffnbench.worker.backends import eager

            return eager
        case Backend.COMPILE:
            from ffnbench.worker.backends import compiling

            return compiling
        case Backend.ONEDNN:
            from ffnbench.worker.backends import onednn

            return onednn
        case Backend.ORT:
            from ffnbench.worker.backends import ort

            return ort
        case Backend.OPENVINO:
            from ffnbench.worker.backends import openvino

            return openvino
        case _:
            assert_never(backend)

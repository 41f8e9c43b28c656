"""A module as it is written. In a worker; needs torch."""

from __future__ import annotations

import torch

from ffnbench.messages import Opened
from ffnbench.metrics import HELD
from ffnbench.plan import Workload
from ffnbench.worker.subject import Subject


def unavailable(device: torch.device, dtype: torch.dtype | None = None) -> str:
    """Nothing stands in its way."""
    return ""


def prepare(subject: Subject, work: Workload) -> Opened:
    """Nothing is to be done: the weights that a call computes with are those of the module."""
    return Opened(calls=1, values={HELD: subject.weight_bytes()})

"""A form through ONNX Runtime: a graph made in memory, run by its CPU provider. Needs
torch, onnx and onnxruntime.

The session is made in the process that times it, since its threads would not outlive a
fork, with as many threads as the workload has. They wait without spinning unless the
workload says otherwise: a deployer who sets nothing has threads that spin, which is
faster for one runtime alone and slows down whatever runs beside it (onnxruntime#13808).
"""

from __future__ import annotations

import os
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from ffnbench.backends import not_installed
from ffnbench.choices import Backend
from ffnbench.ffn.modules import FeedForward
from ffnbench.messages import Opened
from ffnbench.metrics import HELD, PACK
from ffnbench.plan import Workload
from ffnbench.worker.backends.onnx_graph import INPUT, graph_bytes, onnx_model
from ffnbench.worker.subject import Subject


def session_of(module: FeedForward, work: Workload) -> Any:
    """An InferenceSession of the module, with the weights and the threads of the
    workload.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = (
        "1"  # since 1.29 it sends usage data by default on Linux too
    )
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = work.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what it can't do is an exception
    options.add_session_config_entry(
        "session.intra_op.allow_spinning", "1" if work.spin else "0"
    )
    model = onnx_model(module, work.weights, work.group).SerializeToString()
    return onnxruntime.InferenceSession(
        model, options, providers=["CPUExecutionProvider"]
    )


def unavailable(device: torch.device, dtype: torch.dtype | None = None) -> str:
    """Why it can't run here; "" if it can."""
    return not_installed(Backend.ORT)


def prepare(subject: Subject, work: Workload) -> Opened:
    """Let ONNX Runtime run the subject's module."""
    start = perf_counter()
    session = session_of(subject.module, work)
    seconds = perf_counter() - start

    def run(x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1]).numpy()
        return torch.from_numpy(session.run(None, {INPUT: flat})[0]).view_as(x)

    subject.run = run
    return Opened(calls=1, values={PACK: seconds, HELD: graph_bytes(subject, work)})

"""Runs a form through ONNX Runtime's CPU provider, from a graph made in memory. Needs
torch, onnx and onnxruntime.

The session is made in the process that times it, since its threads would be lost in a
fork; it has as many threads as the workload. They wait without spinning unless the
workload says otherwise. By default they spin, which is faster for one runtime alone and
slows down whatever runs beside it (onnxruntime#13808).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ffnbench.ffn.modules import FeedForward
from ffnbench.plan.plan import Workload
from ffnbench.record.messages import Opened
from ffnbench.worker.backends.onnx_graph import INPUT, onnx_model, prepare_runtime
from ffnbench.worker.subject import Subject


def session_of(module: FeedForward, work: Workload) -> Any:
    """An InferenceSession of the module, with the weights and the threads of the
    workload.
    """
    # since 1.29 it sends usage data by default on Linux too
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = work.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # fatal alone: failures are exceptions
    spins = str(int(work.spin))
    options.add_session_config_entry("session.intra_op.allow_spinning", spins)
    model = onnx_model(module, work.weights, work.group).SerializeToString()
    providers = ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(model, options, providers=providers)


def prepare(subject: Subject, work: Workload) -> Opened:
    """Have ONNX Runtime run the subject's module."""

    def load() -> Callable[[Any], Any]:
        session = session_of(subject.module, work)
        return lambda x: session.run(None, {INPUT: x})[0]

    return prepare_runtime(load, subject, work)

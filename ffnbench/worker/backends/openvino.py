"""Runs a form through OpenVINO's CPU plugin, from the graph that ONNX Runtime is given
too. Needs torch, onnx and openvino.

By default OpenVINO computes in bfloat16 where a CPU has it, quantises the input of
quantised products, and binds its threads to cores; all three are set here. It is
imported in the process that times it: its threads start with the import, and would be
lost in a fork.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from ffnbench.ffn.modules import FeedForward
from ffnbench.plan.plan import Workload
from ffnbench.record.messages import Opened
from ffnbench.worker.backends.onnx_graph import onnx_model, prepare_runtime
from ffnbench.worker.subject import Subject

PRECISIONS = {"float32": "f32", "bfloat16": "bf16"}


def infer_request(module: FeedForward, work: Workload) -> Any:
    """An InferRequest of the module, compiled with the weights and the threads of the
    workload.
    """
    # its package openvino_telemetry would write a file into the home folder; where this
    # can't be imported, OpenVINO sends no usage data
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    import openvino

    core = openvino.Core()
    model = onnx_model(module, work.weights, work.group).SerializeToString()
    settings = {
        "INFERENCE_PRECISION_HINT": PRECISIONS[work.dtype],
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
        "INFERENCE_NUM_THREADS": work.threads,
        "NUM_STREAMS": 1,
        "ENABLE_CPU_PINNING": False,
    }
    return core.compile_model(
        core.read_model(model), "CPU", settings
    ).create_infer_request()


def prepare(subject: Subject, work: Workload) -> Opened:
    """Have OpenVINO run the subject's module."""

    def load() -> Callable[[Any], Any]:
        request = infer_request(subject.module, work)
        infer = partial(request.infer, share_inputs=True, share_outputs=True)
        return lambda x: infer([x])[0].copy()  # the next call overwrites it

    return prepare_runtime(load, subject, work)

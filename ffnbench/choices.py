"""The words that a flag, a key of a variant and a field of a plan choose among."""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    """FORWARD: inference, no graph. TRAIN: forward and backward through a fresh graph.
    BACKWARD: its second half.
    """

    FORWARD = "forward"
    TRAIN = "train"
    BACKWARD = "backward"


MODE_ALIASES = {"inference": Mode.FORWARD, "training": Mode.TRAIN}


class Backend(StrEnum):
    """How a forward is run. EAGER: as it is written. COMPILE: through torch.compile.
    PACKED: gate and up in one matrix product, the rows of gate first; PACKED_UP_GATE:
    those of up first. ONEDNN: linear layers through oneDNN, their weights packed for
    the workload's tokens. ORT: through ONNX Runtime. OPENVINO: through OpenVINO.
    """

    EAGER = "eager"
    PACKED = "packed"
    PACKED_UP_GATE = "packed-up-gate"
    COMPILE = "compile"
    ONEDNN = "onednn"
    ORT = "ort"
    OPENVINO = "openvino"


class Weights(StrEnum):
    """How the matrices of weights are held. NONE: in the dtype of the call. INT8, INT4:
    in so many bits, while the other factor stays as it is. INT8_DYNAMIC: in 8 bits, and
    the other factor is brought to 8 bits at each call.
    """

    NONE = "none"
    INT8_DYNAMIC = "int8-dynamic"
    INT8 = "int8"
    INT4 = "int4"


class CompileMode(StrEnum):
    """torch.compile's own modes."""

    DEFAULT = "default"
    REDUCE_OVERHEAD = "reduce-overhead"
    MAX_AUTOTUNE = "max-autotune"
    MAX_AUTOTUNE_NO_CUDAGRAPHS = "max-autotune-no-cudagraphs"


class Time(StrEnum):
    """Which time is the latency. WALL: what a caller waits for, calls one after
    another. DEVICE: what the device works, without the host's launching.
    """

    WALL = "wall"
    DEVICE = "device"


class Cache(StrEnum):
    """What the device's last-level cache holds before a call. HOT: what the last call
    left. COLD: nothing of it.
    """

    HOT = "hot"
    COLD = "cold"


class MatmulPrecision(StrEnum):
    """torch.set_float32_matmul_precision's own: HIGHEST is float32, HIGH may be TF32,
    MEDIUM bfloat16 inside.
    """

    HIGHEST = "highest"
    HIGH = "high"
    MEDIUM = "medium"


class Init(StrEnum):
    """How weights are filled: torch's nn.Linear default, He on the way up and Xavier *
    0.02 on the way down (zero biases), or N(0, 0.02) with zero biases.
    """

    TORCH = "torch"
    HE_XAVIER = "he_xavier"
    NORMAL = "normal"


class Routing(StrEnum):
    """How often each expert is asked while it is measured: imposed, because a router
    that was never trained says nothing of one that was. Each token draws its experts by
    itself, in proportion to `shares`, no expert twice.
    """

    UNIFORM = "uniform"
    SKEWED = "skewed"
    TRAINED_LIKE = "trained-like"


class Match(StrEnum):
    """What is made equal to the reference: parameters, forward matmul FLOPs, the time
    that is measured, or nothing (all get one width).
    """

    PARAMS = "params"
    FLOPS = "flops"
    TIME = "time"
    NONE = "none"

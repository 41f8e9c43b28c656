"""The words that a flag, a key of a variant and a field of a plan choose among."""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    """What a call does. FORWARD: inference, without a graph. TRAIN: forward and
    backward, through a fresh graph. BACKWARD: the backward alone.
    """

    FORWARD = "forward"
    TRAIN = "train"
    BACKWARD = "backward"


# what others call a mode
MODE_ALIASES = {"inference": Mode.FORWARD, "training": Mode.TRAIN}


class Backend(StrEnum):
    """How a forward is run. EAGER: as it is written. COMPILE: through torch.compile.
    ONEDNN: linear layers through oneDNN, their weights packed for the workload's
    tokens. ORT: through ONNX Runtime. OPENVINO: through OpenVINO.
    """

    EAGER = "eager"
    COMPILE = "compile"
    ONEDNN = "onednn"
    ORT = "ort"
    OPENVINO = "openvino"


ALL_BACKENDS = "all"  # in place of a list of backends: every one


class Weights(StrEnum):
    """How the matrices of weights are held. NONE: in the dtype of the call. INT8, INT4:
    in 8 or 4 bits, while the inputs of the product keep their dtype. INT8_DYNAMIC: in 8
    bits, and each call quantises the inputs to 8 bits as well. FP8: floats of 8 bits,
    with one scale for all, for each row, or for each block of 128 x 128 (DeepSeek-V3).
    MXFP4: floats of 4 bits in groups of 32 with a scale of 8 bits (OCP Microscaling
    Formats 1.0). NVFP4: in groups of 16, with one more scale for all (NVIDIA 2025).
    """

    NONE = "none"
    INT8_DYNAMIC = "int8-dynamic"
    INT8 = "int8"
    INT4 = "int4"
    FP8 = "fp8"
    FP8_ROW = "fp8-row"
    FP8_BLOCK = "fp8-block"
    MXFP4 = "mxfp4"
    NVFP4 = "nvfp4"


DEFAULT_MODE = "default"  # of torch.compile; torch lists the others


class Time(StrEnum):
    """Which time is the latency. WALL: what a caller waits for, calls one after
    another. DEVICE: what the device works, without the host's launching.
    """

    WALL = "wall"
    DEVICE = "device"


class Cache(StrEnum):
    """What the device's last-level cache holds before a call. HOT: what the last call
    left. COLD: nothing of it. ROTATED: the input, and none of the weights, as in a
    model of many layers: each call uses the next of several copies of the weights.
    """

    HOT = "hot"
    COLD = "cold"
    ROTATED = "rotated"


ROTATED_BYTES = 1 << 29  # of all copies of the weights that take turns, at least


class MatmulPrecision(StrEnum):
    """The values of torch.set_float32_matmul_precision. Products of float32 matrices
    are computed in float32 with HIGHEST, perhaps in TF32 with HIGH, and perhaps in
    bfloat16 with MEDIUM.
    """

    HIGHEST = "highest"
    HIGH = "high"
    MEDIUM = "medium"


class Init(StrEnum):
    """How weights are filled. TORCH: as nn.Linear does by default. HE_XAVIER: He for
    the matrices that widen, Xavier * 0.02 for the one that narrows, zero biases.
    NORMAL: N(0, 0.02), zero biases.
    """

    TORCH = "torch"
    HE_XAVIER = "he_xavier"
    NORMAL = "normal"


class Routing(StrEnum):
    """How tokens are spread over experts while these are measured (ffn/routing.py:
    shares). It is imposed, because a router that was never trained says nothing of one
    that was. Each token draws its experts by itself, none of them twice.
    """

    UNIFORM = "uniform"
    SKEWED = "skewed"
    TRAINED_LIKE = "trained-like"


class Match(StrEnum):
    """What is made equal to the reference by choosing d_ff: the parameters, the FLOPs
    of a forward's matrix products, or nothing. With NONE all
    variants get one width.
    """

    PARAMS = "params"
    FLOPS = "flops"
    NONE = "none"


class Convention(StrEnum):
    """How the FLOPs of a model are counted (inspecting/flops.py: model_flops)."""

    CAUSAL = "causal"
    SQUARE = "square"
    MEGATRON = "megatron"


# the suffixes of files: of every table by its format, of a check, of a picture, and of
# plot-activations, whose CSV holds the points of its curves
SUFFIX_OF = {"csv": ".csv", "json": ".json", "markdown": ".md", "latex": ".tex"}
SUFFIXES = tuple(SUFFIX_OF.values())
PAGE_SUFFIX = ".html"
CHECK_SUFFIXES = (".xml", *SUFFIXES)
FIGURE_SUFFIXES = (".png", ".svg", ".pdf")
PICTURE_SUFFIXES = (*FIGURE_SUFFIXES, ".csv")
WORKER_VARIABLE = "FFNBENCH_WORKER"  # in the environment of a worker

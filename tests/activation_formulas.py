"""Each activation written again, from its definition and with the standard library
alone.
"""

from __future__ import annotations

import math


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


ORACLE = {
    "identity": lambda x: x,
    "relu": lambda x: max(0.0, x),
    "leaky_relu": lambda x: x if x > 0 else 0.01 * x,
    "prelu": lambda x: x if x > 0 else 0.25 * x,
    "relu6": lambda x: min(max(0.0, x), 6.0),
    "relu2": lambda x: max(0.0, x) ** 2,
    "leaky_relu2": lambda x: max(x, 0.5 * x) ** 2,
    "smooth_relu2": lambda x: x / 2 * (x + math.hypot(x, 0.2)),
    "clamp": lambda x: sorted((-1.0, x, 1.0))[1],
    "softcap": lambda x: 25 * math.tanh(x / 25),
    "situ": lambda x: 4 * math.tanh(x / 4) * sigmoid(x),
    "sigmoid": sigmoid,
    "tanh": math.tanh,
    "gelu": lambda x: x * 0.5 * math.erfc(-x / math.sqrt(2)),
    "gelu_10": lambda x: min(max(-10.0, x * 0.5 * math.erfc(-x / math.sqrt(2))), 10.0),
    "gelu_tanh": lambda x: (
        0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    ),
    "quick_gelu": lambda x: x * sigmoid(1.702 * x),
    "silu": lambda x: x * sigmoid(x),
    "swish": lambda x: x * sigmoid(0.5 * x),
    "mish": lambda x: x * math.tanh(math.log1p(math.exp(x))),
    "hardswish": lambda x: x * min(max(x + 3, 0.0), 6.0) / 6,
    "elu": lambda x: x if x > 0 else math.expm1(x),
    "selu": lambda x: (
        1.0507009873554805 * (x if x > 0 else 1.6732632423543772 * math.expm1(x))
    ),
    "softplus": lambda x: math.log1p(math.exp(x)),
    "xielu": lambda x: (
        0.5 * x + (0.8 * x * x if x > 0 else 0.8 * (math.exp(x) - 1 - x))
    ),
}

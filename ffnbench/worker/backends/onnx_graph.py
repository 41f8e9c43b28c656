"""Makes an ONNX model in memory from one of ffnbench's dense forms with its weights.
Needs torch and onnx.

The activation is not written a second time: the function in the table of activations is
called with a GraphTensor in place of a tensor, and each operation that it applies
becomes a node of the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch
from onnx import ModelProto, TensorProto, helper, numpy_helper
from torch import Tensor

from ffnbench.common.choices import Weights
from ffnbench.ffn.modules import EPSILON, FeedForward
from ffnbench.ffn.spec import UP, Applied, Gate, Norm
from ffnbench.plan.metrics import HELD, PACK
from ffnbench.plan.plan import Workload
from ffnbench.record.messages import Opened
from ffnbench.worker.backends.quantised import bytes_held
from ffnbench.worker.subject import Subject

OPSET, IR_VERSION = 22, 10  # ONNX 1.17, of October 2024; Gelu is there since opset 20
MICROSOFT = "com.microsoft"  # ONNX Runtime's own operators, which OpenVINO reads too
INPUT, OUTPUT = "x", "y"


class Graph:
    """A graph that is being made: its nodes and constants so far."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, tensor: Tensor) -> GraphTensor:
        """Add a constant to the graph, and return it."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(
            numpy_helper.from_array(tensor.contiguous().numpy(), name)
        )
        return GraphTensor(self, name)

    def add(
        self,
        operator: str,
        *inputs: GraphTensor | None,
        domain: str = "",
        **attributes: Any,
    ) -> GraphTensor:
        """Add a node with one output, and return the output. An input that is None is
        left out.
        """
        return self.add_several(
            operator, *inputs, outputs=1, domain=domain, **attributes
        )[0]

    def add_several(
        self,
        operator: str,
        *inputs: GraphTensor | None,
        outputs: int,
        domain: str = "",
        **attributes: Any,
    ) -> list[GraphTensor]:
        """Add a node with several outputs, and return these."""
        names = [f"{operator}_{len(self.nodes)}_{number}" for number in range(outputs)]
        given = ["" if value is None else value.name for value in inputs]
        self.nodes.append(
            helper.make_node(operator, given, names, domain=domain, **attributes)
        )
        return [GraphTensor(self, name) for name in names]

    def model(self, result: GraphTensor, width: int) -> ModelProto:
        """The model whose output is `result`; input and output are float32 of (tokens,
        width).
        """
        self.nodes.append(helper.make_node("Identity", [result.name], [OUTPUT]))
        shape = ["tokens", width]
        graph = helper.make_graph(
            self.nodes,
            "ffn",
            [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, shape)],
            self.constants,
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


class GraphTensor:
    """A float32 tensor of the graph, with those methods of a torch tensor that
    activations use.
    """

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph, self.name = graph, name

    def _as_value(self, other: GraphTensor | float) -> GraphTensor:
        if isinstance(other, GraphTensor):
            return other
        return self.graph.constant(torch.tensor(other, dtype=torch.float32))

    def __mul__(self, other: GraphTensor | float) -> GraphTensor:
        return self.graph.add("Mul", self, self._as_value(other))

    def __add__(self, other: GraphTensor | float) -> GraphTensor:
        return self.graph.add("Add", self, self._as_value(other))

    def __sub__(self, other: GraphTensor | float) -> GraphTensor:
        return self.graph.add("Sub", self, self._as_value(other))

    def __truediv__(self, other: GraphTensor | float) -> GraphTensor:
        return self.graph.add("Div", self, self._as_value(other))

    def __gt__(self, other: GraphTensor | float) -> GraphTensor:
        return self.graph.add("Greater", self, self._as_value(other))

    __rmul__, __radd__ = __mul__, __add__

    def sigmoid(self) -> GraphTensor:
        """1 / (1 + exp(-x))."""
        return self.graph.add("Sigmoid", self)

    def tanh(self) -> GraphTensor:
        """The hyperbolic tangent."""
        return self.graph.add("Tanh", self)

    def abs(self) -> GraphTensor:
        """The absolute value."""
        return self.graph.add("Abs", self)

    def sqrt(self) -> GraphTensor:
        """The square root."""
        return self.graph.add("Sqrt", self)

    def square(self) -> GraphTensor:
        """x * x."""
        return self * self

    def expm1(self) -> GraphTensor:
        """exp(x) - 1; ONNX has no operator that keeps its digits near 0."""
        return self.graph.add("Exp", self) - 1.0

    def clamp(self, min: float | None = None, max: float | None = None) -> GraphTensor:
        """x between two bounds."""
        low = None if min is None else self._as_value(min)
        high = None if max is None else self._as_value(max)
        return self.graph.add("Clip", self, low, high)

    def where(self, condition: GraphTensor, other: GraphTensor) -> GraphTensor:
        """x where the condition holds, else the other."""
        return self.graph.add("Where", condition, self, other)


# what functions of torch.nn.functional are called in ONNX
OPERATORS = {
    "relu": "Relu",
    "prelu": "PRelu",
    "gelu": "Gelu",
    "mish": "Mish",
    "hardswish": "HardSwish",
    "elu": "Elu",
    "selu": "Selu",
    "softplus": "Softplus",
}


class Functional:
    """The functions of torch.nn.functional that activations use, for a GraphTensor."""

    def __getattr__(self, name: str) -> Callable[..., GraphTensor]:
        def function(
            x: GraphTensor, *others: GraphTensor, **attributes: Any
        ) -> GraphTensor:
            return x.graph.add(OPERATORS[name], x, *others, **attributes)

        return function

    def relu6(self, x: GraphTensor) -> GraphTensor:
        """min(max(0, x), 6)."""
        return x.clamp(0.0, 6.0)

    def leaky_relu(self, x: GraphTensor, slope: float) -> GraphTensor:
        """x if x > 0 else slope * x."""
        return x.graph.add("LeakyRelu", x, alpha=slope)

    def silu(self, x: GraphTensor) -> GraphTensor:
        """x * sigmoid(x)."""
        return x * x.sigmoid()


def onnx_model(
    module: FeedForward, weights: Weights = Weights.NONE, group: int = 32
) -> ModelProto:
    """The model of a module, with its matrices in the format `weights`; `group` is the
    number of columns in a group, for a format with groups.
    """
    graph, spec = Graph(), module.spec
    x = GraphTensor(graph, INPUT)

    def linear(name: str, x: GraphTensor) -> GraphTensor:
        layer = getattr(module, name)
        y = _product(graph, x, layer.weight.detach().float(), weights, group)
        if layer.bias is None:
            return y
        return y + graph.constant(layer.bias.detach().float())

    def activated(x: GraphTensor, prefix: str = "") -> GraphTensor:
        act = Applied(spec.activations[prefix], prefix)
        learned = [
            graph.constant(getattr(module, name).detach().float())
            for name in act.learned
        ]
        result: GraphTensor = act.of(Functional(), x, learned)
        return result

    if spec.gate is Gate.INNER:
        hidden, up = activated(linear("gate", x)), linear("up", x)
        hidden = hidden * (up if spec.up is None else activated(up, UP))
    else:
        hidden = activated(linear("up", x))
    if module.norm is not None:
        factor = graph.constant(module.norm.weight.detach().float())
        if spec.subnorm is Norm.LAYER:
            bias = graph.constant(module.norm.bias.detach().float())
            hidden = graph.add(
                "LayerNormalization", hidden, factor, bias, epsilon=EPSILON
            )
        else:
            squares = graph.add(
                "ReduceMean", hidden * hidden, graph.constant(torch.tensor([-1]))
            )
            hidden = hidden / (squares + EPSILON).sqrt() * factor
    y = linear("down", hidden)
    if spec.gate is Gate.OUTPUT:
        y = y * linear("gate", x)
    return graph.model(y, spec.d_model)


def prepare_runtime(
    load: Callable[[], Callable[[Any], Any]], subject: Subject, work: Workload
) -> Opened:
    """Have a runtime run a subject's module. `load` loads the module into the runtime,
    and returns the function that is called in its place: it takes and returns a float32
    array (tokens, d_model).
    """
    start = perf_counter()
    call = load()
    seconds = perf_counter() - start

    def run(x: Tensor) -> Tensor:
        result = call(x.reshape(-1, x.shape[-1]).float().numpy())
        return torch.from_numpy(result).to(x.dtype).view_as(x)

    subject.run = run
    return Opened(
        calls=1, values={PACK: seconds, HELD: bytes_held(subject.module, work)}
    )


def _product(
    graph: Graph, x: GraphTensor, weight: Tensor, weights: Weights, group: int
) -> GraphTensor:
    """Add the product of x (tokens, in) with a weight (out, in) in the format
    `weights`.
    """
    match weights:
        case Weights.NONE:
            return graph.add("MatMul", x, graph.constant(weight.T))
        case Weights.INT8_DYNAMIC:
            return _dynamic_product(graph, x, weight)
        case Weights.INT8:
            return _product_in_groups(graph, x, weight, group, bits=8)
        case _:
            return _product_in_groups(graph, x, weight, group, bits=4)


def _dynamic_product(graph: Graph, x: GraphTensor, weight: Tensor) -> GraphTensor:
    """Add a product of 8-bit numbers: the input has one scale and zero point, which are
    found at each call, the weight a scale for each row.
    """
    scale = _nonzero(weight.abs().amax(1) / 127)
    quantised = (weight / scale[:, None]).round().to(torch.int8)
    x_quantised, x_scale, x_zero = graph.add_several(
        "DynamicQuantizeLinear", x, outputs=3
    )
    sums = graph.add("MatMulInteger", x_quantised, graph.constant(quantised.T), x_zero)
    return graph.add("Cast", sums, to=TensorProto.FLOAT) * (
        x_scale * graph.constant(scale)
    )


# the type in which MatMulNBits multiplies: 4 is int8, which ONNX Runtime's own tools
# set for a CPU
ACCURACY_LEVEL = 4


def _product_in_groups(
    graph: Graph, x: GraphTensor, weight: Tensor, group: int, bits: int
) -> GraphTensor:
    """Add a product with a weight of so many bits, which is symmetric and has a scale
    for each group of columns: ONNX Runtime's MatMulNBits.

    As in ONNX Runtime's own quantiser, the value of largest magnitude in a group is
    brought to the end of the range.
    """
    rows, columns = weight.shape
    groups = weight.reshape(rows, columns // group, group)
    largest = groups.gather(2, groups.abs().argmax(2, keepdim=True))
    zero = 2 ** (bits - 1)
    scale = _nonzero(largest / -zero)
    quantised = ((groups / scale).round() + zero).clamp(0, 2 * zero - 1).to(torch.uint8)
    if bits == 4:  # two in a byte, the lower half first
        quantised = quantised[..., 0::2] | (quantised[..., 1::2] << 4)
    return graph.add(
        "MatMulNBits",
        x,
        graph.constant(quantised),
        graph.constant(scale[..., 0]),
        domain=MICROSOFT,
        K=columns,
        N=rows,
        bits=bits,
        block_size=group,
        accuracy_level=ACCURACY_LEVEL,
    )


def _nonzero(scale: Tensor) -> Tensor:
    """Scales to divide by: 1 in place of 0, which is the scale of zeros alone."""
    return torch.where(scale == 0, 1.0, scale)

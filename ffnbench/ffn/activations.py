"""The activations: one row each, no behaviour.

A new activation is one row here; the grammar, the cost model, the modules, `list` and
the tests pick it up, and `python benchmarks/activation_facts.py` writes its facts. A
function of torch that no other row uses is also a line of OPERATORS in
worker/backends/onnx_graph.py, and a parameter of a new name one of spec.py: PARAMETERS,
with its two rows in plan/keys.py.
`apply(F, x, ...)` receives torch.nn.functional, so that this table is readable without
torch.

FLOPs per element are counted by one declared convention: each scalar +, -, *, /,
comparison or selection is 1, and each exp, log, tanh or erf is 1. A sigmoid, 1 / (1 +
exp(-x)), is therefore 4. Backward counts the derivative as written in `derivative`
(recomputed from the saved tensor) times the incoming gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import expm1, log
from typing import Any

from ffnbench.common.names import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One kernel of an activation: reads `inputs`, allocates `output`, keeps `saves`
    for backward.

    The activation's argument is called "x", its result "y". The backward kernel holds
    the gradient that it returns and, at once, `temps` buffers as large as that and
    `masks` buffers of one byte an element; that of a step that `adds` passes on the
    gradient of its output. A constant factor is a tensor of `scalar_bytes` to autograd,
    which keeps it until the backward.
    """

    output: str
    inputs: tuple[str, ...]
    saves: tuple[str, ...] = ()
    temps: int = 0
    masks: int = 0
    adds: bool = False
    scalar_bytes: int = 0


SAVES_INPUT = (Step(output="y", inputs=("x",), saves=("x",)),)
SAVES_OUTPUT = (Step(output="y", inputs=("x",), saves=("y",)),)
SIGMOID_PRODUCT = (  # x * sigmoid(c * x), composed of three kernels
    Step(output="scaled", inputs=("x",), scalar_bytes=8),
    Step(output="squashed", inputs=("scaled",), saves=("squashed",)),
    Step(output="y", inputs=("x", "squashed"), saves=("x", "squashed")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What a function is called in torch, in Hugging Face's ACT2FN, in timm and in
    TransformerEngine.
    """

    torch: str = ""
    hf: str = ""
    timm: str = ""
    te: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation:
    """A scalar function f and what the cost model has to know of it.

    `parameters` are the constants of its formula, with the values that they have where
    none is given. `apply` is given their values, and then those of `learned`, one
    tensor each; without these it is the function at its init. `steps` is None where the
    kernels are not known: memory can then be measured, but not predicted.
    """

    name: str
    formula: str
    derivative: str
    apply: Callable[..., Any]
    flops: int | None
    flops_backward: int | None
    steps: tuple[Step, ...] | None
    names: Names = Names()
    source: str = ""
    aliases: tuple[str, ...] = ()
    parameters: tuple[tuple[str, float], ...] = ()
    # trained scalars of every FFN, with the values that they begin with
    learned: tuple[tuple[str, float], ...] = ()
    note: str = ""  # what to tell where the name is ambiguous in the wild
    # by how much torch's function is not the formula's, where that is more than
    # rounding
    torch_differs: str = ""


def _xielu(F: Any, x: Any, positive: Any = None, negative: Any = None) -> Any:
    """xIELU of x; `positive` and `negative` are its trained scalars, alpha_p and
    alpha_n. Both branches are computed everywhere, as eager code does; the clamp keeps
    the unused exp from overflowing.
    """
    a = 0.8 if positive is None else F.softplus(positive)
    b = 0.8 if negative is None else 0.5 + F.softplus(negative)
    above = a * x * x + 0.5 * x
    below = b * (x.clamp(max=0).expm1() - x) + 0.5 * x
    return above.where(x > 0, below)


def _smooth_relu2(F: Any, x: Any, smooth: float) -> Any:
    # rebinding lets go of what is no longer used
    y = x.abs() + (x.square() + smooth * smooth).sqrt()
    y = x / y
    y = smooth * smooth / 2 * y
    return y + F.relu(x).square()


def _prelu(F: Any, x: Any, slope: Any = None) -> Any:
    return F.leaky_relu(x, 0.25) if slope is None else F.prelu(x, slope)


# fmt: off
_ROWS = (
    Activation(
        name="identity", formula="x", derivative="1", flops=0, flops_backward=0, steps=(),
        apply=lambda F, x: x, aliases=("linear", "none"),
        names=Names(torch="nn.Identity", hf="linear", timm="identity"),
        source='Shazeer 2020 ("bilinear" when gated)',
    ),
    Activation(
        name="relu", formula="max(0, x)", derivative="[x > 0]", flops=1, flops_backward=2, steps=SAVES_OUTPUT,
        apply=lambda F, x: F.relu(x),
        names=Names(torch="F.relu", hf="relu", timm="relu", te="relu"),
        source="Nair & Hinton 2010",
    ),
    Activation(
        name="leaky_relu", formula="x if x > 0 else slope x", derivative="1 if x > 0 else slope",
        flops=2, flops_backward=2, steps=SAVES_INPUT, parameters=(("slope", 0.01),),
        apply=lambda F, x, slope: F.leaky_relu(x, slope), note="leaky_relu has slope 0.01 below zero",
        names=Names(torch="F.leaky_relu", hf="leaky_relu", timm="leaky_relu"),
        source="Maas et al. 2013",
    ),
    Activation(
        name="prelu", formula="x if x > 0 else a x", derivative="1 if x > 0 else a", flops=2, flops_backward=5,
        steps=(Step(output="y", inputs=("x",), saves=("x",), temps=1),),
        apply=lambda F, x, *learned: _prelu(F, x, *learned), learned=(("slope", 0.25),),
        note="prelu has one trained scalar, the slope a below zero, 0.25 at init",
        names=Names(torch="nn.PReLU", hf="prelu", timm="prelu"),
        source="He et al. 2015 (arXiv 1502.01852)",
    ),
    Activation(
        name="relu6", formula="min(max(0, x), 6)", derivative="[0 < x < 6]", flops=2, flops_backward=3,
        steps=SAVES_INPUT, apply=lambda F, x: F.relu6(x),
        names=Names(torch="F.relu6", hf="relu6", timm="relu6"),
        source="Krizhevsky 2010",
    ),
    Activation(
        name="relu2", formula="max(0, x)^2", derivative="2 max(0, x)", flops=2, flops_backward=3,
        steps=(
            Step(output="r", inputs=("x",), saves=("r",)),
            Step(output="y", inputs=("r",), saves=("r",), temps=2),
        ),
        apply=lambda F, x: F.relu(x).square(),
        aliases=("squared_relu", "relu_squared", "sqrelu", "srelu"),
        names=Names(torch="relu(x).square()", hf="relu2", te="srelu"),
        source="So et al. 2021 (Primer)",
    ),
    Activation(
        name="leaky_relu2", formula="x^2 if x > 0 else (slope x)^2", derivative="2 x if x > 0 else 2 slope^2 x",
        flops=3, flops_backward=4,
        steps=(
            Step(output="r", inputs=("x",), saves=("x",)),
            Step(output="y", inputs=("r",), saves=("r",), temps=2),
        ),
        parameters=(("slope", 0.5),), apply=lambda F, x, slope: F.leaky_relu(x, slope).square(),
        note="leaky_relu2 is the square of a leaky ReLU of slope 0.5",
        source="openai/parameter-golf (2026)",
    ),
    Activation(
        name="smooth_relu2", formula="max(0, x)^2 + smooth^2 x / (2 (|x| + sqrt(x^2 + smooth^2)))",
        derivative="2 max(0, x) + q^2 / (2 r), r = sqrt(x^2 + smooth^2), q = smooth^2 / (|x| + r)",
        flops=10, flops_backward=13,
        steps=(
            Step(output="size", inputs=("x",), saves=("x",), temps=1),
            Step(output="squared", inputs=("x",), saves=("x",), temps=2),
            Step(output="shifted", inputs=("squared",), adds=True),
            Step(output="root", inputs=("shifted",), saves=("root",), temps=1),
            Step(output="sum", inputs=("size", "root"), adds=True),
            Step(output="share", inputs=("x", "sum"), saves=("x", "sum"), temps=2),
            Step(output="scaled", inputs=("share",), scalar_bytes=8),
            Step(output="r", inputs=("x",), saves=("r",)),
            Step(output="above", inputs=("r",), saves=("r",), temps=2),
            Step(output="y", inputs=("scaled", "above"), adds=True),
        ),
        parameters=(("smooth", 0.2),), apply=lambda F, x, smooth: _smooth_relu2(F, x, smooth),
        note="smooth_relu2 is x (x + sqrt(x^2 + smooth^2)) / 2, written so that nothing cancels; it tends to relu2 as smooth tends to 0",
        source="karpathy/nanochat#828 (2026)",
    ),
    Activation(
        name="sigmoid", formula="1 / (1 + exp(-x))", derivative="y (1 - y)", flops=4, flops_backward=3,
        steps=SAVES_OUTPUT, apply=lambda F, x: x.sigmoid(), aliases=("logistic",),
        names=Names(torch="torch.sigmoid", hf="sigmoid", timm="sigmoid", te="glu (gated)"),
        source="Dauphin et al. 2016 (GLU)",
    ),
    Activation(
        name="tanh", formula="tanh(x)", derivative="1 - y^2", flops=1, flops_backward=3,
        steps=SAVES_OUTPUT, apply=lambda F, x: x.tanh(),
        names=Names(torch="torch.tanh", hf="tanh", timm="tanh"),
        source="LeCun et al. 1998",
    ),
    Activation(
        name="gelu", formula="x (1 + erf(x / sqrt 2)) / 2",
        derivative="(1 + erf(x / sqrt 2)) / 2 + x exp(-x^2 / 2) / sqrt(2 pi)", flops=5, flops_backward=11,
        steps=SAVES_INPUT, apply=lambda F, x: F.gelu(x),
        aliases=("gelu_erf", "gelu_python", "gelu_exact", "gelu_none"),
        note="gelu is the exact erf form (as in PyTorch, Hugging Face 'gelu', timm); "
        "JAX, Megatron, TransformerEngine and ggml mean gelu_tanh by that name",
        names=Names(torch="F.gelu", hf="gelu, gelu_python", timm="gelu"),
        source="Hendrycks & Gimpel 2016",
    ),
    Activation(
        name="gelu_10", formula="min(max(-10, gelu(x)), 10)", derivative="gelu'(x) [|gelu(x)| <= 10]",
        flops=7, flops_backward=13,
        steps=(
            Step(output="g", inputs=("x",), saves=("x",)),
            Step(output="y", inputs=("g",), saves=("g",), masks=2),
        ),
        apply=lambda F, x: F.gelu(x).clamp(-10, 10),
        names=Names(hf="gelu_10"),
        source="Wu et al. 2020 (arXiv 2004.09602), for int8",
    ),
    Activation(
        name="gelu_tanh", formula="x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2",
        derivative="(1 + t) / 2 + x (1 - t^2) sqrt(2/pi) (1 + 0.134145 x^2) / 2, t = tanh(...)",
        flops=9, flops_backward=19, steps=SAVES_INPUT,
        apply=lambda F, x: F.gelu(x, approximate="tanh"),
        aliases=("gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_accurate", "gelu_python_tanh", "gelu_approx"),
        names=Names(
            torch="F.gelu(approximate='tanh')", timm="gelu_tanh", te="gelu",
            hf="gelu_pytorch_tanh, gelu_new, gelu_fast, gelu_accurate, gelu_python_tanh",
        ),
        source="Hendrycks & Gimpel 2016",
    ),
    Activation(
        name="quick_gelu", formula="x sigmoid(1.702 x)", derivative="s + 1.702 x s (1 - s), s = sigmoid(1.702 x)",
        flops=6, flops_backward=11, steps=SIGMOID_PRODUCT,
        apply=lambda F, x: x * (1.702 * x).sigmoid(), aliases=("qgelu",),
        names=Names(hf="quick_gelu", timm="quick_gelu", te="qgelu"),
        source="Hendrycks & Gimpel 2016",
    ),
    Activation(
        name="silu", formula="x sigmoid(x)", derivative="s (1 + x (1 - s)), s = sigmoid(x)",
        flops=5, flops_backward=9, steps=SAVES_INPUT, apply=lambda F, x: F.silu(x),
        names=Names(torch="F.silu", hf="silu, swish", timm="silu, swish", te="silu"),
        source="Elfwing et al. 2017",
    ),
    Activation(
        name="swish", formula="x sigmoid(beta x)", derivative="s + beta x s (1 - s), s = sigmoid(beta x)",
        flops=6, flops_backward=11, steps=SIGMOID_PRODUCT, parameters=(("beta", 1.0),),
        apply=lambda F, x, beta: x * (beta * x).sigmoid(),
        note="swish without @beta= is beta 1, which is silu (as in Hugging Face and timm), and runs silu's kernel",
        source="Ramachandran et al. 2017",
    ),
    Activation(
        name="mish", formula="x tanh(log(1 + exp(x)))",
        derivative="t + x s (1 - t^2), t = tanh(log(1 + exp(x))), s = sigmoid(x)",
        flops=5, flops_backward=14, steps=SAVES_INPUT, apply=lambda F, x: F.mish(x),
        names=Names(torch="F.mish", hf="mish", timm="mish"),
        source="Misra 2019",
    ),
    Activation(
        name="hardswish", formula="x min(max(x + 3, 0), 6) / 6",
        derivative="0 if x < -3, 1 if x > 3, else x / 3 + 1/2",
        flops=5, flops_backward=5, steps=SAVES_INPUT, apply=lambda F, x: F.hardswish(x),
        aliases=("hard_swish",),
        names=Names(torch="F.hardswish", hf="hardswish", timm="hard_swish"),
        source="Howard et al. 2019",
    ),
    Activation(
        name="elu", formula="x if x > 0 else exp(x) - 1", derivative="1 if x > 0 else exp(x)",
        flops=3, flops_backward=3, steps=SAVES_INPUT, apply=lambda F, x: F.elu(x),
        names=Names(torch="F.elu", timm="elu"),
        source="Clevert et al. 2015",
    ),
    Activation(
        name="selu", formula="1.0507 (x if x > 0 else 1.6733 (exp(x) - 1))",
        derivative="1.0507 (1 if x > 0 else 1.6733 exp(x))",
        flops=5, flops_backward=5, steps=SAVES_INPUT, apply=lambda F, x: F.selu(x),
        names=Names(torch="F.selu", timm="selu"),
        source="Klambauer et al. 2017",
    ),
    Activation(
        name="softplus", formula="log(1 + exp(x))", derivative="sigmoid(x)", flops=3, flops_backward=5,
        steps=SAVES_INPUT, apply=lambda F, x: F.softplus(x),
        torch_differs="torch's softplus is x itself above 20, where it jumps by 2.1e-9",
        names=Names(torch="F.softplus"),
        source="Dugas et al. 2001",
    ),
    Activation(
        name="clamp", formula="min(max(-limit, x), limit)", derivative="[|x| <= limit]", flops=2, flops_backward=3,
        steps=(Step(output="y", inputs=("x",), saves=("x",), masks=2),),
        parameters=(("limit", 1.0),), apply=lambda F, x, limit: x.clamp(-limit, limit), aliases=("hardtanh",),
        note="clamp has limit 1", names=Names(torch="F.hardtanh", timm="hardtanh"),
        source="Collobert 2004; on up: gpt-oss, DeepSeek-V4",
    ),
    Activation(
        name="softcap", formula="limit tanh(x / limit)", derivative="1 - tanh(x / limit)^2", flops=3, flops_backward=5,
        steps=(
            Step(output="scaled", inputs=("x",), scalar_bytes=8),
            Step(output="squashed", inputs=("scaled",), saves=("squashed",)),
            Step(output="y", inputs=("squashed",), scalar_bytes=8),
        ),
        parameters=(("limit", 25.0),), apply=lambda F, x, limit: limit * (x / limit).tanh(),
        note="softcap has limit 25", source="Gemma 2 (arXiv 2408.00118) on logits; on up: Kimi K3",
    ),
    Activation(
        name="situ", formula="limit tanh(x / limit) sigmoid(x)",
        derivative="(1 - t^2) s + limit t s (1 - s), t = tanh(x / limit), s = sigmoid(x)", flops=8, flops_backward=15,
        steps=(
            Step(output="scaled", inputs=("x",), scalar_bytes=8),
            Step(output="squashed", inputs=("scaled",), saves=("squashed",)),
            Step(output="capped", inputs=("squashed",), scalar_bytes=8),
            Step(output="share", inputs=("x",), saves=("share",)),
            Step(output="y", inputs=("capped", "share"), saves=("capped", "share")),
        ),
        parameters=(("limit", 4.0),), apply=lambda F, x, limit: limit * (x / limit).tanh() * x.sigmoid(),
        note="situ has limit 4", source="Kimi K3 report 2026, eq. 12, beta_1",
    ),
    Activation(
        name="xielu", formula="a x^2 + x/2 if x > 0 else b (exp(x) - 1 - x) + x/2",
        derivative="2 a x + 1/2 if x > 0 else b (exp(x) - 1) + 1/2", flops=10, flops_backward=14, steps=None,
        apply=lambda F, x, *learned: _xielu(F, x, *learned),
        learned=(("alpha_p", log(expm1(0.8))), ("alpha_n", log(expm1(0.3)))),
        note="xielu has two trained scalars, a = softplus(alpha_p) and b = 1/2 + softplus(alpha_n), both 0.8 at init",
        names=Names(hf="xielu"),
        source="Huang & Schlag 2024 (arXiv 2411.13010), Apertus",
    ),
)
# fmt: on

ACTIVATIONS: Registry[Activation] = Registry(
    "activation", "`ffnbench activations` shows all"
)
for _row in _ROWS:
    ACTIVATIONS.add(_row.name, _row, _row.aliases)
# transformers' name of an activation -> ours
HF_ACTIVATIONS = {
    name: row.name for row in ACTIVATIONS for name in row.names.hf.split(", ") if name
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnActivation:
    """A function of the user's, by `file.py:function` or `package.module:function`, and
    what it declares.

    FLOPs are per element, by the convention above; None is "not declared".
    """

    target: str
    formula: str = ""
    flops: int | None = None
    flops_backward: int | None = None


@cache
def row_of_own(own: OwnActivation) -> Activation:
    """The row of a function of the user's, like those above. The function itself is
    loaded at its first use, in a worker.
    """

    def apply(functional: Any, x: Any) -> Any:
        return _loaded(own.target)(x)

    return Activation(
        name=own.target,
        formula=own.formula,
        derivative="by autograd",
        apply=apply,
        flops=own.flops,
        flops_backward=own.flops_backward,
        steps=None,
    )


@cache
def _loaded(target: str) -> Callable[[Any], Any]:
    from ffnbench.common.targets import resolve

    function: Callable[[Any], Any] = resolve(target)
    return function

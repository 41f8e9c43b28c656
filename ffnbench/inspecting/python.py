"""The Python function `inspect`."""

from __future__ import annotations

from ffnbench.inspecting.by_length import InspectRequest
from ffnbench.inspecting.layers import model_answer
from ffnbench.python.arguments import DType, Int, StrPath, request_from_arguments
from ffnbench.python.public import called_here, public
from ffnbench.report.shown_report import Answer


@public
def inspect(
    model: StrPath,
    *,
    whole_model: bool = False,
    length: Int | None = None,
    dtype: DType = "float32",
) -> Answer:
    """A model's FFNs in words and numbers, a row a kind of layer; `whole_model` counts
    all parameters, by part.

    With a `length` it counts FLOPs and bytes of keys and values too.

    >>> layers = ffnbench.inspect("mixtral-8x7b").frame()
    >>> layers[["kind", "count", "params", "params_active"]]
    """
    request = request_from_arguments(InspectRequest, locals())
    with called_here():
        return Answer(shown=model_answer(request), name="inspect")

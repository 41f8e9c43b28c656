"""The Python function `inspect`."""

from __future__ import annotations

from ffnbench.inspecting.table import InspectRequest, model_view
from ffnbench.python.arguments import StrPath, request_from_arguments
from ffnbench.python.public import called_here, public
from ffnbench.report.shown_report import Answer


@public
def inspect(model: StrPath) -> Answer:
    """All parameters of a model by part, and its FFNs by kind of layer.

    >>> rows = ffnbench.inspect("mixtral-8x7b").frame()
    >>> rows[["part", "layers", "params", "params_active"]]
    """
    request = request_from_arguments(InspectRequest, locals())
    with called_here():
        return Answer(shown=model_view(request), name="inspect")

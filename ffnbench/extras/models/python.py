"""The Python function `inspect`."""

from __future__ import annotations

from ffnbench.extras.models.inspecting import show_model
from ffnbench.extras.models.request import InspectRequest
from ffnbench.python.calls import answer_of
from ffnbench.python.following import Following
from ffnbench.python.public import asks
from ffnbench.report.answers import Answer


@asks(InspectRequest)
def inspect(request: InspectRequest, sink: Following) -> Answer:
    """A model's FFNs in words and numbers, a row a kind of layer; `whole_model` counts all parameters, by part.

    With a `length` it counts FLOPs and bytes of keys and values too.

    >>> ffnbench.inspect("mixtral-8x7b").frame()[["kind", "count", "params", "params_active"]]
    """
    show_model(request, sink)
    return answer_of(sink, "inspect")

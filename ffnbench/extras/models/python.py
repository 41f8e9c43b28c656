"""The Python function `inspect`."""

from __future__ import annotations

from ffnbench.extras.models.inspecting import model_answer
from ffnbench.extras.models.request import InspectRequest
from ffnbench.python.following import CalledHere
from ffnbench.python.public import asks
from ffnbench.report.answers import Answer


@asks(InspectRequest)
def inspect(request: InspectRequest, here: CalledHere) -> Answer:
    """A model's FFNs in words and numbers, a row a kind of layer; `whole_model` counts all parameters, by part.

    With a `length` it counts FLOPs and bytes of keys and values too.

    >>> ffnbench.inspect("mixtral-8x7b").frame()[["kind", "count", "params", "params_active"]]
    """
    return Answer(shown=model_answer(request, here.world), name="inspect")

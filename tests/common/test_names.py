from __future__ import annotations

import pytest

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.names import Registry, did_you_mean


def test_spelling_is_forgiven_and_aliases_lead_to_the_entry() -> None:
    registry: Registry[int] = Registry("number", "see the list")
    registry.add("gelu_tanh", 1, ["gelu_new"])
    assert registry.get("GELU-Tanh") == registry.get(" gelu_new ") == 1
    assert registry.canonical("GELU_NEW") == "gelu_tanh"
    assert registry.spellings() == ["gelu_tanh", "gelu_new"]


@pytest.mark.parametrize("name", ["one", "eins"])
def test_a_name_that_is_taken_is_refused(name: str) -> None:
    registry: Registry[int] = Registry("number", "see the list")
    registry.add("one", 1, ["eins"])
    with pytest.raises(ValueError, match="twice"):
        registry.add(name, 2)


def test_an_unknown_name_gets_the_near_ones_and_the_list() -> None:
    registry: Registry[int] = Registry("number", "see the list")
    registry.add("swiglu", 1)
    with pytest.raises(FfnbenchError, match="unknown number 'swigul'") as caught:
        registry.get("swigul")
    assert caught.value.hint == "did you mean 'swiglu'? see the list"
    assert did_you_mean("zzz", ["swiglu"]) == ""

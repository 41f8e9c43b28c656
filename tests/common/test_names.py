from __future__ import annotations

from ffnbench.common.names import Registry


def test_spelling_is_forgiven_and_aliases_lead_to_the_entry() -> None:
    registry: Registry[int] = Registry("number", "see the list")
    registry.add("gelu_tanh", 1, ["gelu_new"])
    assert registry.get("GELU-Tanh") == registry.get(" gelu_new ") == 1
    assert registry.canonical("GELU_NEW") == "gelu_tanh"
    assert registry.spellings() == ["gelu_tanh", "gelu_new"]

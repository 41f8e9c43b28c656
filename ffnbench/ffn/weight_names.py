"""What the projections of an FFN are called in published code: one table for transformers' modules and the user's own.

Several names stand for one role in one codebase and for another elsewhere (w2 is down in Llama's code, the second
factor in Qwen's): a name alone is a guess, unless `said` finds a word in it.
"""

from __future__ import annotations

import re

GATE = ("gate_proj", "gate", "w1", "wi_0")
UP = (
    "up_proj", "fc1", "c_fc", "dense_h_to_4h", "lin1", "wi", "wi_1", "w3", "intermediate_dense", "fc_in", "linear_fc1",
    "in_proj", "proj_in", "linear1", "dense1",
)  # fmt: skip
DOWN = (
    "down_proj", "fc2", "c_proj", "dense_4h_to_h", "lin2", "wo", "w2", "output_dense", "fc_out", "linear_fc2",
    "out_proj", "proj_out", "linear2", "dense2", "Wo",
)  # fmt: skip
PACKED = ("gate_up_proj", "Wi")
LIKELY = {"gate": GATE, "up": UP, "down": DOWN}
SAID = {"wi_0": ("gate",), "wi_1": ("up",), "fc1_g": ("gate",), "fc1_x": ("up",)}  # T5; timm
ROLE = re.compile(r"(?<![a-vx-z])(?:gate|up|down)(?![a-z])")
# what tells a weight from its bias: fc1.weight and fc1.bias, w_gate and b_gate, w1 and b1 have the rest in common
KIND = re.compile(r"(?<![a-z])(?:weights?|bias|kernel|[wb](?=gate|up|down)|[wb](?![a-z]))")
BIAS = re.compile(r"(?<![a-z])(?:bias|b(?![a-z])|b(?=gate|up|down))")


def said(path: str) -> tuple[str, ...]:
    """The roles that a parameter's name says in words, in their order: ("gate", "up") of gate_up_proj; () for none.

    The innermost part of the path that says something decides.
    """
    for part in reversed(path.split(".")):
        if part in SAID:
            return SAID[part]
        if found := tuple(
            dict.fromkeys(ROLE.findall(part.lower().replace("gateup", "gate_up").replace("upgate", "up_gate")))
        ):
            return found
    return ()


def stem(path: str) -> str:
    """What a weight's name has in common with its bias's."""
    return "".join(re.findall(r"[a-z0-9]+", KIND.sub("", path.lower())))


def is_bias(path: str) -> bool:
    """Whether the name of a parameter is a bias's."""
    return bool(BIAS.search(path.rpartition(".")[2].lower()))

"""What can be asked of models."""

from __future__ import annotations

from dataclasses import dataclass

from ffnbench.request import ARGUMENTS, MODEL, SEQ_LEN, WORKLOAD, Heads, Request, flag


# fmt: off
@dataclass(frozen=True, kw_only=True)
class InspectRequest(Heads, Request):
    """`ffnbench inspect`."""

    model: str = flag(
        "", "A config.json, its folder, a preset, or ORG/NAME in the hub's cache.", ARGUMENTS, place="CONFIG|PRESET")
    whole_model: bool = flag(False, "All parameters by part: embeddings, attention, FFN, norms, head.", MODEL)
    length: int | None = flag(
        None, "At so many tokens: FLOPs, keys and values by kind of layer, above all parameters by part.", WORKLOAD,
        "INT", also=("--seq-len", *SEQ_LEN))
    dtype: str = flag("float32", "Of keys and values.", WORKLOAD, "NAME")
# fmt: on

"""What can be asked of models."""

from __future__ import annotations

from dataclasses import dataclass

from ffnbench.request import ARGUMENTS, MODEL, Request, flag


# fmt: off
@dataclass(frozen=True, kw_only=True)
class InspectRequest(Request):
    """`ffnbench inspect`."""

    model: str = flag(
        "", "A config.json, its folder, a preset, or ORG/NAME in the hub's cache.", ARGUMENTS, place="CONFIG|PRESET")
    whole_model: bool = flag(False, "All parameters by part: embeddings, attention, FFN, norms, head.", MODEL)
# fmt: on

"""How columns of the rows are headed and written, in tables and in pictures."""

from __future__ import annotations

from dataclasses import dataclass

from ffnbench.metrics import HELD, PEAK, SAVED
from ffnbench.units import IEC, SI, Units

PER_TOKEN = "/tok"


@dataclass(frozen=True, slots=True)
class Heading:
    """How a column of the rows is headed and written: in these units, or as it is."""

    title: str
    units: Units | None = None
    per: str = ""


HEADINGS = {
    "flops_timed": Heading("FLOPs", SI, PER_TOKEN),
    "flops_forward": Heading("FLOPs fwd", SI, PER_TOKEN),
    "flops_backward": Heading("FLOPs bwd", SI, PER_TOKEN),
    "flops_elementwise": Heading("elem.-wise", SI, PER_TOKEN),
    "flops_elementwise_backward": Heading("elem. bwd", SI, PER_TOKEN),
    "tokens_per_s": Heading("tokens", SI, "/s"),
    "weight_bytes": Heading("weights", IEC),
    HELD: Heading("weights", IEC),
    "weight_bytes_touched": Heading("touched", IEC),
    PEAK: Heading("peak", IEC),
    SAVED: Heading("saved", IEC),
    "total_bytes": Heading("total", IEC),
    "params_formula": Heading("closed form"),
    "sizing": Heading("d_ff from"),
}

"""What can be asked of what variants learn."""

from __future__ import annotations

from dataclasses import dataclass

from ffnbench.request import BATCH, D_MODEL, EFFORT, SEQ_LEN, WIDTHS, WORKLOAD, AddedRequest, flag


# fmt: off
@dataclass(frozen=True, kw_only=True)
class TrainRequest(AddedRequest):
    """`ffnbench train`."""

    COMMAND = "train"

    d_model: int | None = flag(
        None, "Width of the model. [default: that of the model that is named, else 128]", WIDTHS, "INT",
        also=(*D_MODEL, "--width"))
    layers: int = flag(3, "Blocks of the model.", WIDTHS, "INT", also=("--n-layers", "--depth"))
    context: int = flag(128, "Bytes of a sequence.", WORKLOAD, "INT", also=SEQ_LEN)
    batch: int = flag(24, "Sequences of a step.", WORKLOAD, "INT", also=BATCH)
    dtype: str = flag("float32", "float32, or bfloat16 for matrix products; weights stay float32.", WORKLOAD, "NAME")
    steps: int = flag(800, "Steps of AdamW.", EFFORT, "INT")
    seeds: int = flag(3, "Runs of each variant; intervals are over them.", EFFORT, "INT")
    lr: str = flag("3e-3", "Learning rate; of several each variant is judged at its best: 1e-3,3e-3,6e-3.", EFFORT,
                   "LIST", also=("--lr-sweep", "--learning-rate"))
    text: str | None = flag(
        None, "What is learnt: a file or a folder. [default: the source of Python's standard library]", WORKLOAD,
        "PATH", also=("--data",))
    budget: float | None = flag(None, "Train for so long at most, 90s or 30m; --resume goes on.", EFFORT, "TIME")
# fmt: on

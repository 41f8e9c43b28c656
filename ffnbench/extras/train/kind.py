"""How reports of what is learnt read."""

from __future__ import annotations

from ffnbench.plan import AddedKind

TRAIN = "train"
HERE = "ffnbench.extras.train"
KINDS = {
    TRAIN: AddedKind(
        tables=f"{HERE}.table:training_table",
        rows=f"{HERE}.table:training_records",
        picture=f"{HERE}.picture:training_figure",
        says="what is learnt",
    )
}

"""The dtypes: one row each. A new one is one row here."""

from __future__ import annotations

from dataclasses import dataclass

from ffnbench.names import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Dtype:
    """A dtype by torch's name.

    `tolerance` is the relative error (Frobenius) that rounding alone explains, with room: sqrt(d_ff) roundings.
    `grouped_multiple` is what widths must be multiples of in grouped matrix products, whose rows fill 16 bytes; None
    where there are no such products.
    """

    name: str
    bytes: int
    tolerance: float
    aliases: tuple[str, ...]
    grouped_multiple: int | None = None


_ROWS = (
    Dtype(name="float64", bytes=8, tolerance=1e-10, aliases=("double", "fp64")),
    Dtype(name="float32", bytes=4, tolerance=1e-4, aliases=("float", "fp32"), grouped_multiple=4),
    Dtype(name="bfloat16", bytes=2, tolerance=5e-2, aliases=("bf16",), grouped_multiple=8),
    Dtype(name="float16", bytes=2, tolerance=1e-2, aliases=("half", "fp16"), grouped_multiple=8),
)
DTYPES: Registry[Dtype] = Registry("dtype", "`ffnbench list dtypes` shows all")
for _row in _ROWS:
    DTYPES.add(_row.name, _row, _row.aliases)


def item_bytes(dtype: str) -> int:
    """Bytes of one element."""
    return DTYPES.get(dtype).bytes

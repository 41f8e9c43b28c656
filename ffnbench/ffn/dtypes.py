"""The dtypes: one row each. A new one is one row here."""

from __future__ import annotations

from dataclasses import dataclass

from ffnbench.common.names import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Dtype:
    """A dtype by torch's name.

    `tolerance` is the relative error (Frobenius) that rounding alone explains, with room: sqrt(d_ff) roundings.
    """

    name: str
    bytes: int
    tolerance: float
    aliases: tuple[str, ...]


_ROWS = (
    Dtype(name="float64", bytes=8, tolerance=1e-10, aliases=("double", "fp64")),
    Dtype(name="float32", bytes=4, tolerance=1e-4, aliases=("float", "fp32")),
    Dtype(name="bfloat16", bytes=2, tolerance=5e-2, aliases=("bf16",)),
    Dtype(name="float16", bytes=2, tolerance=1e-2, aliases=("half", "fp16")),
)
DTYPES: Registry[Dtype] = Registry("dtype", "`ffnbench list dtypes` shows all")
for _row in _ROWS:
    DTYPES.add(_row.name, _row, _row.aliases)


# Relative error of rounding to nearest (unit roundoff) of the factors of a float32 product, by what torch calls the
# precision of such products. TF32 keeps 10 explicit bits of the significand and so rounds by 2^-11 at most (NVIDIA,
# "A100 Tensor Core GPU Architecture", 2020), bfloat16 keeps 7 (2^-8); sums stay float32
# (torch.set_float32_matmul_precision).
FACTOR_ROUNDOFF = {"high": 2.0**-11, "medium": 2.0**-8}
# An FFN rounds the factors of two products, one after the other, and a gated one those of three. On emulated TF32 and
# bfloat16 its worst row is off by 0.6 to 2.4 of these, and by 7 at most where hardware cuts bits off in place of
# rounding (tests/test_precision.py). A module that is 1 % off is still found at HIGH.
FACTOR_ROUNDINGS = 10


def tolerance(dtype: str, matmul_precision: str = "highest") -> float:
    """The relative error that rounding alone explains, with room. The precision of matrix products is that of float32's
    alone: those of other dtypes don't know it.
    """
    own = DTYPES.get(dtype).tolerance
    inside = FACTOR_ROUNDOFF.get(matmul_precision) if DTYPES.canonical(dtype) == "float32" else None
    return own if inside is None else max(own, FACTOR_ROUNDINGS * inside)


def item_bytes(dtype: str) -> int:
    """Bytes of one element."""
    return DTYPES.get(dtype).bytes

"""How the weights of matrices are held: as their dtype has them, or in fewer bits. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Weights(StrEnum):
    """NONE: in the dtype of the call. INT8, INT4: in so many bits, while the other factor stays as it is.
    INT8_DYNAMIC: in 8 bits, and the other factor is brought to 8 bits at each call.
    """

    NONE = "none"
    INT8_DYNAMIC = "int8-dynamic"
    INT8 = "int8"
    INT4 = "int4"


# The relative error (Frobenius) of an output beside float64 of the original weights that the precision explains. With
# weights drawn evenly, near the worst case, a SwiGLU of 768 x 2048 is off by 6.5e-3 to 1.7e-2 (int8), 3.3e-2
# (int8-dynamic) and 0.11 to 0.13 (int4).
TOLERANCE = {Weights.INT8: 2e-2, Weights.INT8_DYNAMIC: 5e-2, Weights.INT4: 0.2}


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat:
    """What a quantised matrix (rows, columns) is made of: its numbers, and the scales and zero points of each row or of
    each group of columns in a row.
    """

    bits: int
    bytes_per_row: int = 0
    bytes_per_group: int = 0

    @property
    def grouped(self) -> bool:
        """Whether the columns are cut into groups."""
        return self.bytes_per_group > 0

    def bytes_of(self, rows: int, columns: int, group: int) -> int:
        """The bytes of a matrix."""
        groups = rows * (columns // group) if self.grouped else 0
        return rows * columns * self.bits // 8 + rows * self.bytes_per_row + groups * self.bytes_per_group

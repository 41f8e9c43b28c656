"""How the weights of matrices are held: as their dtype has them, or in fewer bits. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ffnbench.choices import Backend, Weights

# The relative error (Frobenius) of an output beside float64 of the original weights that the precision explains. With
# weights drawn evenly, near the worst case, a SwiGLU of 768 x 2048 is off by 6.5e-3 to 1.7e-2 (int8), 3.3e-2
# (int8-dynamic) and 0.11 to 0.13 (int4).
TOLERANCE = {Weights.NONE: 0.0, Weights.INT8: 2e-2, Weights.INT8_DYNAMIC: 5e-2, Weights.INT4: 0.2}
GROUP = 32  # columns that share a scale, where nothing else is said


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat:
    """What a quantised matrix (rows, columns) is made of: its elements, and the scales and zero points of each row, or
    of each group of columns in a row. `number_bytes` is the size of one of these; None is that of the call's dtype.
    """

    bits: int
    numbers_per_row: int = 0
    numbers_per_group: int = 0
    number_bytes: int | None = None

    @property
    def grouped(self) -> bool:
        """Whether the columns are cut into groups."""
        return self.numbers_per_group > 0

    def bytes_of(self, rows: int, columns: int, *, group: int, item: int) -> int:
        """The bytes of a matrix; `item` is the size of an element of the call's dtype."""
        numbers = rows * self.numbers_per_row
        if self.grouped:
            numbers += rows * (columns // group) * self.numbers_per_group
        return rows * columns * self.bits // 8 + numbers * (self.number_bytes or item)


# torch's own operations: a scale for each row; scale, zero point and the sum of the row, all of 32 bits; a scale and
# the middle of the range for each group
OF_TORCH = {
    Weights.INT8: WeightFormat(bits=8, numbers_per_row=1),
    Weights.INT8_DYNAMIC: WeightFormat(bits=8, numbers_per_row=3, number_bytes=4),
    Weights.INT4: WeightFormat(bits=4, numbers_per_group=2),
}
# ONNX's operators, symmetric: a scale of float32
OF_ONNX = {
    Weights.INT8: WeightFormat(bits=8, numbers_per_group=1, number_bytes=4),
    Weights.INT8_DYNAMIC: WeightFormat(bits=8, numbers_per_row=1, number_bytes=4),
    Weights.INT4: WeightFormat(bits=4, numbers_per_group=1, number_bytes=4),
}
FORMATS = {Backend.EAGER: OF_TORCH, Backend.ORT: OF_ONNX, Backend.OPENVINO: OF_ONNX}  # by the backends that have any


def format_of(weights: Weights, backend: Backend) -> WeightFormat | None:
    """How a backend holds weights; None where they stay as they are, or where it has no such format."""
    return FORMATS.get(backend, {}).get(weights)

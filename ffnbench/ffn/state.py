"""The weights of a published FFN in a safetensors file: which of its tensors are gate,
up and down.

Reading needs the package safetensors. Names and shapes are read without the tensors,
and without torch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ffnbench.common.errors import FfnbenchError
from ffnbench.ffn.spec import FFNSpec

# What a matrix is called in published checkpoints, the most common name first. In a
# classic form w1 is up.
WEIGHT_NAMES = {
    "gate": ("gate_proj", "w1", "wi_0", "gate"),
    "up": (
        "up_proj",
        "w3",
        "wi_1",
        "up",
        "fc1",
        "c_fc",
        "wi",
        "lin1",
        "linear1",
        "dense_h_to_4h",
        "intermediate.dense",
    ),
    "down": (
        "down_proj",
        "w2",
        "wo",
        "down",
        "fc2",
        "c_proj",
        "lin2",
        "linear2",
        "dense_4h_to_h",
        "output.dense",
    ),
}
CLASSIC_UP = (*WEIGHT_NAMES["up"], "w1")
GATE_UP = "gate_up_proj"  # one tensor: the rows of gate, then those of up
Shape = tuple[int, ...]
MOST_NAMES = 6  # of tensors in a hint


class OtherSize(FfnbenchError):
    """A matrix of a file has another size than the network's."""


@dataclass(frozen=True, slots=True)
class StoredMatrix:
    """Where a matrix (rows, columns) lies: the name of its tensor, whether that is
    stored as (columns, rows), and which half of the tensor's rows it is, None for all.
    """

    tensor: str
    transposed: bool = False
    half: int | None = None


def stored_matrices(
    shapes: Mapping[str, Shape], spec: FFNSpec, prefix: str
) -> dict[str, StoredMatrix]:
    """Where gate, up and down lie among tensors of these names and shapes; raises
    FfnbenchError where one is not there, or has another shape.
    """
    matrices = {}
    for name, shape in spec.matrices.items():
        source = _stored_matrix(name, shapes, spec, prefix)
        stored = shapes[source.tensor]
        if source.half is not None:
            stored = (stored[0] // 2, *stored[1:])
        if stored == shape:
            matrices[name] = source
        elif stored == shape[::-1]:
            matrices[name] = replace(source, transposed=True)
        else:
            sizes = f"{' x '.join(map(str, stored))}, and {name} is {' x '.join(map(str, shape))}"
            raise OtherSize(f"{source.tensor} is {sizes}", _sizes_hint(name, stored))
    return matrices


def _stored_matrix(
    matrix: str, names: Collection[str], spec: FFNSpec, prefix: str
) -> StoredMatrix:
    """Where a matrix lies by the names of the tensors alone; raises FfnbenchError where
    none of them is it.
    """
    spellings = (
        CLASSIC_UP if matrix == "up" and not spec.gated else WEIGHT_NAMES[matrix]
    )
    for name in spellings:
        tensor = f"{prefix}{name}.weight"
        if tensor in names:
            return StoredMatrix(tensor)
    gate_up = f"{prefix}{GATE_UP}.weight"
    if gate_up in names and matrix in ("gate", "up"):
        return StoredMatrix(gate_up, half=0 if matrix == "gate" else 1)
    raise _missing_matrix(matrix, spellings, names, prefix)


def _missing_matrix(
    matrix: str, spellings: Sequence[str], names: Collection[str], prefix: str
) -> FfnbenchError:
    """The error for a matrix that no tensor behind the prefix is; its hint is a prefix
    that would do, or the names that there are.
    """
    below = [name for name in names if name.startswith(prefix)]
    message = f"no tensor is called {prefix}{spellings[0]}.weight, or otherwise {matrix} of an FFN"
    if prefix and not below:
        message = f"no tensor's name begins with {prefix!r}"
    prefixes = {
        name.removesuffix(ending)
        for name in names
        for ending in (f"{spelling}.weight" for spelling in WEIGHT_NAMES["down"])
        if name.endswith(ending)
    }
    # an ending counts only as a whole part of a name: xw2.weight is no w2.weight
    others = sorted(other for other in prefixes - {prefix} if other[-1:] in ("", "."))
    if f"{prefix}." in others:
        return FfnbenchError(message, f"with a dot at its end: --prefix {prefix}.")
    if others == [""]:
        return FfnbenchError(message, "leave --prefix out")
    if others:
        more = f"; there are {len(others) - 1} more" if others[1:] else ""
        return FfnbenchError(message, f"for example --prefix {others[0]}{more}")
    if not names:
        return FfnbenchError(
            "the file has no tensor of floating-point numbers",
            "--state takes the weights of a model in safetensors",
        )
    there = ", ".join(sorted(below or names)[:MOST_NAMES])
    return FfnbenchError(
        message, f"known names: {', '.join(spellings[:4])}; it has {there}"
    )


def _sizes_hint(matrix: str, stored: Shape) -> str:
    """The flags for the sizes that a stored matrix has."""
    if len(stored) != 2:
        return "a matrix has two dimensions"
    d_ff, d_model = stored if matrix != "down" else stored[::-1]
    return f"give --d-model {d_model} --d-ff {d_ff}"


def open_safetensors(path: str, framework: str) -> Any:
    """Open the file by safetensors for the framework, `pt` (torch) or `numpy`; raises
    FfnbenchError where it can't be read.
    """
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise FfnbenchError(
            "--state needs safetensors", "pip install 'ffnbench[state]'"
        ) from None
    try:
        return safe_open(path, framework=framework)
    except (OSError, SafetensorError) as problem:
        raise FfnbenchError(
            f"cannot read {path}: {problem}", "--state takes a file of safetensors"
        ) from problem


def shapes_in(path: str) -> dict[str, Shape]:
    """Name -> shape of all tensors of floating-point numbers. Tensors of integers are
    left out: they are quantised weights, which mean nothing without their scales.
    """
    with open_safetensors(path, "numpy") as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        return {
            name: tuple(part.get_shape())
            for name, part in slices.items()
            if "F" in part.get_dtype()  # F32, BF16, F8_E4M3, and not I8
        }


def tensors_of(path: str, spec: FFNSpec, prefix: str) -> dict[str, Any]:
    """gate, up and down of a file as tensors (rows, columns). Needs torch."""
    matrices = stored_matrices(shapes_in(path), spec, prefix)
    tensors = {}
    with open_safetensors(path, "pt") as file:
        for matrix, stored_matrix in matrices.items():
            tensor = file.get_tensor(stored_matrix.tensor)
            if stored_matrix.half is not None:
                tensor = tensor.chunk(2)[stored_matrix.half]
            tensors[matrix] = tensor.T if stored_matrix.transposed else tensor
    return tensors


def refuse_other_weights(path: str, prefix: str, networks: Mapping[str, Any]) -> None:
    """Raise FfnbenchError where a file of weights lacks a matrix of one of the
    networks, which are specs by label, or has it in another size.
    """
    shapes = shapes_in(path)
    for label, spec in networks.items():
        try:
            stored_matrices(shapes, spec, prefix)
        except OtherSize as problem:
            if len(networks) == 1:
                raise
            # one file can't serve several forms whose widths were matched
            message = f"{label!r}: {problem.message}"
            raise FfnbenchError(message, f"{problem.hint} --match none") from None

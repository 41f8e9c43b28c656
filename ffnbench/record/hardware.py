"""The least time that a call could take on a machine that need not be here, by the
published peaks of hardware.toml. Nothing is measured. Pure but for reading that file.

A call needs FLOPs for its matrix products, and moves bytes to and from memory: the
longer of the two times bounds it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from ffnbench.common import jsonable
from ffnbench.common.choices import MatmulPrecision, Mode, Weights
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.files import content_of
from ffnbench.common.names import Registry
from ffnbench.ffn.cost import Cost
from ffnbench.ffn.spec import FFNSpec, item_bytes
from ffnbench.plan.plan import Case, Workload, flops_of_call, quantised_bytes
from ffnbench.record.result import CaseCost, HardwareBound

PUBLISHED_FILE = Path(__file__).with_name("hardware.toml")
FP4, FP8, INT8 = "fp4", "fp8", "int8"
# whose peak holds for float32's products, where these may be less exact
LESS_EXACT_PATHS = {MatmulPrecision.HIGH: "tf32", MatmulPrecision.MEDIUM: "bfloat16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """A machine, or one device of it; the head of hardware.toml explains each field.
    What is not published is None.
    """

    name: str
    tflops_float32: float | None = None
    tflops_tf32: float | None = None
    tflops_bfloat16: float | None = None
    tflops_fp8: float | None = None
    tflops_fp4: float | None = None
    tflops_int8: float | None = None
    gb_per_s: float
    source: str = ""
    clock: str = ""
    tflops_float16: float | None = None
    tflops_float64: float | None = None
    memory_gb: float | None = None
    maker: str = ""
    note: str = ""
    address: str = ""
    checked: str = ""

    def peak(self, paths: Sequence[str]) -> float | None:
        """FLOP/s of the fastest of these paths; None where none is known."""
        known = [getattr(self, f"tflops_{path}") for path in paths]
        return max((1e12 * peak for peak in known if peak), default=None)


def paths_of(work: Workload) -> tuple[str, ...]:
    """The paths that may compute a workload's products: that of its dtype, or a faster
    one for float32 whose products may be less exact. Where weights are quantised, the
    products may be those of 8 bits; of floats of few bits they may be of as few.
    """
    path = work.dtype
    if path == "float32":
        path = LESS_EXACT_PATHS.get(work.matmul_precision, path)
    match work.weights:
        case Weights.NONE:
            return (path,)
        case Weights.INT8 | Weights.INT8_DYNAMIC | Weights.INT4:
            return (FP8, INT8)
        case Weights.MXFP4 | Weights.NVFP4:
            return (FP4, FP8, path)
        case _:
            return (FP8, path)


def bounds_of(
    cases: Sequence[Case], costs: Sequence[CaseCost], machines: Sequence[Hardware]
) -> tuple[HardwareBound, ...]:
    """The bound of each case on each machine, those of one case together."""
    cost_of = {entry.case: entry.cost for entry in costs}
    return tuple(
        _bound_of(case, cost_of[case.label], machine)
        for case in cases
        for machine in machines
    )


def _bound_of(case: Case, cost: Cost, machine: Hardware) -> HardwareBound:
    """The bound of a case; without a time where its FLOPs or the peak for them are not
    known.
    """
    flops = None if cost.failed else flops_of_call(case, cost)
    if flops is None:
        return HardwareBound(
            case=case.label, hardware=machine.name, bound_by="counts unknown"
        )
    moved_bytes = _moved_bytes(case, cost)
    intensity = flops / moved_bytes
    paths = paths_of(case.workload)
    peak = machine.peak(paths)
    if peak is None:
        return HardwareBound(
            case=case.label,
            hardware=machine.name,
            flops_per_byte=intensity,
            bound_by=f"{' or '.join(paths)} peak unknown",
        )
    products_s = flops / peak
    memory_s = moved_bytes / (1e9 * machine.gb_per_s)
    return HardwareBound(
        case=case.label,
        hardware=machine.name,
        at_least_s=max(products_s, memory_s),
        bound_by="memory" if memory_s >= products_s else "products",
        flops_per_byte=intensity,
    )


def _moved_bytes(case: Case, cost: Cost) -> int:
    """The bytes that every implementation moves to and from memory, each tensor once.

    A forward pass reads weights and input, and writes the output. A backward pass reads
    the output's gradient, and writes those of the input and of the weights; alone, it
    reads weights and input too (or what was made of them, which is larger), and writes
    no output. Activations may stay on the chip or be computed again, and weights are
    read again only where they do not fit: neither is part of a bound. Of experts only
    those of one token are sure to be read: all tokens may choose the same.

    Code of the user's may look weights up, or not train them. So only the weights count
    that its products show: of two FLOPs a token each in the forward pass, and of as
    many for its gradient in the backward pass, beside those for the input's.
    """
    work = case.workload
    item = item_bytes(work.dtype)
    read = cost.weight_bytes
    if isinstance(case.ffn, FFNSpec) and case.ffn.moe is not None:
        of_token = cost.params_active * item
        read = quantised_bytes(case.ffn, work, of_token, case.ffn.moe.top_k)
    trained = read
    if cost.counted:
        forward, backward = cost.flops_forward or 0, cost.flops_backward or 0
        trained = min(read, max(0, (backward - forward) // 2) * item)
        read = min(read, forward // 2 * item)
    end_bytes = work.tokens * case.ffn.d_model * item  # of the input, and of the output
    if work.mode == Mode.FORWARD:
        return read + 2 * end_bytes
    inputs_and_outputs = 3 if work.mode == Mode.BACKWARD else 4
    return read + trained + inputs_and_outputs * end_bytes


@cache
def published() -> Registry[Hardware]:
    """Every machine of hardware.toml."""
    machines: Registry[Hardware] = Registry(
        "hardware", "`ffnbench list hardware` shows all"
    )
    for machine in _machines_in(PUBLISHED_FILE):
        machines.add(machine.name, machine)
    return machines


def machines_named(names: Sequence[str]) -> list[Hardware]:
    """The machines of a list of names and .toml files, each once; of two with one name
    that of a file is taken. Raises FfnbenchError for a name that is not known, and for
    a file that can't be read.
    """
    machines: dict[str, Hardware] = {}
    for name in names:
        if name.endswith(".toml"):
            machines |= {machine.name: machine for machine in _machines_in(Path(name))}
        else:
            machine = published().get(name)
            machines.setdefault(machine.name, machine)
    return list(machines.values())


def _machines_in(path: Path) -> list[Hardware]:
    try:
        data = tomllib.loads(content_of(path).decode())
        machines = []
        for name, row in data.items():
            if not isinstance(row, dict):
                raise ValueError(f"{name} stands in no table")
            machine = jsonable.decode(Hardware, {"name": name, **row})
            for each in fields(Hardware):
                value = getattr(machine, each.name)
                if isinstance(value, float) and value <= 0:
                    raise ValueError(f"{each.name} of {name} is {value:g}")
            machines.append(machine)
        return machines
    except (ValueError, RecursionError) as problem:
        hint = "it has tables such as [mine], with keys such as tflops_float32 = 20 and gb_per_s = 300"
        raise FfnbenchError(f"cannot read {str(path)!r}: {problem}", hint) from None


def hardware_records() -> list[dict[str, Any]]:
    """Every machine of hardware.toml, with the source of its figures."""
    records = []
    for machine in published():
        record = {}
        for each in fields(Hardware):
            value = getattr(machine, each.name)
            title = each.name.removeprefix("tflops_").replace("gb_per_s", "GB/s")
            record[title] = f"{value:g}" if isinstance(value, float) else value or "-"
        records.append(record)
    return records

"""What is known of a machine -> the least time that a call could take on it.

A call needs FLOPs for its matrix products, and moves bytes to and from memory. They are
set against the peak of its dtype and the bandwidth of memory. Of a form that is split
over devices each has its part of d_ff, and their outputs are added by an all-reduce: in
a ring each sends 2 (N - 1) / N of their bytes, in every pass.

Machines stand in published.toml, or in a file of the user's. How near such bounds were
to measured times, on a machine that was here, stands in how_near.json, which
benchmarks/estimates.py writes.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from ffnbench.choices import MatmulPrecision, Mode
from ffnbench.common import jsonable
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.files import content_of
from ffnbench.common.jsonable import least
from ffnbench.common.names import Registry
from ffnbench.ffn.cost import Cost
from ffnbench.ffn.spec import FFNSpec, item_bytes
from ffnbench.plan import Case, Probe, Workload, cost_of, needed_by
from ffnbench.result import MEMORY, Bound

# of float32's products
INSIDE = {MatmulPrecision.HIGH: "tf32", MatmulPrecision.MEDIUM: "bfloat16"}
ABOVE_ZERO = least(1e-9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """A machine, or one device of it; the head of published.toml explains each field.
    Unknown is None.
    """

    name: str
    tflops_float32: float | None = field(default=None, metadata=ABOVE_ZERO)
    tflops_tf32: float | None = field(default=None, metadata=ABOVE_ZERO)
    tflops_bfloat16: float | None = field(default=None, metadata=ABOVE_ZERO)
    gb_per_s: float = field(metadata=ABOVE_ZERO)
    source: str = ""
    clock: str = ""
    tflops_float16: float | None = field(default=None, metadata=ABOVE_ZERO)
    tflops_float64: float | None = field(default=None, metadata=ABOVE_ZERO)
    memory_gb: float | None = field(default=None, metadata=ABOVE_ZERO)
    link_gb_per_s: float | None = field(default=None, metadata=ABOVE_ZERO)
    link: str = ""
    maker: str = ""
    note: str = ""
    address: str = ""
    checked: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The least seconds of a case on hardware, and of what on each device. `at_least_s`
    is the larger of products and memory, and an all-reduce after it; where one of them
    is not known it is None, and `unknown` says what is missing.
    """

    hardware: str
    label: str
    devices: int
    device_weight_bytes: int | None
    device_flops: int | None
    device_bytes: int | None
    flops_per_byte: float | None
    ridge_flops_per_byte: float | None
    products_at_least_s: float | None
    memory_at_least_s: float | None
    device_at_least_s: float | None
    all_reduce_at_least_s: float | None
    at_least_s: float | None
    bound_by: str | None
    unknown: str


def bounds_of(case: Case, cost: Cost, hardware: Hardware, devices: int = 1) -> Bounds:
    """The bounds of a case, split over so many devices. How code of the user's splits
    is not known.
    """
    part = _part(case, devices)
    if part is not None and devices > 1:
        cost = cost_of(part, Probe())
    flops = size = weight_bytes = None
    if part is not None and not cost.failed:
        flops = needed_by(part, cost).flops
        size = _bytes_of(part, cost)
        weight_bytes = cost.weight_bytes
    path = path_of(case.workload)
    peak = 1e12 * (getattr(hardware, f"tflops_{path}") or 0.0)
    bandwidth = 1e9 * hardware.gb_per_s
    products = memory = device = bound_by = intensity = ridge = at_least = None
    if peak:
        ridge = peak / bandwidth
        if flops is not None:
            products = flops / peak
    if size is not None:
        memory = size / bandwidth
        if flops is not None and size:
            intensity = flops / size
    if products is not None and memory is not None:
        device = max(products, memory)
        bound_by = MEMORY if memory >= products else Bound.PRODUCTS
    all_reduce = _all_reduce_s(case, hardware, devices)
    if device is not None and all_reduce is not None:
        at_least = device + all_reduce
    unknown = ""
    if part is None:
        unknown = "split of your own code"
    elif flops is None:
        unknown = "counts"
    elif not peak:
        unknown = f"peak of {path}"
    elif all_reduce is None:
        unknown = "link bandwidth"
    return Bounds(
        hardware=hardware.name,
        label=case.label,
        devices=devices,
        device_weight_bytes=weight_bytes,
        device_flops=flops,
        device_bytes=size,
        flops_per_byte=intensity,
        ridge_flops_per_byte=ridge,
        products_at_least_s=products,
        memory_at_least_s=memory,
        device_at_least_s=device,
        all_reduce_at_least_s=all_reduce,
        at_least_s=at_least,
        bound_by=bound_by,
        unknown=unknown,
    )


def _all_reduce_s(case: Case, hardware: Hardware, devices: int) -> float | None:
    """Of a ring, once in each pass; None where the links are not known."""
    if devices == 1:
        return 0.0
    if hardware.link_gb_per_s is None:
        return None
    passes = 2 if case.workload.mode == Mode.TRAIN else 1
    return (
        passes
        * 2
        * (devices - 1)
        / devices
        * _end_bytes(case)
        / (1e9 * hardware.link_gb_per_s)
    )


def path_of(work: Workload) -> str:
    """Whose peak is that of a workload's products: its dtype's, but for float32 that
    may be less exact.
    """
    if work.dtype != "float32":
        return work.dtype
    return INSIDE.get(work.matmul_precision, work.dtype)


def _end_bytes(case: Case) -> int:
    """Of the input; of the output, and of the gradient of either, as many."""
    return case.workload.tokens * case.ffn.d_model * item_bytes(case.workload.dtype)


def _bytes_of(case: Case, cost: Cost) -> int:
    """What no call can do without, each tensor once: it reads weights and input, and
    writes the output. A backward reads the output's gradient, and writes those of the
    input and of the weights; alone, it reads weights and input too (or what was made of
    them, which is larger), and has no output. What lies between may stay on the chip or
    be made again, and weights are read again only where they don't fit: neither is part
    of a bound.

    Code of the user's may look weights up, or not train them: then those that its
    products show, of two FLOPs a token each forward, and backward as many for the
    weight's gradient beside the input's.
    """
    work = case.workload
    if cost.weight_bytes_touched is None:
        read = cost.weight_bytes
    else:
        read = cost.weight_bytes_touched
    trained = read
    if cost.counted:
        forward, backward = cost.flops_forward or 0, cost.flops_backward or 0
        trained = min(read, max(0, (backward - forward) // 2) * item_bytes(work.dtype))
        read = min(read, forward // 2 * item_bytes(work.dtype))
    if work.mode == Mode.FORWARD:
        return read + 2 * _end_bytes(case)
    ends = 3 if work.mode == Mode.BACKWARD else 4
    return read + trained + ends * _end_bytes(case)


def _part(case: Case, devices: int) -> Case | None:
    """What the device with the largest part of d_ff runs; what has no d_ff (router,
    output gate) each has whole.
    """
    if devices == 1:
        return case
    spec = case.ffn
    if not isinstance(spec, FFNSpec):
        return None
    if devices > spec.d_ff:
        raise FfnbenchError(
            f"{case.label} has a d_ff of {spec.d_ff:,}: {devices:,} devices can't share it",
            f"give at most --tensor-parallel {spec.d_ff}",
        )
    moe = spec.moe and replace(
        spec.moe, shared_d_ff=math.ceil(spec.moe.shared_d_ff / devices)
    )
    return replace(
        case, ffn=replace(spec, d_ff=math.ceil(spec.d_ff / devices), moe=moe)
    )


# quotients of measured times and bounds, elsewhere: by what binds, their median and 90
# % range
Near = dict[str, Any]


def is_held(near: Near, work: Workload) -> bool:
    """Whether such bounds were held against measured times."""
    return work.mode == near["mode"] and path_of(work) in near["dtypes"]


FILE = Path(__file__).with_name("published.toml")
NEAR = Path(__file__).with_name("how_near.json")


@cache
def published() -> Registry[Hardware]:
    """Every machine of the table."""
    machines: Registry[Hardware] = Registry(
        "hardware", "`ffnbench list hardware` shows all"
    )
    for machine in hardware_in(FILE):
        machines.add(machine.name, machine)
    return machines


def hardware_in(path: Path) -> list[Hardware]:
    """The machines of a file; raises FfnbenchError for what can't be read."""
    try:
        data = tomllib.loads(content_of(path).decode())
        machines = []
        for name, row in data.items():
            if not isinstance(row, dict):
                raise ValueError(f"{name} stands in no table")
            machines.append(jsonable.decode(Hardware, {"name": name, **row}))
        return machines
    except (ValueError, RecursionError) as problem:
        hint = "it has tables such as [mine], with keys such as tflops_float32 = 20 and gb_per_s = 300"
        raise FfnbenchError(f"cannot read {str(path)!r}: {problem}", hint) from None


@cache
def how_near() -> dict[str, Any]:
    """What was found of bounds and measured times."""
    return jsonable.parse(NEAR.read_bytes())  # type: ignore[no-any-return]

"""What is known of a machine -> the least time that a call could take on it.

A call needs FLOPs for its matrix products, and moves bytes to and from memory. They are
set against the peak of its dtype and the bandwidth of memory. Of a form that is split
over devices each has its part of d_ff, and their outputs are added by an all-reduce: in
a ring each sends 2 (N - 1) / N of their bytes, in every pass.

Machines stand in published.toml, or in a file of the user. How near such bounds were to
measured times, on a machine that was here, stands in how_near.json, which
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

# whose peak holds for float32's products, where these may be less exact
LESS_EXACT_PATHS = {MatmulPrecision.HIGH: "tf32", MatmulPrecision.MEDIUM: "bfloat16"}
ABOVE_ZERO = least(1e-9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """A machine, or one device of it; the head of published.toml explains each field.
    What is not published is None.
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
    """The least seconds of a case on hardware, and what each device has to do in them.

    `device_at_least_s` is the larger one of products and memory, and `at_least_s` adds
    the all-reduce after it. Where one of these is not known it is None, and `unknown`
    says what is missing.
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
    """The bounds of a case whose d_ff is split over so many devices. How code of the
    user's would be split is not known.
    """
    part = _largest_part(case, devices)
    if part is not None and devices > 1:
        cost = cost_of(part, Probe())
    flops = moved_bytes = weight_bytes = None
    if part is not None and not cost.failed:
        flops = needed_by(part, cost).flops
        moved_bytes = _moved_bytes(part, cost)
        weight_bytes = cost.weight_bytes
    path = path_of(case.workload)
    peak = 1e12 * (getattr(hardware, f"tflops_{path}") or 0.0)
    bandwidth = 1e9 * hardware.gb_per_s
    products_s = memory_s = device_s = at_least_s = None
    bound_by = flops_per_byte = ridge = None
    if peak:
        ridge = peak / bandwidth
        if flops is not None:
            products_s = flops / peak
    if moved_bytes is not None:
        memory_s = moved_bytes / bandwidth
        if flops is not None and moved_bytes:
            flops_per_byte = flops / moved_bytes
    if products_s is not None and memory_s is not None:
        device_s = max(products_s, memory_s)
        bound_by = MEMORY if memory_s >= products_s else Bound.PRODUCTS
    all_reduce_s = _all_reduce_s(case, hardware, devices)
    if device_s is not None and all_reduce_s is not None:
        at_least_s = device_s + all_reduce_s
    unknown = ""
    if part is None:
        unknown = "split of your own code"
    elif flops is None:
        unknown = "counts"
    elif not peak:
        unknown = f"peak of {path}"
    elif all_reduce_s is None:
        unknown = "link bandwidth"
    return Bounds(
        hardware=hardware.name,
        label=case.label,
        devices=devices,
        device_weight_bytes=weight_bytes,
        device_flops=flops,
        device_bytes=moved_bytes,
        flops_per_byte=flops_per_byte,
        ridge_flops_per_byte=ridge,
        products_at_least_s=products_s,
        memory_at_least_s=memory_s,
        device_at_least_s=device_s,
        all_reduce_at_least_s=all_reduce_s,
        at_least_s=at_least_s,
        bound_by=bound_by,
        unknown=unknown,
    )


def _all_reduce_s(case: Case, hardware: Hardware, devices: int) -> float | None:
    """The seconds of a ring all-reduce after each pass; None where the bandwidth of the
    links is not known.
    """
    if devices == 1:
        return 0.0
    if hardware.link_gb_per_s is None:
        return None
    passes = 2 if case.workload.mode == Mode.TRAIN else 1
    sent_share = passes * 2 * (devices - 1) / devices
    return sent_share * _input_bytes(case) / (1e9 * hardware.link_gb_per_s)


def path_of(work: Workload) -> str:
    """Which peak bounds a workload's products: that of its dtype, but a faster one for
    float32 whose products may be less exact.
    """
    if work.dtype != "float32":
        return work.dtype
    return LESS_EXACT_PATHS.get(work.matmul_precision, work.dtype)


def _input_bytes(case: Case) -> int:
    """Bytes of the input, which are as many as those of the output, and of the gradient
    of either.
    """
    return case.workload.tokens * case.ffn.d_model * item_bytes(case.workload.dtype)


def _moved_bytes(case: Case, cost: Cost) -> int:
    """The bytes that every implementation moves to and from memory, each tensor once.

    A forward pass reads weights and input, and writes the output. A backward pass reads
    the output's gradient, and writes those of the input and of the weights; alone, it
    reads weights and input too (or what was made of them, which is larger), and writes
    no output. Activations may stay on the chip or be computed again, and weights are
    read again only where they do not fit: neither is part of a bound.

    Code of the user's may look weights up, or not train them. So only the weights count
    that its products show: of two FLOPs a token each in the forward pass, and of as
    many for its gradient in the backward pass, beside those for the input's.
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
        return read + 2 * _input_bytes(case)
    inputs_and_outputs = 3 if work.mode == Mode.BACKWARD else 4
    return read + trained + inputs_and_outputs * _input_bytes(case)


def _largest_part(case: Case, devices: int) -> Case | None:
    """What the device with the largest part of d_ff runs, with all of what has no d_ff
    (router, output gate); None where it is not known how to split it.
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


# how_near.json: how many times its bound a measured call took, as the median and the
# 90 % range, for all shapes and by what bounds them
HowNear = dict[str, Any]


def was_measured(near: HowNear, work: Workload) -> bool:
    """Whether bounds of such a workload were compared with measured times."""
    return work.mode == near["mode"] and path_of(work) in near["dtypes"]


PUBLISHED_FILE = Path(__file__).with_name("published.toml")
HOW_NEAR_FILE = Path(__file__).with_name("how_near.json")


@cache
def published() -> Registry[Hardware]:
    """Every machine of published.toml."""
    machines: Registry[Hardware] = Registry(
        "hardware", "`ffnbench list hardware` shows all"
    )
    for machine in hardware_in(PUBLISHED_FILE):
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
def how_near() -> HowNear:
    """Read how near bounds were to measured times."""
    return jsonable.parse(HOW_NEAR_FILE.read_bytes())  # type: ignore[no-any-return]

"""Flags and keys -> Workload: what a variant is fed, each value checked. Pure."""

from __future__ import annotations

import re

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.dtypes import DTYPES, item_bytes
from ffnbench.ffn.moe import Routing
from ffnbench.ffn.spec import Scalar, read_positive
from ffnbench.names import hint_for, normalise
from ffnbench.plan import (
    MODE_ALIASES,
    Backend,
    Cache,
    CompileMode,
    MatmulPrecision,
    Mode,
    Plan,
    Time,
    Workload,
    values_of,
)
from ffnbench.planning.keys import flag
from ffnbench.planning.lists import one
from ffnbench.planning.variant_text import ALL, COMPILE_KEYS, Variant, choose
from ffnbench.request import CompareRequest

DEVICES = ("auto", "cpu", "cuda")  # as torch calls them; ROCm's are cuda
ALSO_CUDA = ("gpu", "nvidia", "rocm", "hip", "amd")
_NUMBERED = re.compile(r"cuda:[0-9]{1,4}")


def workload_of(request: CompareRequest, variant: Variant) -> Workload:
    """The workload of a variant: its own keys win over the flags. Raises FfnbenchError for what can't be."""
    names = ("dtype", "device", "mode", "backend", "routing", "time", "cache", "matmul_precision", "reduced_reductions")
    flags: dict[str, Scalar] = {
        "batch": one("batch", request.batch),
        "seq_len": one("seq_len", request.seq_len),
        "threads": 1 if request.threads is None else one("threads", request.threads),
        **{name: getattr(request, name) for name in names},
    }
    own = variant.workload_keys
    given = flags | own
    slowdown = given.get("slowdown", 0.0)
    if not isinstance(slowdown, int | float) or isinstance(slowdown, bool) or not 0 <= slowdown <= 10:
        raise FfnbenchError(f"slowdown must be a share of the call's own time, not {slowdown!r}", "e.g. 0.05 is 5%")
    dtype = DTYPES.canonical(str(given["dtype"]))
    device, cache = device_of(str(given["device"])), choose(Cache, "cache", given["cache"])
    precision = choose(MatmulPrecision, "matmul_precision", given["matmul_precision"])
    reduced = flag(given, "reduced_reductions", True)
    # a flag about the time of a GPU is not meant for a variant that names the CPU itself
    wall = device == "cpu" and "device" in own and "time" not in own
    return Workload(
        batch=read_positive("batch", given["batch"]),
        seq_len=read_positive("seq_len", given["seq_len"]),
        dtype=dtype,
        device=device,
        mode=mode_of(given["mode"]).value,
        threads=read_positive("threads", given["threads"]),
        backend=_backend(str(given["backend"]), variant).value,
        slowdown=float(slowdown),
        routing=_routing(given["routing"], variant),
        compile=choose(CompileMode, "compile", own.get("compile", CompileMode.DEFAULT.value)).value,
        freeze=flag(own, "freeze", False),
        time=(Time.WALL if wall else _time(given["time"], device, cache)).value,
        cache=cache.value,
        # what nothing depends on is at its default, so that the row is no other one
        matmul_precision=(precision if dtype == "float32" else MatmulPrecision.HIGHEST).value,
        reduced_reductions=reduced or item_bytes(dtype) != 2 or device == "cpu",
    )


def _time(asked: Scalar, device: str, cache: Cache) -> Time:
    """Which time is the latency. Of `auto` some is only known once it has become a device: `refuse_time`."""
    if asked is None:
        return Time.DEVICE if device not in ("cpu", "auto") and cache is Cache.COLD else Time.WALL
    time = choose(Time, "time", asked)
    if time is Time.WALL and cache is Cache.COLD and device != "cpu":
        raise FfnbenchError(
            "calls of a cold cache are timed one by one, so on a GPU their time is the device's, not what a caller "
            "waits for",
            "leave time=wall out, or cache=cold",
        )
    if time is Time.DEVICE and device == "cpu":
        raise _none_of_a_cpu()
    return time


def _none_of_a_cpu(label: str = "") -> FfnbenchError:
    told = "a CPU has no time of its own: what it works and what a caller waits for are one"
    return FfnbenchError(f"{label!r}: {told}" if label else told, "leave time=device out")


def refuse_time(plan: Plan) -> None:
    """Raise FfnbenchError where the device's time is asked for, and `auto` has become the CPU."""
    for case in plan.cases:
        if case.workload.device == "cpu" and case.workload.time == Time.DEVICE.value:
            raise _none_of_a_cpu(case.label)


def mode_of(asked: Scalar) -> Mode:
    """A mode by its name or by what trainers call it; raises FfnbenchError for what is none."""
    text = normalise(str(asked))
    if text in MODE_ALIASES:
        return MODE_ALIASES[text]
    if text not in values_of(Mode):
        known = (*values_of(Mode), *MODE_ALIASES)
        every = "modes: forward (inference), train (training), backward"
        raise FfnbenchError(f"unknown mode {asked!r}", hint_for(text, known, every))
    return Mode(text)


def _backend(asked: str, variant: Variant) -> Backend:
    """Keys about compiling mean that it is compiled, where the variant names no backend itself."""
    about = [key for key in COMPILE_KEYS if key in variant.workload_keys]
    if about and "backend" not in variant.workload_keys:
        return Backend.COMPILE
    if asked == ALL:
        raise FfnbenchError(
            f"a key names one backend, and {ALL!r} is several, in {variant.text!r}", "try --backend all"
        )
    backend = choose(Backend, "backend", asked)
    if about and backend is not Backend.COMPILE:
        raise FfnbenchError(
            f"{about[0]!r} is about backend compile, and {variant.text!r} names {backend.value}",
            f"leave one of the two out, or write @backend={Backend.COMPILE.value}",
        )
    return backend


def _routing(asked: Scalar, variant: Variant) -> str | None:
    """How tokens are spread over experts; None without any."""
    chosen = choose(Routing, "routing", Routing.UNIFORM.value if asked is None else asked).value
    if variant.spec_keys.get("moe") is not None:
        return chosen
    if "routing" in variant.workload_keys:
        raise FfnbenchError(f"'routing' belongs to experts, in {variant.text!r}", "add @moe=8x2: 8 experts, 2 a token")
    return None


def device_of(text: str) -> str:
    """A device by name; raises FfnbenchError for what is none."""
    kind, colon, number = text.lower().partition(":")
    if kind in ALSO_CUDA:
        raise FfnbenchError(
            f"unknown device {text!r}", f"torch calls NVIDIA's and AMD's GPUs cuda: --device cuda{colon}{number}"
        )
    if kind not in DEVICES or (colon and not _NUMBERED.fullmatch(text.lower())):
        raise FfnbenchError(f"unknown device {text!r}", hint_for(kind, DEVICES, "devices: auto, cpu, cuda, cuda:0"))
    return text.lower()

"""Flags and keys -> Workload: what a variant is fed and how it is run. Each value is
checked here. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from ffnbench.backends import BACKENDS, lack_of_weights, why_not_installed
from ffnbench.choices import (
    DEFAULT_MODE,
    Backend,
    Cache,
    MatmulPrecision,
    Routing,
    Time,
    Weights,
)
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.names import choose, hint_for
from ffnbench.ffn.spec import (
    DEFAULT_GROUP,
    DTYPES,
    Scalar,
    format_of,
    item_bytes,
    read_positive,
)
from ffnbench.plan import THIS_INTERPRETER, AnySpec, Arm, Workload
from ffnbench.planning.fields import cut, mode_of
from ffnbench.planning.variant_text import (
    BACKEND_KEYS,
    COMPILE_KEYS,
    Variant,
    boolean,
    number,
)
from ffnbench.request import CompareRequest

DEVICES = ("auto", "cpu", "cuda")  # as torch calls them; ROCm's are cuda
FLAGS = ("batch", "seq_len", "dtype", "device", "mode", "backend", "weights")
_NUMBERED = re.compile(r"cuda:[0-9]{1,4}")


def workload_of(request: CompareRequest, variant: Variant) -> Workload:
    """The workload of a variant: its own keys take precedence over the flags. Raises
    FfnbenchError for a value that can't be.
    """
    flags = {name: getattr(request, name) for name in FLAGS}
    threads = 1 if request.threads is None else request.threads
    given: dict[str, Any] = {**flags, "threads": threads, **variant.workload_keys}
    slowdown = number(given, "slowdown", 0.0, "e.g. 0.05 is 5%")
    if not 0 <= slowdown <= 10:
        raise FfnbenchError(
            f"slowdown must be a share of the call's own time, not {slowdown!r}",
            "e.g. 0.05 is 5%",
        )
    dtype = DTYPES.canonical(str(given["dtype"]))
    device = device_of(str(given["device"]))
    cache = choose(Cache, "cache", given.get("cache", Cache.HOT))
    precision = choose(
        MatmulPrecision,
        "matmul_precision",
        given.get("matmul_precision", MatmulPrecision.HIGHEST),
    )
    reduced = boolean(given, "reduced_reductions", True)
    return Workload(
        batch=read_positive("batch", given["batch"]),
        seq_len=read_positive("seq_len", given["seq_len"]),
        dtype=dtype,
        device=device,
        mode=mode_of(given["mode"]),
        threads=read_positive("threads", given["threads"]),
        backend=_backend(str(given["backend"]), variant),
        slowdown=slowdown,
        routing=_routing(given.get("routing"), variant),
        compile=compile_mode(given.get("compile")),
        freeze=boolean(given, "freeze", False),
        time=_time(given.get("time"), device, cache),
        cache=cache,
        # a value without effect here is the default, so that equal work compares equal
        matmul_precision=precision if dtype == "float32" else MatmulPrecision.HIGHEST,
        reduced_reductions=reduced or item_bytes(dtype) != 2 or device == "cpu",
        weights=choose(Weights, "weights", given["weights"]),
        group=read_positive("group", given.get("group", DEFAULT_GROUP)),
        spin=boolean(given, "spin", False),
    )


def compile_mode(value: Scalar) -> str:
    """The name of a mode of torch.compile; the worker knows which its torch has. Raises
    FfnbenchError for a value that is no word.
    """
    text = DEFAULT_MODE if value is None else str(value)
    if not text.replace("-", "").isalpha():
        raise FfnbenchError(
            f"{text!r} is no mode of torch.compile", "for example @compile=max-autotune"
        )
    return text


def _time(asked: Scalar, device: str, cache: Cache) -> Time:
    """Which time is the latency: that of the caller on a CPU, which has no other, and
    else the one that is asked for, or the device's for a cold cache. Where the device
    is still `auto`, Workload.on decides later.
    """
    time = None if asked is None else choose(Time, "time", asked)
    if time is Time.WALL and cache is Cache.COLD and device != "cpu":
        raise FfnbenchError(
            "calls of a cold cache are timed one by one, so on a GPU their time is the device's, not what a caller "
            "waits for",
            "leave time=wall out, or cache=cold",
        )
    if device == "cpu":
        return Time.WALL
    if time is not None:
        return time
    if device != "auto" and cache is Cache.COLD:
        return Time.DEVICE
    return Time.WALL


def _backend(asked: str, variant: Variant) -> Backend:
    """The backend that is asked for; COMPILE for a variant that has a key about
    compiling and names no backend itself.
    """
    compile_keys = [key for key in COMPILE_KEYS if key in variant.workload_keys]
    if compile_keys and "backend" not in variant.workload_keys:
        return Backend.COMPILE
    backend = choose(Backend, "backend", asked)
    if compile_keys and backend is not Backend.COMPILE:
        raise FfnbenchError(
            f"{compile_keys[0]!r} needs the backend compile, and {variant.text!r} has {backend}",
            f"leave one of the two out, or write @backend={Backend.COMPILE}",
        )
    return backend


def _routing(asked: Scalar, variant: Variant) -> Routing | None:
    """How tokens are spread over experts; None for a variant without experts."""
    if asked is None:
        asked = Routing.UNIFORM
    routing = choose(Routing, "routing", asked)
    if variant.spec_keys.get("moe") is not None:
        return routing
    if "routing" in variant.workload_keys:
        raise FfnbenchError(
            f"'routing' needs experts, in {variant.text!r}",
            "for example @moe=8x2",
        )
    return None


def device_of(text: str) -> str:
    """The name of a device as torch has it; raises FfnbenchError for what is none."""
    text = re.sub("^gpu\\b", "cuda", text.lower())
    kind, colon, _ = text.partition(":")
    if kind not in DEVICES or (colon and not _NUMBERED.fullmatch(text)):
        every = "devices: auto, cpu, cuda (NVIDIA's and AMD's GPUs), cuda:0"
        raise FfnbenchError(f"unknown device {text!r}", hint_for(kind, DEVICES, every))
    return text


# Backends: which were asked for, and why one can't run a case, as far as that is known
# without a machine

ALL_BACKENDS = "all"  # in place of a list of backends: every one


def lack_of(
    ffn: AnySpec, work: Workload, arm: Arm = THIS_INTERPRETER
) -> tuple[str, str]:
    """Why the workload's backend can't run a network in an arm, and what to do instead;
    both empty where it can, as far as is known. It is asked again when the device is no
    longer `auto`.
    """
    for lack in (BACKENDS[work.backend].lack, lack_of_weights):
        why, hint = lack(ffn, work)
        if why:
            return why, hint
    # what another interpreter has is not known
    return ("", "") if arm.python else why_not_installed(work.backend)


def refuse_lacking(
    label: str, ffn: AnySpec, work: Workload, arm: Arm = THIS_INTERPRETER
) -> None:
    """Raise FfnbenchError for a case that its backend can't run."""
    why, hint = lack_of(ffn, work, arm)
    if why:
        raise FfnbenchError(f"{label!r} can't be run: {why}", hint)


def lack_in_one_line(ffn: AnySpec, work: Workload, arm: Arm = THIS_INTERPRETER) -> str:
    """What `lack_of` returns, in one line."""
    return "; ".join(filter(None, lack_of(ffn, work, arm)))


def parse_backends(text: str) -> tuple[Backend, ...]:
    """The backends of `eager`, `eager,onednn` or `all`, without repetitions; raises
    FfnbenchError for an empty name and for an unknown one.
    """
    parts = cut("--backend ", text, "eager,packed")
    if ALL_BACKENDS in parts:
        return tuple(Backend)
    backends = [choose(Backend, "backend", part) for part in parts]
    return tuple(dict.fromkeys(backends))


def parse_weights(text: str) -> tuple[Weights, ...]:
    """The formats of weights of `none` or `none,int8`, without repetitions; raises
    FfnbenchError for an unknown one.
    """
    parts = cut("--weights ", text, "none,int8,int4")
    return tuple(dict.fromkeys(choose(Weights, "weights", part) for part in parts))


@dataclass(frozen=True, slots=True)
class Way:
    """How a row is run: its backend and its format of weights, None where a key of its
    variant says that. `one_of_several` is whether lists of flags made several rows of
    the variant; such a row is left out where it can't be run, and is no error.
    """

    backend: Backend | None
    weights: Weights | None
    one_of_several: bool

    def of(self, work: Workload) -> Workload:
        """A workload, run this way."""
        changed = replace(
            work,
            backend=self.backend or work.backend,
            weights=self.weights or work.weights,
        )
        return replace(changed, group=_group(changed.group, changed))


def ways_of(
    variant: Variant, backends: tuple[Backend, ...], weights: tuple[Weights, ...]
) -> dict[str, Way]:
    """The ways to run a variant, by the labels of the rows: each backend with each
    format of weights.
    """
    own = variant.workload_keys.keys()
    backends_of_row: tuple[Backend | None, ...] = backends
    if BACKEND_KEYS & own:
        backends_of_row = (None,)
    formats_of_row: tuple[Weights | None, ...] = weights
    if "weights" in own:
        formats_of_row = (None,)
    one_of_several = len(backends_of_row) * len(formats_of_row) > 1
    ways = {}
    for backend, weight_format in product(backends_of_row, formats_of_row):
        label = variant.label
        if len(backends_of_row) > 1 and backend is not Backend.EAGER:
            label += f"@backend={backend}"
        if len(formats_of_row) > 1 and weight_format is not Weights.NONE:
            label += f"@weights={weight_format}"
        ways[label] = Way(backend, weight_format, one_of_several)
    return ways


def _group(group: int, work: Workload) -> int:
    """The columns of a group; the default where the format has no groups, so that equal
    work compares equal.
    """
    held = format_of(work.weights, work.backend)
    return group if held is not None and held.grouped else DEFAULT_GROUP

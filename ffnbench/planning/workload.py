"""Flags and keys -> Workload: what a variant is fed and how it is run, each value checked. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ffnbench.backends import BACKENDS
from ffnbench.choices import Backend, Cache, CompileMode, MatmulPrecision, Routing, Time
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.names import choose, hint_for
from ffnbench.ffn.spec import (
    DTYPES,
    Scalar,
    item_bytes,
    read_positive,
)
from ffnbench.plan import AnySpec, Workload
from ffnbench.planning.fields import cut, mode_of
from ffnbench.planning.variant_text import BACKEND_KEYS, COMPILE_KEYS, Variant, flag, number
from ffnbench.request import CompareRequest

DEVICES = ("auto", "cpu", "cuda")  # as torch calls them; ROCm's are cuda
FLAGS = ("batch", "seq_len", "dtype", "device", "mode", "backend")
_NUMBERED = re.compile(r"cuda:[0-9]{1,4}")


def workload_of(request: CompareRequest, variant: Variant) -> Workload:
    """The workload of a variant: its own keys win over the flags. Raises FfnbenchError for what can't be."""
    flags = {name: getattr(request, name) for name in FLAGS}
    threads = 1 if request.threads is None else request.threads
    given: dict[str, Any] = {**flags, "threads": threads, **variant.workload_keys}
    slowdown = number(given, "slowdown", 0.0, "e.g. 0.05 is 5%")
    if not 0 <= slowdown <= 10:
        raise FfnbenchError(f"slowdown must be a share of the call's own time, not {slowdown!r}", "e.g. 0.05 is 5%")
    dtype = DTYPES.canonical(str(given["dtype"]))
    device, cache = device_of(str(given["device"])), choose(Cache, "cache", given.get("cache", Cache.HOT))
    precision = choose(MatmulPrecision, "matmul_precision", given.get("matmul_precision", MatmulPrecision.HIGHEST))
    reduced = flag(given, "reduced_reductions", True)
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
        compile=choose(CompileMode, "compile", given.get("compile", CompileMode.DEFAULT)),
        freeze=flag(given, "freeze", False),
        time=_time(given.get("time"), device, cache),
        cache=cache,
        # what nothing depends on is at its default, so that the row is no other one
        matmul_precision=precision if dtype == "float32" else MatmulPrecision.HIGHEST,
        reduced_reductions=reduced or item_bytes(dtype) != 2 or device == "cpu",
    )


def _time(asked: Scalar, device: str, cache: Cache) -> Time:
    """Which time is the latency. What a CPU works and what a caller waits for are one; see also Workload.on."""
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
    """Keys about compiling mean that it is compiled, where the variant names no backend itself."""
    about = [key for key in COMPILE_KEYS if key in variant.workload_keys]
    if about and "backend" not in variant.workload_keys:
        return Backend.COMPILE
    backend = choose(Backend, "backend", asked)
    if about and backend is not Backend.COMPILE:
        raise FfnbenchError(
            f"{about[0]!r} is about backend compile, and {variant.text!r} names {backend}",
            f"leave one of the two out, or write @backend={Backend.COMPILE}",
        )
    return backend


def _routing(asked: Scalar, variant: Variant) -> Routing | None:
    """How tokens are spread over experts; None without any."""
    if asked is None:
        asked = Routing.UNIFORM
    routing = choose(Routing, "routing", asked)
    if variant.spec_keys.get("moe") is not None:
        return routing
    if "routing" in variant.workload_keys:
        raise FfnbenchError(f"'routing' belongs to experts, in {variant.text!r}", "add @moe=8x2: 8 experts, 2 a token")
    return None


def device_of(text: str) -> str:
    """A device by name; raises FfnbenchError for what is none."""
    text = re.sub("^gpu\\b", "cuda", text.lower())
    kind, colon, _ = text.partition(":")
    if kind not in DEVICES or (colon and not _NUMBERED.fullmatch(text)):
        every = "devices: auto, cpu, cuda (NVIDIA's and AMD's GPUs), cuda:0"
        raise FfnbenchError(f"unknown device {text!r}", hint_for(kind, DEVICES, every))
    return text


# Backends: which were asked for, and why one can't run a case, as far as that is known without a machine

ALL = "all"  # in place of a list of backends: every one


def lack_of(ffn: AnySpec, work: Workload) -> tuple[str, str]:
    """Why the workload's backend can't run this network, and what to do instead; empty where nothing speaks against it.

    Device `auto` says nothing yet: ask again once it is known.
    """
    return BACKENDS[work.backend].lack(ffn, work)


def refuse_lacking(label: str, ffn: AnySpec, work: Workload) -> None:
    """Raise FfnbenchError for a case that its backend can't run."""
    why, hint = lack_of(ffn, work)
    if why:
        raise FfnbenchError(f"{label!r} can't be run: {why}", hint)


def lacks(ffn: AnySpec, work: Workload) -> str:
    """As `lack_of`, in one line."""
    return "; ".join(filter(None, lack_of(ffn, work)))


def parse_backends(text: str) -> tuple[Backend, ...]:
    """One backend, `eager,onednn`, or `all`, each once; raises FfnbenchError for an empty name, and an unknown one."""
    parts = cut("--backend ", text, "eager,packed")
    if ALL in parts:
        return tuple(Backend)
    backends = [choose(Backend, "backend", part) for part in parts]
    return tuple(dict.fromkeys(backends))


def labels_of(variant: Variant, backends: Iterable[Backend]) -> dict[str, Backend | None]:
    """The rows of a variant by label, with the backend of each; None where the variant says itself how it is run."""
    several = tuple(backends)
    if BACKEND_KEYS & variant.workload_keys.keys():
        return {variant.label: None}
    if len(several) == 1:
        return {variant.label: several[0]}
    labels: dict[str, Backend | None] = {}
    for backend in several:
        suffix = "" if backend is Backend.EAGER else f"@backend={backend}"
        labels[variant.label + suffix] = backend
    return labels

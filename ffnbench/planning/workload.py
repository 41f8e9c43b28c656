"""Flags and keys -> Workload: what a variant is fed, each value checked. Pure."""

from __future__ import annotations

import re

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.dtypes import DTYPES
from ffnbench.ffn.moe import Routing
from ffnbench.ffn.spec import Scalar, read_positive
from ffnbench.names import hint_for, normalise
from ffnbench.plan import MODE_ALIASES, Backend, CompileMode, Mode, Workload, values_of
from ffnbench.planning.grammar import ALL, COMPILE_KEYS, Variant, choose
from ffnbench.planning.keys import flag
from ffnbench.planning.lists import one
from ffnbench.request import CompareRequest

_NUMBERED = re.compile(r"cuda:[0-9]{1,4}")


def workload_of(request: CompareRequest, variant: Variant) -> Workload:
    """The workload of a variant: its own keys win over the flags. Raises FfnbenchError for what can't be."""
    flags: dict[str, Scalar] = {
        "batch": one("batch", request.batch),
        "seq_len": one("seq_len", request.seq_len),
        "dtype": request.dtype,
        "device": request.device,
        "mode": request.mode,
        "threads": 1 if request.threads is None else one("threads", request.threads),
        "backend": request.backend,
        "routing": request.routing,
    }
    given = flags | variant.workload_keys
    slowdown = given.get("slowdown", 0.0)
    if not isinstance(slowdown, int | float) or isinstance(slowdown, bool) or not 0 <= slowdown <= 10:
        raise FfnbenchError(f"slowdown must be a share of the call's own time, not {slowdown!r}", "e.g. 0.05 is 5%")
    return Workload(
        batch=read_positive("batch", given["batch"]),
        seq_len=read_positive("seq_len", given["seq_len"]),
        dtype=DTYPES.canonical(str(given["dtype"])),
        device=device_of(str(given["device"])),
        mode=mode_of(given["mode"]).value,
        threads=read_positive("threads", given["threads"]),
        backend=_backend(str(given["backend"]), variant).value,
        slowdown=float(slowdown),
        routing=_routing(given["routing"], variant),
        compile=choose(CompileMode, "compile", variant.workload_keys.get("compile", CompileMode.DEFAULT.value)).value,
        freeze=flag(variant.workload_keys, "freeze", False),
    )


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
    keys = variant.workload_keys
    about = [key for key in COMPILE_KEYS if key in keys]
    if about and "backend" not in keys:
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
    kind, colon, _ = text.lower().partition(":")
    if kind not in ("auto", "cpu", "cuda") or (colon and not _NUMBERED.fullmatch(text.lower())):
        raise FfnbenchError(
            f"unknown device {text!r}", hint_for(kind, ("auto", "cpu", "cuda"), "devices: auto, cpu, cuda, cuda:0")
        )
    return text.lower()

"""Which backends were asked for, and why one can't run a case, as far as that is known without a machine. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.attention import AttentionSpec
from ffnbench.ffn.spec import ActivationSpec, FFNSpec, Gate, ImportedSpec
from ffnbench.plan import AnySpec, Backend, Case, Mode, Workload, values_of
from ffnbench.planning.variant_text import ALL, BACKEND_KEYS, Variant, choose

ONEDNN_DTYPES = ("float32", "bfloat16")


@dataclass(frozen=True, slots=True)
class _Lack:
    """A row of the table: these backends can't run a case where `of` says so, and why; what to do instead."""

    backends: tuple[Backend, ...]
    of: Callable[[AnySpec, Workload], bool]
    why: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.why}; {self.hint}" if self.hint else self.why


def _form(ffn: AnySpec) -> FFNSpec | None:
    """The form of a network where ffnbench knows it, also that of a module of somebody else's."""
    if isinstance(ffn, FFNSpec):
        return ffn
    return ffn.ours if isinstance(ffn, ImportedSpec) else None


def _unknown_form(ffn: AnySpec, _: Workload) -> bool:
    return isinstance(ffn, ImportedSpec) and _form(ffn) is None


def _no_inner_gate(ffn: AnySpec, _: Workload) -> bool:
    form = _form(ffn)
    return form is None or form.gate is not Gate.INNER


_ONEDNN, _PACKED = (Backend.ONEDNN,), (Backend.PACKED, Backend.PACKED_UP_GATE)
LACKS = (
    _Lack(_ONEDNN, lambda _, work: work.accelerated, "oneDNN runs on the CPU", "use --device cpu"),
    _Lack(
        _ONEDNN,
        lambda _, work: work.dtype not in ONEDNN_DTYPES,
        f"onednn computes in {' and '.join(ONEDNN_DTYPES)} alone",
        f"use --dtype {ONEDNN_DTYPES[0]}",
    ),
    _Lack(
        _ONEDNN,
        lambda _, work: work.mode != Mode.FORWARD.value,
        "onednn is for inference: its packed weights have no gradient",
        "use --mode forward",
    ),
    _Lack(_ONEDNN, lambda ffn, _: isinstance(ffn, ActivationSpec), "an activation alone has no linear layers"),
    _Lack(_ONEDNN, lambda ffn, _: isinstance(ffn, FFNSpec) and ffn.moe is not None, "onednn packs no experts"),
    _Lack(_PACKED, lambda ffn, _: isinstance(ffn, ActivationSpec), "an activation alone has no gate to pack with up"),
    _Lack(
        _PACKED,
        lambda ffn, _: isinstance(ffn, AttentionSpec),
        "attention has no gate to pack with up",
        "`ffnbench compare` measures the FFN alone",
    ),
    _Lack(_PACKED, _unknown_form, "ffnbench can't tell its gate from its up", "@like=swiglu says that it is one"),
    _Lack(_PACKED, _no_inner_gate, "only an inner gate can be packed with up, and it has none", "swiglu has one"),
    _Lack(
        (Backend.COMPILE,),
        lambda _, work: work.freeze and work.mode != Mode.FORWARD.value,
        "freeze is for inference: constants have no gradient",
        "use --mode forward",
    ),
)


def _lack(ffn: AnySpec, work: Workload) -> _Lack | None:
    return next((row for row in LACKS if Backend(work.backend) in row.backends and row.of(ffn, work)), None)


def lacks(ffn: AnySpec, workload: Workload) -> str:
    """Why the workload's backend can't run this network, in one line; "" where nothing is known that speaks against it.

    Device `auto` says nothing yet: ask again once it is known.
    """
    found = _lack(ffn, workload)
    return str(found) if found else ""


def refuse_lacking(case: Case) -> None:
    """Raise FfnbenchError for a case that its backend can't run."""
    if found := _lack(case.ffn, case.workload):
        raise FfnbenchError(f"{case.label!r} can't be run: {found.why}", found.hint)


def parse_backends(text: str) -> tuple[Backend, ...]:
    """One backend, `eager,onednn`, or `all`, each once; raises FfnbenchError for none, and for unknown ones."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise FfnbenchError("no backend given", "backends: " + ", ".join((*values_of(Backend), ALL)))
    return tuple(Backend) if ALL in parts else tuple(dict.fromkeys(choose(Backend, "backend", part) for part in parts))


def refuse_several(text: str, what: str) -> None:
    """Raise FfnbenchError where a command that has one backend is given a list."""
    if len(parse_backends(text)) > 1:
        raise FfnbenchError(f"{what} is measured with one backend, not {text!r}", "`ffnbench compare` takes a list")


def labels_of(variant: Variant, backends: Iterable[Backend]) -> dict[str, Backend | None]:
    """The rows of a variant by label, with the backend of each; None where the variant says itself how it is run."""
    several = tuple(backends)
    if BACKEND_KEYS & variant.workload_keys.keys():
        return {variant.label: None}
    if len(several) == 1:
        return {variant.label: several[0]}
    return {
        variant.label if backend is Backend.EAGER else f"{variant.label}@backend={backend.value}": backend
        for backend in several
    }

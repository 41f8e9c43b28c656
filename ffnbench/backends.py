"""The backends: one row each, no behaviour of torch's. How each runs a module stands in a file of worker/backends/.

A new backend is a member of choices.Backend, a row here, its file, and its line in worker/backends/running.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ffnbench.choices import Backend, Mode
from ffnbench.ffn.spec import ActivationSpec, AttentionSpec, FFNSpec, Gate, ImportedSpec
from ffnbench.plan import AnySpec, Workload

Lack = tuple[str, str]  # why a backend can't run a network under a workload, and what to do instead; empty where it can


def _lacks_nothing(ffn: AnySpec, work: Workload) -> Lack:
    return "", ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendRow:
    """What is to be known of a backend without torch.

    `says` is what it does, and `keys` are those of a variant that belong to it, for `ffnbench list backends`. `doing`
    is what opening a case is called, and `copies` is how often the weights are in memory then. `lack` tells what it
    can't run, as far as that is known without a machine; device `auto` says nothing yet.
    """

    says: str
    keys: str = ""
    doing: str = "opening"
    copies: int = 1
    lack: Callable[[AnySpec, Workload], Lack] = _lacks_nothing


def _lack_of_packed(ffn: AnySpec, work: Workload) -> Lack:
    if isinstance(ffn, AttentionSpec | ActivationSpec):
        return "it has no gate to pack with up", "`ffnbench compare` measures an FFN alone"
    form = ffn
    if isinstance(ffn, ImportedSpec):
        if ffn.like is None:
            return "ffnbench can't tell its gate from its up", "@like=swiglu says that it is one"
        form = ffn.like
    if not isinstance(form, FFNSpec) or form.gate is not Gate.INNER:
        return "only an inner gate can be packed with up, and it has none", "swiglu has one"
    return "", ""


def _lack_of_compile(ffn: AnySpec, work: Workload) -> Lack:
    if work.freeze and work.mode != Mode.FORWARD:
        return "freeze is for inference: constants have no gradient", "use --mode forward"
    return "", ""


ONEDNN_DTYPES = ("float32", "bfloat16")


def _lack_of_onednn(ffn: AnySpec, work: Workload) -> Lack:
    if work.accelerated:
        return "oneDNN runs on the CPU", "use --device cpu"
    if work.dtype not in ONEDNN_DTYPES:
        return f"onednn computes in {' and '.join(ONEDNN_DTYPES)} alone", f"use --dtype {ONEDNN_DTYPES[0]}"
    if work.mode != Mode.FORWARD:
        return "onednn is for inference: its packed weights have no gradient", "use --mode forward"
    if isinstance(ffn, ActivationSpec):
        return "an activation alone has no linear layers", ""
    if isinstance(ffn, FFNSpec) and ffn.moe is not None:
        return "onednn packs no experts", ""
    return "", ""


BACKENDS = {
    Backend.EAGER: BackendRow(says="runs the code as it is written"),
    Backend.PACKED: BackendRow(says="gate and up in one product, gate first", lack=_lack_of_packed),
    Backend.PACKED_UP_GATE: BackendRow(says="gate and up in one product, up first", lack=_lack_of_packed),
    Backend.COMPILE: BackendRow(
        says="torch.compile", keys="@compile=MODE @freeze=true", doing="compiling", lack=_lack_of_compile
    ),
    Backend.ONEDNN: BackendRow(
        says="oneDNN's linear layers, weights packed once", doing="packing", copies=2, lack=_lack_of_onednn
    ),
}

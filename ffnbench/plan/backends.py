"""The backends: one row each, no behaviour of torch's. How each runs a module stands in
a file of worker/backends/.

A new backend is a member of choices.Backend, a row here, its file, and its line in
worker/backends/running.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

from ffnbench.common.choices import Backend, Cache, Mode, Weights
from ffnbench.ffn.spec import (
    COUNTED_FORMATS,
    TORCH_FORMATS,
    WEIGHT_FORMATS,
    Dispatch,
    FFNSpec,
    ImportedSpec,
    StackSpec,
    format_of,
)
from ffnbench.plan.plan import AnySpec, Case, Workload

INT4_PACKED_ROWS = 16  # torch packs so many rows of int4 weights together
# aten::_weight_int8pack_mm of torch 2.13 reads beyond the end of other bfloat16 rows
INT8_BFLOAT16_COLUMNS = 16
GROUP_SIZES = (32, 64, 128, 256)  # every format with groups has these
SAY_LIKE = "@like=swiglu says that it is one"
# why a backend can't run a network under a workload, and what to do instead; both are
# empty where it can
Lack = tuple[str, str]
NOTHING_LACKING: Lack = ("", "")


def _lacks_nothing(ffn: AnySpec, work: Workload) -> Lack:
    return NOTHING_LACKING


def _form_of(ffn: AnySpec) -> AnySpec | None:
    """The spec itself, or the form that a target is said to be; None where a target is
    said to be none.
    """
    return ffn.like if isinstance(ffn, ImportedSpec) else ffn


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendRow:
    """What is known of a backend without loading torch.

    `doing` is what progress calls the opening of a case, and `copies` is how many
    copies of the weights are in memory meanwhile. `requires` are the modules of the
    extra that installs it, which has its name.

    `is_runtime` marks a runtime beside torch. It has threads of its own, so it runs in
    processes where no other backend does. It is given the graph of a form; code of the
    user's is run as the form that it is said to be. `can_spin` is whether its threads
    may wait without sleeping. `lack` says why it can't run a network under a workload,
    as far as that is known without a machine; device `auto` says nothing yet.
    """

    doing: str = "opening"
    copies: int = 1
    requires: tuple[str, ...] = ()
    is_runtime: bool = False
    can_spin: bool = False
    lack: Callable[[AnySpec, Workload], Lack] = _lacks_nothing


def lack_of_weights(ffn: AnySpec, work: Workload) -> Lack:
    """Why the matrices of a network can't be held in the format that the workload
    asks for.
    """
    if work.weights is Weights.NONE:
        return NOTHING_LACKING
    if work.weights in COUNTED_FORMATS:
        return (
            f"no backend here computes with {work.weights} weights",
            f"`ffnbench cost --weights {work.weights}` counts their bytes",
        )
    weight_format = format_of(work.weights, work.backend)
    if weight_format is None:
        return (
            f"{work.backend} has no quantised weights",
            f"backends that have: {', '.join(WEIGHT_FORMATS)}",
        )
    if work.accelerated:
        return "quantised weights are for the CPU", "use --device cpu"
    if work.mode != Mode.FORWARD:
        return (
            "quantised weights are for inference: they have no gradient",
            "use --mode forward",
        )
    form = _form_of(ffn)
    if not isinstance(form, FFNSpec):
        return "which of its weights are matrices of an FFN is not known", SAY_LIKE
    if form.moe is not None and isinstance(ffn, ImportedSpec):
        return (
            "experts of code of your own are not quantised: which layer is the router is not known",
            "use --weights none",
        )
    if form.moe is not None and form.moe.dispatch is not Dispatch.EAGER:
        products = f"{form.moe.dispatch} products"
        return f"{products} have no quantised weights", "use @experts=eager"
    if work.weights is Weights.INT8_DYNAMIC and work.dtype != "float32":
        return f"{work.weights} computes only in float32", "use --dtype float32"
    if weight_format in TORCH_FORMATS.values() and work.dtype == "float64":
        return f"{work.weights} does not compute in float64", "use --dtype float32"
    if weight_format.grouped and work.group not in GROUP_SIZES:
        return (
            f"weights have no groups of {work.group}",
            f"@group= takes {', '.join(map(str, GROUP_SIZES))}",
        )
    for rows, columns, _ in form.matrices_of():
        if weight_format.grouped and columns % work.group:
            return (
                f"{columns:,} columns can't be cut into groups of {work.group}",
                "give @group= or --d-ff",
            )
        if (
            weight_format is TORCH_FORMATS[Weights.INT8]
            and work.dtype == "bfloat16"
            and columns % INT8_BFLOAT16_COLUMNS
        ):
            return (
                f"torch's product of int8 and bfloat16 needs multiples of {INT8_BFLOAT16_COLUMNS} columns, and a matrix has {columns:,}",
                "give --d-ff, or --dtype float32",
            )
        if weight_format is TORCH_FORMATS[Weights.INT4] and rows % INT4_PACKED_ROWS:
            return (
                f"torch packs int4 weights by {INT4_PACKED_ROWS} rows, and a matrix has {rows:,}",
                "give --d-ff",
            )
    return NOTHING_LACKING


def lack_of_stack(ffn: AnySpec, work: Workload) -> Lack:
    """Why a stack of blocks can't be run as its workload says."""
    if not isinstance(ffn, StackSpec):
        return NOTHING_LACKING
    alone = "`ffnbench compare` measures an FFN alone"
    if work.backend not in (Backend.EAGER, Backend.COMPILE):
        return f"{work.backend} does not run a stack of blocks", alone
    if work.weights is not Weights.NONE:
        return "quantised weights are of an FFN alone", alone
    if work.cache is not Cache.HOT:
        return "the layers of a stack decide what is in a cache", alone
    return NOTHING_LACKING


def _lack_of_compile(ffn: AnySpec, work: Workload) -> Lack:
    if work.freeze and work.mode != Mode.FORWARD:
        return (
            "freeze is for inference: constants have no gradient",
            "use --mode forward",
        )
    if work.freeze and work.cache is Cache.ROTATED:
        return (
            "frozen weights are constants of the code, which has no copies of them",
            "leave freeze or cache=rotated out",
        )
    return NOTHING_LACKING


def _lack_of_tiles(ffn: AnySpec, work: Workload) -> Lack:
    if isinstance(ffn, FFNSpec) and ffn.tile > 1:
        return f"{work.backend} does not cut tokens into tiles", "use --backend eager"
    return NOTHING_LACKING


def _other_dtype(backend: Backend, dtypes: tuple[str, ...]) -> Lack:
    return (
        f"{backend} computes only in {' and '.join(dtypes)}",
        f"use --dtype {dtypes[0]}",
    )


ONEDNN_DTYPES = ("float32", "bfloat16")


def _lack_of_onednn(ffn: AnySpec, work: Workload) -> Lack:
    if work.accelerated:
        return "oneDNN runs on the CPU", "use --device cpu"
    if work.dtype not in ONEDNN_DTYPES:
        return _other_dtype(work.backend, ONEDNN_DTYPES)
    if work.mode != Mode.FORWARD:
        return (
            "onednn is for inference: its packed weights have no gradient",
            "use --mode forward",
        )
    if isinstance(ffn, FFNSpec) and ffn.moe is not None:
        return "onednn packs no experts", ""
    return _lack_of_tiles(ffn, work)


def _lack_of_graph(ffn: AnySpec, work: Workload, *, dtypes: tuple[str, ...]) -> Lack:
    """Why a runtime can't run a network: one that is given the graph of a form, and
    computes in these dtypes.
    """
    if work.dtype not in dtypes:
        return _other_dtype(work.backend, dtypes)
    if work.accelerated:
        return f"{work.backend} runs on the CPU", "use --device cpu"
    if work.mode != Mode.FORWARD:
        return (
            f"{work.backend} is for inference: it has no gradient",
            "use --mode forward",
        )
    form = _form_of(ffn)
    if not isinstance(form, FFNSpec):
        return "its graph can't be made: ffnbench knows no form of it", SAY_LIKE
    if form.moe is not None:
        return f"{work.backend} does not run experts", "use --backend eager"
    if form.own:
        return (
            f"{form.activation} is code that no runtime but torch can run",
            "use --backend eager",
        )
    return _lack_of_tiles(ffn, work)


BACKENDS = {
    Backend.EAGER: BackendRow(),
    Backend.COMPILE: BackendRow(
        doing="compiling",
        lack=_lack_of_compile,
    ),
    Backend.ONEDNN: BackendRow(
        doing="packing",
        copies=2,
        lack=_lack_of_onednn,
    ),
    Backend.ORT: BackendRow(
        doing="making a session of",
        copies=3,
        requires=("onnxruntime", "onnx"),
        is_runtime=True,
        can_spin=True,
        lack=partial(_lack_of_graph, dtypes=("float32",)),
    ),
    Backend.OPENVINO: BackendRow(
        doing="compiling",
        copies=3,
        requires=("openvino", "onnx"),
        is_runtime=True,
        lack=partial(_lack_of_graph, dtypes=("float32", "bfloat16")),
    ),
}


def bare_form(case: Case) -> FFNSpec | None:
    """The dense form whose bare matrix products can be timed beside a case: its own, or
    the one that it is like. None where it has experts, where its weights are quantised,
    and in a runtime, beside whose threads those of torch would spin.
    """
    form = case.ffn.like if isinstance(case.ffn, ImportedSpec) else case.ffn
    work = case.workload
    if not isinstance(form, FFNSpec) or form.moe is not None:
        return None
    if work.weights != Weights.NONE or BACKENDS[work.backend].is_runtime:
        return None
    return form


def why_not_installed(backend: Backend) -> Lack:
    """Why a backend can't be imported here, and what installs it; both are empty where
    it can be, or where it needs no package.
    """
    missing = [name for name in BACKENDS[backend].requires if find_spec(name) is None]
    if not missing:
        return NOTHING_LACKING
    verb = "is" if len(missing) == 1 else "are"
    why = f"{' and '.join(missing)} {verb} not installed"
    return why, f"pip install 'ffnbench[{backend}]'"

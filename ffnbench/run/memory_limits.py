"""Whether a plan fits into memory: what a worker needs to measure it, told before anything is built. Pure.

Each worker holds the weights and the inputs of all cases at once, and what the largest call needs beside them; the
check copies one matrix after another to float64. New places take padding, and one storage twice, if there is room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.attention import AttentionSpec, Form, working_bytes
from ffnbench.ffn.dtypes import item_bytes
from ffnbench.ffn.spec import FFNSpec, HFSpec
from ffnbench.plan import Backend, Case, Kind, NoProbe, Note, NoteKind, Plan, Workload, cost_of
from ffnbench.units import IEC, quantity

MODEST = 8  # the share of what is free that ceilings may take is one part of so many
AT_ONCE = 3  # of the largest call: what several of them hold together
UNKNOWN_MEMORY = 1 << 31
NOTHING_KNOWN: Mapping[str, int] = {}
TENSORS = 2  # beside the matrices and their biases: input and gradient


def fit_into(plan: Plan, available: int | None) -> Plan:
    """The plan without the textbook forms that memory does not hold; raises FfnbenchError where the rest does not.

    `available` in bytes, of the memory that all of it is measured in; None where it is not known.
    """
    if plan.kind != Kind.BLOCK.value or available is None:
        return plan
    kept, left_out = list(plan.cases), []
    while memory_needed(kept) > available:
        squares = [c for c in kept if isinstance(c.ffn, AttentionSpec) and c.ffn.form is Form.TEXTBOOK]
        if not squares:
            raise FfnbenchError(
                f"this block needs about {quantity(memory_needed(kept), IEC)} of memory, "
                f"and {quantity(available, IEC)} are there",
                "--dtype bfloat16, fewer or shorter --seq-len, or --cost-only",
            )
        kept.remove(squares[-1])
        left_out.append(squares[-1])
    notes = [
        Note(text=f"the textbook's form at {case.workload.seq_len:,} tokens is left out: its scores need "
             f"about {quantity(_working(case), IEC)}, and {quantity(available, IEC)} are there", kind=NoteKind.GENERAL)
        for case in reversed(left_out)
    ]  # fmt: skip
    return replace(plan, cases=tuple(kept), notes=(*plan.notes, *notes))


def check_fits(plan: Plan, available: int | None, free: Mapping[str, int] = NOTHING_KNOWN) -> None:
    """Raise FfnbenchError where memory does not hold the plan. `available` in bytes of the machine, None where it is
    not known; `free`, those of devices, by name.
    """
    for device in dict.fromkeys(case.workload.device for case in plan.cases):
        cases = [case for case in plan.cases if case.workload.device == device]
        room, whose = (available, "") if device == "cpu" else (free.get(device), f" on {device}")
        needed = memory_needed(cases) + memory_of_judge(cases)
        if room is not None and needed > room:
            raise FfnbenchError(
                f"this needs {quantity(needed, IEC)} of memory at once, and {quantity(room, IEC)} are available{whose}",
                "--dtype bfloat16 halves the weights; or fewer variants, a smaller --seq-len or --batch",
            )


def room_for_ceilings(cases: Sequence[Case], available: int | None) -> int:
    """Bytes that the calls of ceilings may take: what the cases leave, and a modest share of all."""
    known = UNKNOWN_MEMORY if available is None else available
    return max(0, min(known // MODEST, known - memory_needed(list(cases)))) // AT_ONCE


def memory_of_judge(cases: Sequence[Case]) -> int:
    """About the bytes that the process which judges outputs takes beside a worker: weights, and those in float64."""
    known = [found for case in cases if (found := _as_known(case))]
    each = [cost_of(case, NoProbe()).weight_bytes * (1 + 8 / item_bytes(case.workload.dtype)) for case in known]
    return int(max(each, default=0))


def memory_needed(cases: list[Case]) -> int:
    """About the bytes that a worker takes to measure these cases; code of the user's counts as nothing."""
    known = [found for case in cases if (found := _as_known(case))]
    weights = [_copies(case.workload) * cost_of(case, NoProbe()).weight_bytes for case in known]
    gradients = max(weights, default=0) if any(case.workload.train for case in known) else 0
    inputs = sum(2 * case.workload.tokens * case.ffn.d_model * item_bytes(case.workload.dtype) for case in known)
    in_float64 = max((8 * r * c for case in known for r, c in case.ffn.matrices.values()), default=0)  # type: ignore[union-attr]
    return sum(weights) + gradients + inputs + in_float64 + max(map(_working, known), default=0)


def _copies(work: Workload) -> int:
    """How often the weights are there: as they are, packed by oneDNN, or frozen: MKL's packed ones may be larger."""
    if work.freeze:
        return 4
    return 2 if work.backend == Backend.ONEDNN.value else 1


def _as_known(case: Case) -> Case | None:
    """A case whose sizes are known: a model's own MLP counts as the form that it is."""
    if isinstance(case.ffn, HFSpec):
        return replace(case, ffn=case.ffn.form) if case.ffn.form else None
    return case if isinstance(case.ffn, FFNSpec | AttentionSpec) else None


def _working(case: Case) -> int:
    """Beside weights and input, in one call."""
    work, item = case.workload, item_bytes(case.workload.dtype)
    if isinstance(case.ffn, AttentionSpec):
        return working_bytes(case.ffn, batch=work.batch, seq_len=work.seq_len, item=item, train=work.train)
    if not isinstance(case.ffn, FFNSpec):
        return 0
    closed_form = cost_of(case, NoProbe()).peak_bytes
    if closed_form is not None:
        return closed_form
    copies = case.ffn.moe.top_k if case.ffn.moe else 1
    return work.tokens * 4 * (case.ffn.d_ff + case.ffn.d_model) * copies * item

"""Is there room for a plan on the CPU? Asked before anything is built, answered from closed forms. No torch here."""

from __future__ import annotations

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.cost import ITEM_BYTES
from ffnbench.ffn.spec import FFNSpec, HFSpec
from ffnbench.plan import AnySpec, Case, NoProbe, Plan, cost_of
from ffnbench.units import IEC, quantity

USABLE = 0.95  # of what is available: the limit that a worker sets itself


def needed_bytes(plan: Plan) -> int:
    """What a worker holds at once: all weights, inputs and gradients, and beside them the dearest call or check.

    The check copies one matrix after another to float64. A module of the user's own counts as nothing.
    """
    known = [case for case in plan.cases if case.workload.device == "cpu" and _form(case.ffn)]
    held = sum(_weights(case) + 2 * case.workload.tokens * case.ffn.d_model * _item(case) for case in known)
    return held + max((_passing(case) for case in known), default=0)


def check_room(plan: Plan, available: int | None) -> None:
    """Raise FfnbenchError where the machine's memory can't hold the plan."""
    needed = needed_bytes(plan)
    if available is not None and needed > USABLE * available:
        raise FfnbenchError(
            f"this needs {quantity(needed, IEC)} of memory at once, and {quantity(available, IEC)} are available",
            "--dtype bfloat16 halves the weights; or fewer variants, a smaller --seq-len or --batch",
        )


def _form(spec: AnySpec) -> FFNSpec | None:
    return spec if isinstance(spec, FFNSpec) else spec.form if isinstance(spec, HFSpec) else None


def _item(case: Case) -> int:
    return ITEM_BYTES[case.workload.dtype]


def _weights(case: Case) -> int:
    form = _form(case.ffn)
    return 0 if form is None else cost_of(_as(case, form), NoProbe()).weight_bytes


def _passing(case: Case) -> int:
    form = _form(case.ffn)
    if form is None:
        return 0
    return max(cost_of(_as(case, form), NoProbe()).peak_bytes or 0, 8 * form.d_model * max(form.d_model, form.d_ff))


def _as(case: Case, form: FFNSpec) -> Case:
    return Case(label=case.label, variant=case.variant, ffn=form, workload=case.workload, sizing=case.sizing)

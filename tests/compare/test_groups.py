"""Lists: each combination is a group with its own reference, match and widths; how they
are typed, measured, read.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from fake_machine import KnownProber, planned

from ffnbench.plan.plan import Plan

LISTS = {"d_model": (64, 96), "dtype": ("float32", "bfloat16"), "mode": ("forward", "train"), "threads": (1, 2),
         "batch": (1, 3), "seq_len": (8, 16)}  # fmt: skip


def plan_of(variants: str, **flags: object) -> Plan:
    return planned(variants, probe=KnownProber(1.0), **flags)


# The plan


def test_each_group_is_the_plan_of_its_own_values() -> None:
    """Whatever a list does, a group holds what a request of single values asks: widths,
    residuals, workloads.
    """
    asked = {
        key: ",".join(values) if key in ("dtype", "mode") else values
        for key, values in LISTS.items()
    }
    plan = plan_of("relu,swiglu,mypkg.mlp:Own", **asked)
    combinations = [
        dict(zip(LISTS, values, strict=True)) for values in product(*LISTS.values())
    ]
    assert len(plan.groups) == len(combinations) == 64
    for group, values in zip(plan.groups, combinations, strict=True):
        alone = plan_of("relu,swiglu,mypkg.mlp:Own", **values)
        assert dict(group.values) == values
        assert [replace(case, point=()) for case in group.cases] == list(alone.cases)
        assert plan.name_of(group.reference) == alone.reference == "relu"
    assert len({case.label for case in plan.cases}) == len(plan.cases) == 3 * 64
    assert [case for group in plan.groups for case in group.cases] == list(
        plan.cases
    )  # rows of a group together

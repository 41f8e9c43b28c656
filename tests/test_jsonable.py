from __future__ import annotations

import json

import pytest

from ffnbench import jsonable
from ffnbench.plan import Plan
from ffnbench.planning.compare import build
from ffnbench.request import Request
from ffnbench.result import Estimate, Failure, FailureKind


def test_a_plan_survives_the_journey_through_text() -> None:
    plan = build(Request(variants="relu,swiglu@d_ff=96@bias=true,silu@gate=output", d_model=48, match="none"))
    assert jsonable.decode(Plan, json.loads(json.dumps(jsonable.encode(plan)))) == plan


def test_enums_and_optionals_survive() -> None:
    failure = Failure(case="a", kind=FailureKind.OOM, message="m")
    assert jsonable.decode(Failure, jsonable.encode(failure)) == failure
    assert jsonable.decode(Estimate, {"value": 1, "low": None}) == Estimate(value=1.0)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"value": "1"}, "Estimate.value"),
        ({"value": 1.0, "hihg": 2}, "unknown field 'hihg'"),
        ({}, "value"),
        ([], "expected an object"),
        ({"value": 1.0, "workers": True}, "workers"),
    ],
)
def test_what_does_not_fit_is_named(data: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        jsonable.decode(Estimate, data)

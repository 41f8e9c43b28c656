"""What one worker found out the next takes over: the reference's projection, the number of calls; a head its base's
weights.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ffnbench import jsonable
from ffnbench.bench import agreement
from ffnbench.bench.jobs import Jobs, Mismatch, projected_error, projection, relative_error
from ffnbench.plan import NoProbe, Plan
from ffnbench.planning.compare import plan_compare
from ffnbench.request import CompareRequest


def plan_of(variants: str = "relu,swiglu", **options: object) -> Plan:
    settings: dict[str, object] = {"d_model": 32, "seq_len": 16, "threads": 1, "device": "cpu", **options}
    return plan_compare(CompareRequest(variants=variants, **settings), NoProbe())  # type: ignore[arg-type]


def test_a_projection_tells_an_error_as_the_whole_tensor_does() -> None:
    generator = torch.Generator().manual_seed(5)
    told = []
    for seed in range(40):
        y = torch.randn(1, 16, 48, generator=generator, dtype=torch.float64)
        off = y + 1e-3 * torch.randn(y.shape, generator=generator, dtype=torch.float64)
        told.append(projected_error(off, projection(y, seed), seed) / relative_error(off, y))
        assert projected_error(y, projection(y, seed), seed) == 0.0
    assert sum(told) / len(told) == pytest.approx(1.0, abs=0.15)
    assert 0.4 < min(told) < max(told) < 2.0


@pytest.mark.parametrize("variant", ["relu", "swiglu@bias=true", "geglu@moe=4x2", "swiglu@dtype=bfloat16"])
def test_a_second_worker_is_held_against_the_first_ones_reference(variant: str) -> None:
    plan = plan_of(variant)
    label = plan.cases[0].label
    first = Jobs(plan).open(label, None)
    assert len(first["proof"]) == 16
    second = Jobs(plan)
    again = second.open(label, first["calls"], first["proof"])
    assert (again["calls"], again["proof"], again["error"]) == (first["calls"], None, None)
    second.verify(label)
    with torch.no_grad():
        next(iter(second.subjects[label].module.parameters())).mul_(1.5)
    with pytest.raises(Mismatch, match=r"the float64 reference.* after timing"):
        second.verify(label)
    wrong = [value + 0.3 for value in first["proof"]]
    with pytest.raises(Mismatch, match="before timing"):
        Jobs(plan).open(label, first["calls"], wrong)


def test_a_head_takes_over_its_bases_weights(tmp_path: Path) -> None:
    """Another seed gives other weights, unless those of the base are given."""
    base = plan_of("swiglu").cases[0]
    agreement.keep(jsonable.encode(base), seed=7, folder=str(tmp_path))
    told = torch.load(tmp_path / "base.pt", weights_only=True)["state"]
    jobs = Jobs(plan_of("swiglu", seed=1))
    jobs.open("swiglu", 1)
    own = jobs.subjects["swiglu"].module.state_dict()
    assert not any(torch.equal(own[name], told[name]) for name in told)
    jobs = Jobs(plan_of("swiglu", seed=1))
    jobs.open("swiglu", 1, weights=str(tmp_path))
    taken = jobs.subjects["swiglu"].module.state_dict()
    assert all(torch.equal(taken[name], told[name]) for name in told)


def test_what_is_warm_is_not_warmed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from ffnbench.bench import meters

    warmed: list[float] = []
    monkeypatch.setattr(meters, "warm_up", lambda subject, seconds: warmed.append(seconds))
    plan = plan_of("relu,swiglu,gelu")
    first, later = Jobs(plan), Jobs(plan)
    found = {label: first.open(label, None) for label in ("relu", "swiglu", "gelu")}
    assert warmed == [0.1, 0.025, 0.025]
    for label, opened in found.items():
        later.open(label, opened["calls"], opened["proof"])
    assert warmed[3:] == [0.1]

"""What one worker found out the next takes over: the number of calls; a head its base's
weights.
"""

from __future__ import annotations

from pathlib import Path

import torch
from fake_machine import planned

from ffnbench.plan.plan import Plan, Probe
from ffnbench.worker import agreement
from ffnbench.worker.jobs import Jobs


def plan_of(variants: str = "relu,swiglu", **options: object) -> Plan:
    settings: dict[str, object] = {
        "d_model": 32,
        "seq_len": 16,
        "threads": 1,
        "device": "cpu",
        **options,
    }
    return planned(variants=variants, **settings, probe=Probe())  # type: ignore[arg-type]


def test_a_head_takes_over_its_bases_weights(tmp_path: Path) -> None:
    """Another seed gives other weights, unless those of the base are given."""
    base = plan_of("swiglu").cases[0]
    agreement.save_output(case=base, seed=7, folder=str(tmp_path))
    told = torch.load(tmp_path / "base.pt", weights_only=True)["state"]
    jobs = Jobs(plan_of("swiglu", seed=1))
    jobs.open(label="swiglu", calls=1)
    own = jobs.subjects["swiglu"].module.state_dict()
    assert not any(torch.equal(own[name], told[name]) for name in told)
    jobs = Jobs(plan_of("swiglu", seed=1))
    jobs.open(label="swiglu", calls=1, weights_folder=str(tmp_path))
    taken = jobs.subjects["swiglu"].module.state_dict()
    assert all(torch.equal(taken[name], told[name]) for name in told)

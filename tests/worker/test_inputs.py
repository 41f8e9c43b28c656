"""Fresh inputs of calls: none comes twice, whatever memory they are given."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from fake_machine import planned

from ffnbench.plan.plan import Probe
from ffnbench.worker.jobs import Jobs
from ffnbench.worker.subject import Pool, most_inputs


@pytest.mark.parametrize(
    ("dtype", "train"), [(torch.float32, True), (torch.bfloat16, False)]
)
def test_no_content_repeats_nor_do_its_magnitudes(
    dtype: torch.dtype, train: bool
) -> None:
    base = torch.randn(2, 5, 24, generator=torch.Generator().manual_seed(1)).to(dtype)
    pool = Pool(base, train=train)
    seen, sizes = set[bytes](), set[bytes]()
    for salt in (11, 12, 2**55 + 3):
        inputs = pool.renew(salt, 7)
        assert (
            len({x.untyped_storage().data_ptr() for x in inputs}) == 7
        )  # none leads to the next
        for x in inputs:
            assert (x.shape, x.dtype, x.requires_grad, x.is_leaf, x._base) == (
                base.shape,
                dtype,
                train,
                True,
                None,
            )
            for found, values in ((seen, x.detach()), (sizes, x.detach().abs())):
                found.add(values.contiguous().view(torch.uint8).numpy().tobytes())
            assert (
                0.4 < float(x.detach().double().std()) < 1.6
            )  # of 240 numbers by 24 factors
            x.detach().fill_(
                7.0
            )  # what was written to is whole again in the next sample
    assert (len(seen), len(sizes)) == (21, 21)


def test_memory_bounds_the_pool() -> None:
    x = torch.zeros(1, 1 << 10, 1 << 10)
    assert most_inputs(x, None) == 64
    assert most_inputs(x, 16 * 3 * x.nbytes) == 3
    assert most_inputs(x, 10) == 1
    request = dict(
        variants="relu",
        d_model=32,
        d_ff=48,
        seq_len=64,
        threads=1,
        device="cpu",
        match="none",
    )
    plan = planned(**request, probe=Probe())
    brief = replace(plan, protocol=replace(plan.protocol, warmup_s=1e-3))
    opened = Jobs(brief, memory_bytes=4 * 16 * 5 * 64 * 32 * 4).open(
        label="relu", calls=1000
    )
    assert opened.calls == 5

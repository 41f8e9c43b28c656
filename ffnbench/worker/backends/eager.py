"""Runs a module as it is written, with quantised weights where the workload asks for
them. Runs in a worker; needs torch.
"""

from __future__ import annotations

from time import perf_counter

from ffnbench.common.choices import Weights
from ffnbench.plan.metrics import HELD, PACK
from ffnbench.plan.plan import Workload
from ffnbench.record.messages import Opened
from ffnbench.worker.subject import Subject


def prepare(subject: Subject, work: Workload) -> Opened:
    """Quantise the weights where the workload asks for it; otherwise the module itself
    is run.
    """
    if work.weights == Weights.NONE:
        return Opened(calls=1, values={HELD: subject.weight_bytes()})
    from ffnbench.worker.backends.quantised import bytes_held, quantised_copy

    start = perf_counter()
    subject.run = quantised_copy(subject.module, work.weights, work.group)
    seconds = perf_counter() - start
    return Opened(
        calls=1,
        values={PACK: seconds, HELD: bytes_held(subject.module, work)},
    )

"""Copies of a subject's weights, of which each timed call uses the next: it finds the
weights in memory, as in a model of many layers, and its input in a cache. Runs in a
worker; needs torch.
"""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from itertools import cycle

from torch import nn

from ffnbench.common.choices import Weights
from ffnbench.common.errors import Unsupported
from ffnbench.common.targets import one_line
from ffnbench.device.environment import rotated_copies
from ffnbench.plan.backends import BACKENDS
from ffnbench.plan.plan import Workload
from ffnbench.worker.backends.running import implementation_of
from ffnbench.worker.subject import Subject

MOST_SESSIONS = 64  # of a runtime: each has threads of its own


def rotate(subject: Subject, work: Workload, weight_bytes: int) -> int:
    """Have the timed calls of a subject that is ready use copies of its weights by
    turns. `weight_bytes` are those that a call computes with. Return how many copies
    there are.

    Raises Unsupported where there are no weights, or where the module or the session of
    its runtime can't be made so often.
    """
    if not weight_bytes:
        raise Unsupported("cache=rotated needs weights, and it has none")
    count = rotated_copies(weight_bytes)
    if BACKENDS[work.backend].is_runtime and count > MOST_SESSIONS:
        raise Unsupported(
            f"cache=rotated needs {count} copies of its weights, and {MOST_SESSIONS} sessions of {work.backend} are the most"
        )
    copies = [_copy_of(subject, work) for _ in range(count - 1)]
    subject.turns = cycle([subject, *copies])
    return count


def _copy_of(subject: Subject, work: Workload) -> Subject:
    """A subject with a copy of the weights. Runtimes and quantised layers, which hold
    weights of their own, make these once more from the same module.
    """
    is_runtime = BACKENDS[work.backend].is_runtime
    if is_runtime or work.weights is not Weights.NONE:
        copied = subject.with_module(subject.module)
        implementation_of(work.backend).prepare(copied, work)
        return copied
    if isinstance(subject.run, nn.Module):  # oneDNN's layers, on the same parameters
        copied = subject.with_module(subject.module)
        copied.run = _copied(subject.run)
        return copied
    copied = subject.with_module(_copied(subject.module))
    if isinstance(subject.run, partial):  # compiled code, which is given the module
        copied.run = partial(subject.run.func, copied.module)
    return copied


def _copied(module: nn.Module) -> nn.Module:
    try:
        return deepcopy(module)
    except Exception as problem:  # code of the user's: a lock that can't be copied
        raise Unsupported(
            f"cache=rotated needs copies of it, and it can't be copied: {one_line(problem)}"
        ) from problem

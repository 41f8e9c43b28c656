"""Do base and head compute the same function? A worker of each is asked; a file goes
between. Needs torch.

The base writes its weights, the input and its output; the head takes weights and input
over and is held against it. Input and weights travel, because two versions of torch
need not draw the same numbers from one seed.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from ffnbench.common.errors import FfnbenchError
from ffnbench.device.environment import resolved_device, torch_device
from ffnbench.ffn.like import relative_error
from ffnbench.ffn.modules import OwnForm, reference_output
from ffnbench.messages import CompareOutput, Done, SaveOutput
from ffnbench.plan import Case
from ffnbench.result import Agreement
from ffnbench.worker.backends.building import (
    WEIGHTS,
    build_module,
    in_float64,
    load_weights,
    module_for_backend,
    seed_all,
)
from ffnbench.worker.backends.running import implementation_of
from ffnbench.worker.subject import Subject, set_precision_of

TOKENS = 16


def save_output(request: SaveOutput) -> Done:
    """Of the base: write what the head is held against. Raises FfnbenchError where its
    own output is not finite.
    """
    case = request.case
    module = _built(case, request.seed)
    x = _to_device(
        torch.randn(1, min(TOKENS, case.workload.seq_len), case.ffn.d_model), case
    )
    y, exact = _both_outputs(module, case, x, request.seed)
    if not bool(torch.isfinite(y).all()):
        raise FfnbenchError(
            "its output is not finite", "nothing can be compared with it"
        )
    state = {name: value.cpu() for name, value in module.state_dict().items()}
    torch.save(
        {"state": state, "x": x.cpu(), "y": y, "exact": exact},
        Path(request.folder, WEIGHTS),
    )
    return Done()


def compare_output(request: CompareOutput) -> Agreement:
    """Of the head: the same input, the base's weights where they fit, and how far the
    outputs are apart.
    """
    case = request.case
    saved = torch.load(Path(request.folder, WEIGHTS), weights_only=True)
    module = _built(case, request.seed)
    own_weights = load_weights(saved["state"], module)
    y, exact = _both_outputs(module, case, _to_device(saved["x"], case), request.seed)
    return Agreement(
        error=_error_of_output(y, saved["y"]),
        tolerance=case.workload.tolerance,
        exact_error=_error_of_output(exact, saved["exact"]),
        own_weights=own_weights,
    )


def _built(case: Case, seed: int) -> nn.Module:
    set_precision_of(case.workload)
    seed_all(seed, case.ffn)
    place = torch_device(resolved_device(case.workload.device))
    module = build_module(
        case.ffn, device=place, dtype=getattr(torch, case.workload.dtype)
    ).eval()
    return module_for_backend(module, case.ffn, case.workload.backend)


def _to_device(x: Tensor, case: Case) -> Tensor:
    return x.to(
        torch_device(resolved_device(case.workload.device)),
        getattr(torch, case.workload.dtype),
    )


def _both_outputs(
    module: nn.Module, case: Case, x: Tensor, seed: int
) -> tuple[Tensor, Tensor | None]:
    """The output by the case's backend, and that of the module as it is written in
    float64, None where it can't be run in it. Seeded, for modules that draw numbers
    even outside of training.
    """
    torch.manual_seed(seed)
    with torch.no_grad():
        if isinstance(module, OwnForm):
            exact: Tensor | None = reference_output(module, x)
        else:
            exact = in_float64(module, x.clone())
        subject = Subject(module, x.clone(), x, train=False)
        implementation_of(case.workload.backend).prepare(subject, case.workload)
        torch.manual_seed(seed)
        y = subject.forward(x.clone())  # which it may change
    return y.cpu(), None if exact is None else exact.cpu()


def _error_of_output(y: Tensor | None, expected: Tensor | None) -> float | None:
    """The relative error; None where there is nothing to compare, or something that is
    not finite.
    """
    if y is None or expected is None or y.shape != expected.shape:
        return None
    error = relative_error(y, expected)
    return error if error < float("inf") else None

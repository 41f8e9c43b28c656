"""Compares the outputs of base and head of an `ab`. Runs in a worker of each; needs
torch.

The base writes its weights, an input and its output into a file. The head takes over
weights and input, and compares its output. The file has weights and input, and not a
seed alone, because two versions of torch may draw different numbers from one seed.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from ffnbench.common.choices import Weights
from ffnbench.common.errors import FfnbenchError
from ffnbench.device.environment import resolved_device, torch_device
from ffnbench.ffn.modules import OwnForm, reference_output
from ffnbench.ffn.proof import relative_error
from ffnbench.plan.plan import Case
from ffnbench.record.result import Agreement
from ffnbench.worker.backends.building import (
    build_case,
    in_float64,
    module_for_backend,
)
from ffnbench.worker.backends.running import implementation_of
from ffnbench.worker.subject import Subject, set_precision_of

WEIGHTS = "base.pt"  # what a base writes into a folder for its head
MOST_TOKENS = 16  # of the input


def save_output(case: Case, seed: int, folder: str) -> None:
    """Write weights, input and output of the base into a file of the folder. Raises
    FfnbenchError where the output is not finite.
    """
    case = _on_its_device(case)
    module = _build_case(case, seed)
    tokens = min(MOST_TOKENS, case.workload.seq_len)
    x = _to_device(torch.randn(1, tokens, case.ffn.d_model), case)
    y, exact = _both_outputs(module, case, x, seed)
    if not bool(torch.isfinite(y).all()):
        raise FfnbenchError(
            "its output is not finite", "nothing can be compared with it"
        )
    state = {name: value.cpu() for name, value in module.state_dict().items()}
    torch.save(
        {"state": state, "x": x.cpu(), "y": y, "exact": exact},
        Path(folder, WEIGHTS),
    )


def compare_output(case: Case, seed: int, folder: str) -> Agreement:
    """Run the head on the input that the base has written into the folder, with the
    base's weights where they fit, and return how far the outputs are apart.
    """
    saved = torch.load(Path(folder, WEIGHTS), weights_only=True)
    case = _on_its_device(case)
    module = _build_case(case, seed)
    own_weights = _load_weights(saved["state"], module)
    y, exact = _both_outputs(module, case, _to_device(saved["x"], case), seed)
    tolerance = case.workload.tolerance
    if case.workload.weights is not Weights.NONE:
        # head may be as far from base as base is from the exact output
        tolerance = max(tolerance, _error_of_output(saved["y"], saved["exact"]) or 0.0)
    return Agreement(
        error=_error_of_output(y, saved["y"]),
        tolerance=tolerance,
        exact_error=_error_of_output(exact, saved["exact"]),
        own_weights=own_weights,
    )


def _load_weights(state: dict[str, Tensor], module: nn.Module) -> str:
    """Give the module these weights. Return why they do not fit, where names or shapes
    differ: then the module is unchanged.
    """
    own = module.state_dict()
    for name in sorted(state.keys() ^ own.keys()):
        where = "base" if name in state else "head"
        return f"only {where} has {name}"
    for name, value in own.items():
        if value.shape != state[name].shape:
            return f"{name} is {tuple(state[name].shape)} in base and {tuple(value.shape)} in head"
    module.load_state_dict(state)
    return ""


def _on_its_device(case: Case) -> Case:
    work = case.workload
    return replace(case, workload=work.on(resolved_device(work.device)))


def _build_case(case: Case, seed: int) -> nn.Module:
    """Build the module of a case in eval mode, as its backend runs it."""
    set_precision_of(case.workload)
    module = build_case(case, seed).eval()
    return module_for_backend(module, case.ffn, case.workload.backend)


def _to_device(x: Tensor, case: Case) -> Tensor:
    work = case.workload
    return x.to(torch_device(work.device), getattr(torch, work.dtype))


def _both_outputs(
    module: nn.Module, case: Case, x: Tensor, seed: int
) -> tuple[Tensor, Tensor | None]:
    """The output by the case's backend, and that of the module in float64, None where
    it can't be run in float64. Before both the seed is set, for modules that draw
    random numbers even in eval mode.
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
        y = subject.forward(x.clone())  # it may change its input
    return y.cpu(), None if exact is None else exact.cpu()


def _error_of_output(y: Tensor | None, expected: Tensor | None) -> float | None:
    """The relative error; None where there is nothing to compare, or the error is not
    finite.
    """
    if y is None or expected is None or y.shape != expected.shape:
        return None
    error = relative_error(y, expected)
    return error if error < float("inf") else None

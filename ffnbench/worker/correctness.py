"""Checks that what is timed computes the right function: outputs, and in training
gradients, are compared with float64. Needs torch.

A module that is one of ffnbench's forms, or is said to be one (`@like`), is compared
with that form, whose reference is written apart from the module that is timed
(ffn/modules.py). Any other is compared with a second instance of itself in float64.
Where this one differs or can't be run, it is compared with one in its own dtype: in
float64 a router may choose otherwise between near ties.

This finds honest mistakes. It is no sandbox, and hunts no cheats.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ffnbench.common.choices import Weights
from ffnbench.common.errors import FfnbenchError
from ffnbench.device.environment import torch_device
from ffnbench.ffn.modules import FeedForward, OwnModule
from ffnbench.ffn.spec import ImportedSpec, StackSpec
from ffnbench.plan.plan import AnySpec, Case
from ffnbench.worker.backends.building import build_module, seed_all
from ffnbench.worker.subject import Subject, gradient_salt

if TYPE_CHECKING:
    from ffnbench.ffn.proof import Proof

ROWS = 16  # rows of an input that are compared, spread over it
# tokens of a mixture of experts; those ROWS with the clearest choice are compared
CANDIDATES = 256
# errors of a gradient are relative to this share of the largest gradient of a weight at
# least: a smaller gradient may be what rounding leaves of a zero
LEAST_SCALE = 0.01
# how far the output of weights in fewer bits may be from plain rounding's, even where
# that one is exact
LEAST_ERROR = 1e-4
OUTPUT, INPUT_GRADIENT = "output", "gradient of the input"
# by what they are: rows of the output and of the input's gradient, gradients of weights
OutputAndGradients = dict[str, Tensor]


class Mismatch(Exception):
    """The module does not compute what it claims to."""


def is_ours(ffn: AnySpec) -> bool:
    """Whether the network runs code of ffnbench's own alone."""
    network = ffn.ffn if isinstance(ffn, StackSpec) else ffn
    return not isinstance(network, ImportedSpec)


@dataclass(frozen=True, slots=True)
class CheckedCall:
    """What a check calls the subject with: an input, the gradient that flows back in
    training, and the numbers of the tokens whose rows are compared.
    """

    x: Tensor
    gradient: Tensor
    rows: Tensor

    def shortened(self) -> CheckedCall:
        """The call with the compared tokens alone, as one sequence (1, rows,
        d_model).
        """
        x, gradient = self.compared(self.x)[None], self.compared(self.gradient)[None]
        all_rows = torch.arange(len(self.rows), device=x.device)
        return CheckedCall(x.requires_grad_(self.x.requires_grad), gradient, all_rows)

    def compared(self, values: Tensor) -> Tensor:
        """A copy of the compared rows, (rows, d_model), of a tensor of the input's
        shape.
        """
        return values.detach().reshape(-1, self.x.shape[-1])[self.rows]


@dataclass(slots=True)
class Correctness:
    """Compares one case with float64. The error of the output is that of the last
    check, that of gradients is the largest so far; None where nothing is known.
    """

    case: Case
    seed: int
    output_error: float | None = None
    gradient_error: float | None = None
    _form: tuple[OwnModule | None, Proof | None] | None = None

    @property
    def checks_again(self) -> bool:
        """Whether a case is checked after its rounds too. Code of ffnbench's own that
        runs as it is written can't keep the answers of earlier calls.
        """
        return not is_ours(self.case.ffn) or not self.case.workload.eager

    def check(self, subject: Subject, salt: int, when: str = "") -> None:
        """Call what is timed on the input of a salt, and compare its answer with the
        reference. The message of a Mismatch begins with `when`.

        Raises Mismatch for an answer that is not finite, or whose error is larger than
        rounding explains.
        """
        # found only once: that calls the module, which may change what it answers later
        if self._form is None:
            self._form = self._form_of(subject)
        form, proof = self._form
        is_stack = isinstance(self.case.ffn, StackSpec)
        if not (form or is_stack or self.checks_again):
            return
        call = _checked_call(subject, form, salt)
        second = None if form or is_stack else self._second_instance(subject)
        answer, was_in_train_mode = _answer_of(subject, call)
        for what, values in answer.items():
            if not bool(torch.isfinite(values).all()):
                raise Mismatch(f"{when}the {what} is not finite")
        if form is not None:
            reference = "the float64 reference"
            if form is not subject.module:
                reference += f" of ffnbench's own {form.spec.form_name}"
            if proof is not None:
                answer = _by_own_names(answer, proof)
            self._compare_with_form(
                answer, form, call, f"{when}the {{}} differs from {reference}"
            )
        elif is_stack and was_in_train_mode is not None:
            expected = _expected_of_stack(subject.module, call, was_in_train_mode)
            message = f"{when}the {{}} differs from that of its blocks in float64"
            self._compare({OUTPUT: answer[OUTPUT]}, expected, message)
        elif second is not None and was_in_train_mode is not None:
            second.train(was_in_train_mode)
            message = f"{when}the {{}} differs from the module's own in float64"
            self._compare(answer, _expected_of_second(second, call), message)

    def _form_of(self, subject: Subject) -> tuple[OwnModule | None, Proof | None]:
        """The form that a module is, or is said to be, with the module's weights, None
        for none; and, where it is only said to be one, how its weights are laid out.

        Raises Mismatch where the weights do not fit that form.
        """
        module, ffn = subject.module, self.case.ffn
        if isinstance(module, OwnModule):
            return module, None
        if not isinstance(ffn, ImportedSpec) or ffn.like is None:
            return None, None
        from ffnbench.ffn.proof import proof_of_like

        try:
            proof = proof_of_like(module, ffn)
        except FfnbenchError as problem:
            raise Mismatch(problem.message) from problem
        return proof.form_on(dict(module.named_parameters())), proof

    def _second_instance(self, subject: Subject) -> nn.Module | None:
        """A second instance of the module with the weights of the first, which has seen
        no input; None where there can be none.

        Its buffers are new ones, since one of the first may hold an answer. In training
        they are copied, since training changes them.
        """
        work = self.case.workload
        try:
            seed_all(self.seed, self.case.ffn)
            device, dtype = torch_device(work.device), getattr(torch, work.dtype)
            second = build_module(self.case.ffn, device=device, dtype=dtype)
            state = subject.module.state_dict()
            if not subject.train:
                state = dict(subject.module.named_parameters())
            second.load_state_dict(state, strict=False)
        except Exception:  # code of the user's
            return None
        return second

    def _compare(
        self,
        answer: OutputAndGradients,
        references: Iterable[OutputAndGradients],
        message: str,
    ) -> None:
        """Compare an answer with one reference after the other, until the difference is
        no larger than rounding explains, and keep the errors of the nearest. The
        message of a Mismatch is `message` with what differs in the place of `{}`.

        Where an output is off by the tolerance, that share of its elements is on the
        other side of a kink, and their slopes are wrong. So a gradient may be off by
        the square root of the tolerance.
        """
        tolerance = self.case.workload.tolerance
        nearest: dict[str, float] = {}
        least = float("inf")
        for expected in references:
            errors = relative_errors(answer, expected)
            gradient = max(
                (errors[what] for what in errors if what != OUTPUT), default=0.0
            )
            times = max(errors[OUTPUT] / tolerance, gradient / sqrt(tolerance))
            if not nearest or times < least:
                nearest, least = errors, times
            if times <= 1:
                break
        if not nearest:
            return
        if not nearest[OUTPUT] <= tolerance:
            raise Mismatch(f"{message.format(OUTPUT)} by {nearest[OUTPUT]:.1e}")
        worst = max(nearest, key=lambda what: (what != OUTPUT, nearest[what]))
        if not nearest[worst] <= sqrt(tolerance):
            raise Mismatch(f"{message.format(worst)} by {nearest[worst]:.1e}")
        self._keep(nearest)

    def _compare_with_form(
        self,
        answer: OutputAndGradients,
        form: OwnModule,
        call: CheckedCall,
        message: str,
    ) -> None:
        """Compare an answer with that of a form. Where the weights are in fewer bits,
        the output may be as far from that of plain rounding to their format as plain
        rounding is from the exact one.
        """
        work, expected = self.case.workload, _expected_of_form(form, call)
        if work.weights is Weights.NONE:
            self._compare(answer, [expected], message)
            return
        from ffnbench.worker.plain_rounding import rounded_reference

        # int8-dynamic has one scale for all tokens; an imposed routing needs them all
        if work.weights is not Weights.INT8_DYNAMIC and isinstance(form, FeedForward):
            call = call.shortened()
        rounded = {OUTPUT: call.compared(rounded_reference(form, call.x, work))}
        errors = relative_errors(answer, expected)
        explained = relative_errors(rounded, expected)[OUTPUT] + LEAST_ERROR
        if relative_errors(answer, rounded)[OUTPUT] > explained:
            raise Mismatch(
                f"{message.format(OUTPUT)} by {errors[OUTPUT]:.1e}, which rounding to {work.weights} does not explain"
            )
        self._keep(errors)

    def _keep(self, errors: dict[str, float]) -> None:
        """Keep the errors of a check."""
        self.output_error = errors.pop(OUTPUT, None)
        if errors:
            self.gradient_error = max(*errors.values(), self.gradient_error or 0.0)


def _checked_call(subject: Subject, form: OwnModule | None, salt: int) -> CheckedCall:
    """A call on the input of a salt, with the rows that are compared. In training a
    gradient flows back from these rows alone.
    """
    x = subject.pool.renew(salt, 1)[0]
    rows = _rows_of(x, form)
    gradient = subject.grad
    if subject.train:
        is_compared = torch.zeros_like(x[..., :1])
        is_compared.view(-1)[rows] = 1
        gradient = subject.grads.renew(gradient_salt(salt), 1)[0] * is_compared
    return CheckedCall(x, gradient, rows)


def _rows_of(x: Tensor, form: OwnModule | None) -> Tensor:
    """The numbers of the tokens that are compared: spread over all tokens, the last one
    too.

    With a router they are those whose choice of experts is clearest, since rounding
    decides between near ties.
    """
    tokens = x.shape[:-1].numel()
    moe = form.spec.moe if form is not None else None
    if (
        form is None
        or moe is None
        or form.imposed is not None
        or moe.top_k == moe.outputs
    ):
        return _spread_tokens(tokens, ROWS, x)
    candidates = _spread_tokens(tokens, CANDIDATES, x)
    inputs = x.detach().reshape(-1, x.shape[-1])[candidates].double()
    logits = inputs @ form.router.weight.detach().double().T
    best = logits.topk(moe.top_k + 1).values
    clearest = (best[:, -2] - best[:, -1]).argsort(descending=True)
    return candidates[clearest[:ROWS]]


def _spread_tokens(tokens: int, count: int, x: Tensor) -> Tensor:
    """The numbers of so many tokens at most, from the first to the last, on the device
    of x.
    """
    return torch.linspace(0, tokens - 1, min(tokens, count)).round().long().to(x.device)


def _answer_of(
    subject: Subject, call: CheckedCall
) -> tuple[OutputAndGradients, bool | None]:
    """What the subject answers to a call, and whether it was in train mode then. A
    module that draws random numbers in train mode, as dropout does, is called again in
    eval mode. None in place of the mode where it draws numbers even so: then no other
    call can give the same.
    """
    answer, drew = _answer_and_draws(subject, call)
    in_train_mode = subject.train
    if drew and in_train_mode:
        subject.module.eval()
        answer, drew = _answer_and_draws(subject, call)
        subject.module.train()
        in_train_mode = False
    return answer, None if drew else in_train_mode


def _answer_and_draws(
    subject: Subject, call: CheckedCall
) -> tuple[OutputAndGradients, bool]:
    """What the subject answers to a call, and whether it drew random numbers."""
    accelerator = subject.accelerator
    state = accelerator.rng_state if accelerator else torch.get_rng_state
    before = state()
    subject.clear(call.x)
    y = subject.call(call.x, call.gradient)
    answer = _results_of_call(call, y, subject.module)
    subject.clear(call.x)
    return answer, not torch.equal(before, state())


def _results_of_call(
    call: CheckedCall, y: Tensor, module: nn.Module
) -> OutputAndGradients:
    """What a call of a module gave: the output `y`, and gradients where x has one; one
    that is missing is zero, as an optimiser takes it.
    """
    answer = {OUTPUT: call.compared(y)}
    if call.x.requires_grad:
        answer[INPUT_GRADIENT] = call.compared(_gradient_or_zero(call.x))
        for name, weight in module.named_parameters():
            if weight.requires_grad:
                answer[gradient_of(name)] = _gradient_or_zero(weight).clone()
    return answer


def _gradient_or_zero(tensor: Tensor) -> Tensor:
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad


def gradient_of(name: str) -> str:
    """The key of the gradient of a weight in OutputAndGradients."""
    return f"gradient of {name}"


def _by_own_names(answer: OutputAndGradients, proof: Proof) -> OutputAndGradients:
    """The answer with the gradients of the form's weights in place of those of the
    module's own.
    """
    named = {what: answer[what] for what in (OUTPUT, INPUT_GRADIENT) if what in answer}
    of_weights = {
        what.removeprefix(gradient_of("")): values
        for what, values in answer.items()
        if what not in named
    }
    if of_weights:
        of_form = proof.of(of_weights)
        named |= {gradient_of(name): values for name, values in of_form.items()}
    return named


def _expected_of_form(form: OwnModule, call: CheckedCall) -> OutputAndGradients:
    """What the reference of a form gives for the rows of a call, in float64. All
    weights of the form require gradients afterwards, even if the call does not train.
    """
    short = call.shortened()
    chosen = None
    if form.spec.moe:
        with torch.no_grad():
            chosen = form.choose(call.x.detach().reshape(-1, call.x.shape[-1]))
            chosen = chosen[call.rows]
    trains = call.x.requires_grad
    x = short.x.detach().double().requires_grad_(trains)
    weights = {
        name: weight.requires_grad_() for name, weight in form.named_parameters()
    }
    with torch.set_grad_enabled(trains):
        y = form.reference(x, chosen)
    answer = {OUTPUT: y.detach()[0]}
    if trains:
        of_x, *of_weights = torch.autograd.grad(
            y, [x, *weights.values()], short.gradient.double(), materialize_grads=True
        )
        answer[INPUT_GRADIENT] = of_x[0]
        answer |= zip(map(gradient_of, weights), of_weights, strict=True)
    return answer


def _expected_of_stack(
    stack: nn.Module, call: CheckedCall, in_train_mode: bool
) -> Iterator[OutputAndGradients]:
    """What the blocks of a stack give one after another, in float64 and in their own
    dtype: in float64 a router may choose otherwise. A dtype that they can't be run in
    is left out.
    """
    for dtype in (torch.float64, call.x.dtype):
        y = call.x.detach().to(dtype)
        try:
            with torch.no_grad():
                for block in stack.children():
                    y = deepcopy(block).to(dtype).train(in_train_mode)(y)
        except Exception:  # code of the user's, as in _expected_of_second
            continue
        yield {OUTPUT: call.compared(y)}


def _expected_of_second(
    second: nn.Module, call: CheckedCall
) -> Iterator[OutputAndGradients]:
    """What a second instance gives, in three ways: in float64 for the compared rows
    alone; in float64 for the whole input, for a module in which a token meets others;
    and in its own dtype. A way that can't be run is left out.
    """
    for tried, dtype in (
        (call.shortened(), torch.float64),
        (call, torch.float64),
        (call, call.x.dtype),
    ):
        trains = tried.x.requires_grad
        try:
            module = deepcopy(second).to(dtype)  # a copy that has seen no input
            x = tried.x.detach().to(dtype, copy=True).requires_grad_(trains)
            anew = CheckedCall(x, tried.gradient.to(dtype), tried.rows)
            with torch.set_grad_enabled(trains):
                y = module(x)
            if trains:
                y.backward(anew.gradient)
            answer = _results_of_call(anew, y, module)
        except Exception:
            # a kernel for some dtypes or shapes alone, a lock that can't be copied
            continue
        yield answer


def relative_errors(
    answer: OutputAndGradients, expected: OutputAndGradients
) -> dict[str, float]:
    """How far the output, and each gradient that both have, is from what is expected:
    the root mean square of the difference over that of what is expected.
    """
    scales = {what: _rms(expected[what]) for what in expected if what in answer}
    of_weights = [what for what in scales if what not in (OUTPUT, INPUT_GRADIENT)]
    least = LEAST_SCALE * max((scales[what] for what in of_weights), default=0.0)
    for what in of_weights:
        scales[what] = max(scales[what], least)
    return {
        what: _rms(answer[what].double() - expected[what].double()) / (scale or 1.0)
        for what, scale in scales.items()
    }


def _rms(values: Tensor) -> float:
    """The root of the mean square of all elements; 0 where there are none."""
    if not values.numel():
        return 0.0
    return float(values.double().square().mean().sqrt())

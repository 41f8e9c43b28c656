"""Is what is timed the right function? Outputs, and gradients in training, held against
float64. Needs torch.

A module that is one of ffnbench's forms, or is said to be one (`@like`), is held
against that form, which is written apart from the module that is timed
(ffn/modules.py). Any other is held against a second instance of itself in float64, and
where that differs or can't be run, in its own dtype: a router may choose otherwise
between near ties.

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

from ffnbench.choices import Weights
from ffnbench.common.errors import FfnbenchError
from ffnbench.device.environment import torch_device
from ffnbench.ffn.modules import OwnModule
from ffnbench.ffn.spec import ActivationSpec, AttentionSpec, ImportedSpec
from ffnbench.plan import AnySpec, Case
from ffnbench.worker.backends.building import build_module, load_base_weights, seed_all
from ffnbench.worker.subject import Subject, gradient_salt

if TYPE_CHECKING:
    from ffnbench.ffn.like import Layout

ROWS = 16  # of an input, spread over it: those that are compared
# of tokens with experts, of which those with the clearest choice are compared
CANDIDATES = 256
# of the largest gradient of a weight: a smaller one may be what rounding leaves of a
# zero
LEAST_SCALE = 0.01
OUTPUT, INPUT_GRADIENT = "output", "gradient of the input"
# rows of the output and of the input's gradient, gradients of weights, by what they are
OutputAndGradients = dict[str, Tensor]


class Mismatch(Exception):
    """The module does not compute what it claims to."""


def is_ours(ffn: AnySpec) -> bool:
    """Whether ffnbench itself has the code of it."""
    if isinstance(ffn, ActivationSpec):
        return not ffn.own
    return not isinstance(ffn, ImportedSpec)


@dataclass(frozen=True, slots=True)
class CheckedCall:
    """What is called: an input, the gradient that flows back in training, and the
    tokens whose rows are compared.
    """

    x: Tensor
    gradient: Tensor
    rows: Tensor

    def shortened(self) -> CheckedCall:
        """A call with these tokens alone, as one short sequence (1, rows, d_model)."""
        x, gradient = self.compared(self.x)[None], self.compared(self.gradient)[None]
        every = torch.arange(len(self.rows), device=x.device)
        return CheckedCall(x.requires_grad_(self.x.requires_grad), gradient, every)

    def compared(self, values: Tensor) -> Tensor:
        """Their rows (rows, d_model), copied from what is of the input's shape."""
        return values.detach().reshape(-1, self.x.shape[-1])[self.rows]


@dataclass(slots=True)
class Correctness:
    """Holds one case against float64. The error of the output is that of the last
    input, the others are the largest so far; None where nothing is known.

    `weights` is the folder with a base's, which the case has taken over.
    """

    case: Case
    seed: int
    weights: str = ""
    output_error: float | None = None
    largest_error: float | None = None
    gradient_error: float | None = None
    _form: tuple[OwnModule | None, Layout | None] | None = None

    @property
    def checks_again(self) -> bool:
        """Whether a case is checked after its rounds too: what is ours and runs as it
        is written keeps no answers.
        """
        return not is_ours(self.case.ffn) or not self.case.workload.eager

    def check(self, subject: Subject, salt: int, when: str = "") -> None:
        """Call what is timed on the input of a salt, and hold its answer against the
        reference. `when` is said first.

        Raises Mismatch for an answer that is not finite, or whose error rounding does
        not explain.
        """
        # once: to find it calls the module, which then may answer a later call anew
        if self._form is None:
            self._form = self._form_of(subject)
        form, layout = self._form
        if form is not None:
            self._check_against_form(form, layout, subject, salt, when)
        elif self.checks_again:
            self._check_against_second(subject, salt, when)

    def _check_against_form(
        self,
        form: OwnModule,
        layout: Layout | None,
        subject: Subject,
        salt: int,
        when: str,
    ) -> None:
        call = _call_of(subject, form, salt)
        answer, _ = _answer_of(subject, call)
        _refuse_infinite(answer, when)
        reference = "the float64 reference"
        if form is not subject.module:
            reference += f" of ffnbench's own {form.spec.form}"
        if layout is not None:
            answer = _as_laid_out(answer, layout)
        self._compare(
            answer, [_of_form(form, call)], f"{when}the {{}} differs from {reference}"
        )

    def _check_against_second(self, subject: Subject, salt: int, when: str) -> None:
        call = _call_of(subject, None, salt)
        second = self._second(subject)
        answer, was_in_train_mode = _answer_of(subject, call)
        _refuse_infinite(answer, when)
        if second is not None and was_in_train_mode is not None:
            second.train(was_in_train_mode)
            expected = _of_second(second, call)
            self._compare(
                answer,
                expected,
                f"{when}the {{}} differs from the module's own in float64",
            )

    def _form_of(self, subject: Subject) -> tuple[OwnModule | None, Layout | None]:
        """The form that a module is, or is said to be, on its own weights; how these
        are laid out, if it is said.

        Raises Mismatch where the weights are no such form's.
        """
        module, ffn, x = subject.module, self.case.ffn, subject.x[:1, :ROWS]
        if isinstance(module, OwnModule):
            return module, None
        if not isinstance(ffn, ImportedSpec) or ffn.like is None:
            return None, None
        from ffnbench.ffn.like import layout_as_said, on_weights

        try:
            layout = layout_as_said(module, ffn, x)
        except FfnbenchError as problem:
            raise Mismatch(problem.message) from problem
        return on_weights(layout, module), layout

    def _second(self, subject: Subject) -> nn.Module | None:
        """A second instance with the weights of the first, which has seen no input;
        None where it can't be had.

        Its buffers are as they were built, for one may hold an answer; in training,
        which moves them, they are copied.
        """
        work = self.case.workload
        try:
            seed_all(self.seed, self.case.ffn)
            second = build_module(
                self.case.ffn,
                device=torch_device(work.device),
                dtype=getattr(torch, work.dtype),
            )
            if self.weights:
                load_base_weights(self.weights, second)
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
        """Hold an answer against one reference after the other, until one is as near as
        rounding explains.

        The `message` of a Mismatch has a place for what differs.
        """
        tolerance = self.case.workload.tolerance
        # a class of error for weights in few bits is that of all rows together
        by_row = self.case.workload.weights is Weights.NONE
        differences = []
        for expected in references:
            differences.append(
                difference_from_expected(answer, expected, by_row=by_row)
            )
            if differences[-1].over(tolerance) <= 1:
                break
        if not differences:
            return
        nearest = min(differences, key=lambda tried: tried.over(tolerance))
        if nearest.output > tolerance:
            raise Mismatch(f"{message.format(OUTPUT)} by {nearest.output:.1e}")
        if nearest.over(tolerance) > 1:
            raise Mismatch(f"{message.format(nearest.of)} by {nearest.gradient:.1e}")
        self.output_error = nearest.frobenius
        self.largest_error = max(nearest.largest, self.largest_error or 0.0)
        if nearest.gradient is not None:
            self.gradient_error = max(nearest.gradient, self.gradient_error or 0.0)


def _refuse_infinite(answer: OutputAndGradients, when: str) -> None:
    """Raise Mismatch for an answer that is not finite."""
    for what, values in answer.items():
        if not bool(torch.isfinite(values).all()):
            raise Mismatch(f"{when}the {what} is not finite")


def _call_of(subject: Subject, form: OwnModule | None, salt: int) -> CheckedCall:
    """A call on the input of a salt, with the rows that are compared. In training a
    gradient flows back from these rows alone.
    """
    x = subject.pool.renew(salt, 1)[0]
    rows = _rows_of(x, form)
    gradient = subject.grad
    if subject.train:
        is_compared = torch.zeros(
            x.shape[:-1].numel(), 1, dtype=x.dtype, device=x.device
        )
        is_compared[rows] = 1
        gradient = subject.grads.renew(gradient_salt(salt), 1)[0] * is_compared.view(
            *x.shape[:-1], 1
        )
    return CheckedCall(x, gradient, rows)


def _rows_of(x: Tensor, form: OwnModule | None) -> Tensor:
    """The numbers of the tokens that are compared: spread over all tokens, the last one
    too.

    Of attention they are the first; with experts those whose choice is clearest, for
    rounding decides between near ties.
    """
    tokens = x.shape[:-1].numel()
    if form is not None and isinstance(form.spec, AttentionSpec):
        return torch.arange(min(ROWS, x.shape[1]), device=x.device)
    if form is None or not _routes_by_itself(form):
        return _spread_tokens(tokens, ROWS, x)
    candidates = _spread_tokens(tokens, CANDIDATES, x)
    inputs = x.detach().reshape(-1, x.shape[-1])[candidates].double()
    logits = inputs @ form.router.weight.detach().double().T
    best = logits.topk(form.moe.top_k + 1).values
    clearest = (best[:, -2] - best[:, -1]).argsort(descending=True)
    return candidates[clearest[:ROWS]]


def _routes_by_itself(form: OwnModule) -> bool:
    """Whether a token is at some of the form's experts alone, by its router."""
    moe = form.spec.moe
    return moe is not None and form.imposed is None and moe.top_k < moe.experts


def _spread_tokens(tokens: int, count: int, x: Tensor) -> Tensor:
    """The numbers of so many tokens at most, from the first to the last, on the device
    of x.
    """
    return torch.linspace(0, tokens - 1, min(tokens, count)).round().long().to(x.device)


def _answer_of(
    subject: Subject, call: CheckedCall
) -> tuple[OutputAndGradients, bool | None]:
    """What is timed gives for a call, and whether it was in train mode: what draws
    random numbers there, as dropout does, is called in eval mode. None where it draws
    numbers even so: then no second call is like it.
    """
    answer, drew = _called(subject, call)
    if not drew:
        return answer, subject.train
    if not subject.train:
        return answer, None
    subject.module.eval()
    try:
        answer, drew = _called(subject, call)
    finally:
        subject.module.train()
    return answer, None if drew else False


def _called(subject: Subject, call: CheckedCall) -> tuple[OutputAndGradients, bool]:
    """The answer of what is timed, and whether it drew random numbers."""
    before = _random_state(subject)
    subject.clear(call.x)
    y = subject.call(call.x, call.gradient)
    answer = _results_of_call(call, y, subject.module)
    subject.clear(call.x)
    return answer, not torch.equal(before, _random_state(subject))


def _random_state(subject: Subject) -> Tensor:
    """The state of the generator on the subject's device."""
    if subject.accelerator is None:
        return torch.get_rng_state()
    return subject.accelerator.rng_state()


def _results_of_call(
    call: CheckedCall, y: Tensor, module: nn.Module
) -> OutputAndGradients:
    """What a call of a module gave."""
    answer = {OUTPUT: call.compared(y)}
    if call.x.requires_grad:
        answer[INPUT_GRADIENT] = call.compared(_gradient_or_zero(call.x))
        for name, weight in module.named_parameters():
            if weight.requires_grad:
                answer[gradient_of(name)] = _gradient_or_zero(weight).clone()
    return answer


def _gradient_or_zero(tensor: Tensor) -> Tensor:
    """A gradient that did not come is zero, as an optimiser takes it."""
    if tensor.grad is None:
        return torch.zeros_like(tensor)
    return tensor.grad


def gradient_of(name: str) -> str:
    """What the gradient of a weight is called."""
    return f"gradient of {name}"


def _as_laid_out(answer: OutputAndGradients, layout: Layout) -> OutputAndGradients:
    """The answer with the gradients of the form's weights in place of those of the
    module's own.
    """
    laid_out = {
        what: answer[what] for what in (OUTPUT, INPUT_GRADIENT) if what in answer
    }
    for name, piece in layout.pieces.items():
        own = gradient_of(piece.name)
        if own in answer:
            laid_out[gradient_of(name)] = piece.of(answer[own])
    return laid_out


def _of_form(form: OwnModule, call: CheckedCall) -> OutputAndGradients:
    """What a form should give for the rows of a call, written apart from the module
    that is timed.
    """
    short = call.shortened()
    if isinstance(form.spec, AttentionSpec):
        from ffnbench.ffn.attention_module import attention_reference

        return {OUTPUT: attention_reference(form, short.x)[0]}
    chosen = None
    if form.spec.moe:
        with torch.no_grad():
            chosen = form.choose(call.x.detach().reshape(-1, call.x.shape[-1]))[
                call.rows
            ]
    x = short.x.detach().double().requires_grad_(call.x.requires_grad)
    weights = {
        name: weight.requires_grad_() for name, weight in form.named_parameters()
    }
    with torch.set_grad_enabled(x.requires_grad):
        y = form.reference(x, chosen)
    answer = {OUTPUT: y.detach()[0]}
    if x.requires_grad:
        of_x, *of_weights = torch.autograd.grad(
            y, [x, *weights.values()], short.gradient.double(), materialize_grads=True
        )
        answer[INPUT_GRADIENT] = of_x[0]
        for name, gradient in zip(weights, of_weights, strict=True):
            answer[gradient_of(name)] = gradient
    return answer


def _of_second(second: nn.Module, call: CheckedCall) -> Iterator[OutputAndGradients]:
    """What a second instance gives: in float64 for the rows alone, in float64 for the
    whole input, where a token meets others, and in its own dtype. What can't be run is
    passed over.
    """
    tries = (
        (call.shortened(), torch.float64),
        (call, torch.float64),
        (call, call.x.dtype),
    )
    for tried, dtype in tries:
        try:
            module = deepcopy(second).to(dtype)  # each has seen no input
            x = (
                tried.x.detach()
                .to(dtype, copy=True)
                .requires_grad_(tried.x.requires_grad)
            )
            anew = CheckedCall(x, tried.gradient.to(dtype), tried.rows)
            with torch.set_grad_enabled(x.requires_grad):
                y = module(x)
            if x.requires_grad:
                y.backward(anew.gradient)
            answer = _results_of_call(anew, y, module)
        except Exception:
            # a kernel for some dtypes or shapes alone, a lock that can't be copied
            continue
        yield answer


@dataclass(frozen=True, slots=True)
class Difference:
    """Relative errors of an output, by its worst row or of all rows together, and of a
    gradient, the worst `of` all; None without gradients.

    `frobenius` is that of all rows of the output together, `largest` that of one
    element, relative to the root mean square of all.
    """

    output: float
    frobenius: float = 0.0
    largest: float = 0.0
    gradient: float | None = None
    of: str = ""

    def over(self, tolerance: float) -> float:
        """How many times what rounding explains. An output that is off by the tolerance
        is on the other side of a kink in as large a share of the elements, whose slopes
        are wrong then: so a gradient is off by its square root.
        """
        return max(self.output / tolerance, (self.gradient or 0.0) / sqrt(tolerance))


def difference_from_expected(
    answer: OutputAndGradients, expected: OutputAndGradients, *, by_row: bool = True
) -> Difference:
    """How far an answer is from what is expected, in what both have."""
    errors_of_elements = answer[OUTPUT].double() - expected[OUTPUT].double()
    size = _rms(expected[OUTPUT]) or 1.0
    frobenius = _rms(errors_of_elements) / size
    output = row_error(answer[OUTPUT], expected[OUTPUT]) if by_row else frobenius
    largest = float(errors_of_elements.abs().max()) / size
    gradients = [what for what in expected if what != OUTPUT and what in answer]
    scales = {what: _rms(expected[what]) for what in gradients}
    weights = [what for what in gradients if what != INPUT_GRADIENT]
    least = LEAST_SCALE * max((scales[what] for what in weights), default=0.0)
    for what in weights:
        scales[what] = max(scales[what], least)
    errors = {}
    for what in gradients:
        error = _rms(answer[what].double() - expected[what].double())
        errors[what] = error / (scales[what] or 1.0)
    worst = max(errors, key=errors.__getitem__, default="")
    return Difference(
        output=output,
        frobenius=frobenius,
        largest=largest,
        gradient=errors.get(worst),
        of=worst,
    )


def _rms(values: Tensor) -> float:
    """The root of the mean square; 0 of nothing."""
    if not values.numel():
        return 0.0
    return float(values.double().square().mean().sqrt())


def row_error(y: Tensor, expected: Tensor) -> float:
    """The largest error of a row, relative to its norm or to the mean one of all rows,
    whichever is larger.
    """
    y, expected = y.double(), expected.double()
    norms = expected.norm(dim=-1)
    scale = norms.clamp_min(float(norms.square().mean().sqrt()))
    errors = (y - expected).norm(dim=-1)
    relative = torch.where(scale > 0, errors / scale, errors)
    return float(relative.nan_to_num(float("inf")).max())

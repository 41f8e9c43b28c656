"""Outputs of timed calls, held against what they should be, in a process that times nothing. Needs torch.

A module is built again from its seed. One of ffnbench's forms, or one that `@like` or a config says is such a form, is
held against the form in float64, whatever state it keeps; what draws random numbers in train mode apart. Any other is
held against itself in float64, and where that differs or can't be run, in its own dtype: a choice between near ties,
of a router, may fall otherwise in float64. Rows of the input are enough where a module treats each token by itself;
else, and for gradients, the whole input is run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from math import isfinite
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from ffnbench.backends.backend import changed
from ffnbench.backends.building import as_own, build, carried, impose_routing, seed_all
from ffnbench.device.accelerator import accelerator_of, place_of
from ffnbench.ffn.attention import AttentionSpec
from ffnbench.ffn.dtypes import DTYPES
from ffnbench.ffn.experts import MixtureOfExperts
from ffnbench.ffn.like import Layout, layout_of, on_weights
from ffnbench.ffn.modules import OwnForm, reference_output
from ffnbench.ffn.moe import Dispatch
from ffnbench.ffn.spec import ActivationSpec, FFNSpec, ImportedSpec
from ffnbench.plan import AnySpec, Case
from ffnbench.worker.evidence import LEAST_GRADIENT, unpacked
from ffnbench.worker.inputs import Pool, gradient_salt
from ffnbench.worker.subject import subject_of

Evidence = dict[str, Any]  # what Witness.told gives
Rows = dict[str, Tensor]  # of the output and of gradients, by what they are
OUTPUT, INPUT_GRADIENT = "output", "gradient of the input"
AT_ONCE = 16  # pieces of evidence whose rows are run together
LOOSER = 0.1  # times the error of a gradient in a narrow dtype: jumps of slopes are many
CANCELS = 8  # roundings of the largest gradient of a weight: a smaller one says nothing
NEAR = 16  # roundings: of experts whose scores differ by no more, either may be chosen


class Judge:
    """One case, built anew. `weights` is the folder with a base's. Raises FfnbenchError where it can't be built."""

    def __init__(self, case: Case, seed: int, weights: str) -> None:
        work = case.workload
        self._case, self._train, self._seed = case, work.train, seed
        self._dtype, self._tolerance = getattr(torch, work.dtype), work.tolerance
        module = self._built()
        subject = subject_of(module, work, case.ffn.d_model, seed)
        self._pool, self._grads = Pool(subject.x, train=False), Pool(subject.grad, train=False)
        self._wrong = ""  # what is known of it, whatever its outputs are
        if isinstance(case.ffn, ImportedSpec):
            again = dict(self._built().named_parameters())
            if differ := [n for n, p in module.named_parameters() if not weights and not torch.equal(p, again[n])]:
                self._wrong = f"its {differ[0]} differs between two instances with the same seed"
            del again
        if weights:
            carried(weights, module)
        first = subject.x.detach()[:1, :16]
        self._layout: Layout | None = None  # which of its weights are which of the form that it is said to be
        self._ours: OwnForm | None
        if isinstance(case.ffn, ImportedSpec) and case.ffn.like is not None:
            self._layout = layout_of(module, case.ffn.like, first)
            self._ours = on_weights(self._layout, dict(module.named_parameters()))
            if (error := self._error_of_other_weights(first)) > self._tolerance:
                self._wrong = (
                    f"with other weights it differs from {self._ours.spec.name} by {error:.1e}: it is "
                    "right for its own weights only"
                )
        else:
            self._ours = module if isinstance(module, OwnForm) else as_own(module, case.ffn, first)
        # by its name; "" where none is known
        self.form = _name_of(case.ffn) if self._ours is None else self._ours.spec.name
        self._router = self._ours if isinstance(self._ours, MixtureOfExperts) else None
        if self._router is not None:
            impose_routing(self._router, work, seed)
        self._imposed: Tensor | None = None if self._router is None else self._router.imposed
        self._plain = module
        self._module = changed(module, case.ffn, work.backend).train(self._train)  # as its backend has it
        self._by_rows = True  # as long as rows alone have given the right output
        self._buffers = {name: b.clone() for name, b in self._module.named_buffers() if b.is_floating_point()}

    def _built(self) -> nn.Module:
        seed_all(self._seed, self._case.ffn)
        return build(_run_eagerly(self._case.ffn), device=place_of(self._case.workload.device), dtype=self._dtype)

    def _error_of_other_weights(self, x: Tensor) -> float:
        """How far a module is from the form that it is said to be once other weights are in their places: what is right
        for its own alone, such as zeros that it leaves out, is another function."""
        assert self._layout is not None
        module = self._built().eval()
        with torch.no_grad():
            for weight in module.parameters():
                if weight.numel() > 1:
                    weight.normal_(std=weight.shape[-1] ** -0.5 if weight.ndim > 1 else 0.1)
            weights = {name: weight.detach().clone() for name, weight in module.named_parameters()}
            return row_error(module(x)[0], reference_output(on_weights(self._layout, weights), x)[0])

    def _by_form(self, one: Evidence) -> bool:
        """Whether the form that a module is said to be tells what it should have given. In train mode what draws
        numbers may drop out, which the form does not.
        """
        return self._layout is not None and not (self._train and "state" in one)

    @cached_property
    def _form(self) -> OwnForm | None:
        """Our form of it in float64, where it has one."""
        return None if self._ours is None else deepcopy(self._ours).double().train(self._train)

    @cached_property
    def _exact(self) -> nn.Module | None:
        """The module in float64; None where it can't be copied, or has a kernel for some dtypes alone."""
        if self._ours is self._module:
            return self._form
        try:
            return deepcopy(self._module).double().train(self._train)
        except Exception:
            return None

    def judge(self, evidence: Sequence[Evidence], seconds: float) -> dict[str, Any]:
        """The largest error of a row, and what of; how many outputs were judged and how many with gradients.

        Takes about so many seconds at most, and judges one piece of evidence at least.
        """
        start, found = perf_counter(), Differences()

        def over() -> bool:
            return perf_counter() - start > seconds and found.outputs > 0

        drew = [one for one in evidence if "state" in one and not self._by_form(one)]
        whole = [(one, False) for one in drew]  # and whether its output has been judged
        plain = [one for one in evidence if one not in drew]
        if self._case.workload.compiled and whole:
            whole, found.why = [], "compiled code draws random numbers that can't be drawn again"
        while plain and self._by_rows and not over():
            some, plain = plain[:AT_ONCE], plain[AT_ONCE:]
            right = self._rows(some, found)
            found.outputs += right * len(some)
            whole += [(one, right) for one in some if self._train or not right]
        if not self._by_rows:
            whole += [(one, False) for one in plain]
        for one, judged in whole:
            if over() and (found.gradients or not self._train):
                break
            found.outputs += self._whole(one, found) and not judged
        finite = found.error is None or isfinite(found.error)
        return asdict(found) | {
            "error": found.error if finite else None,
            "finite": finite,
            "tolerance": self._tolerance,
            "form": "" if found.by_itself else self.form,
            "wrong": self._wrong,
        }

    def _rows(self, some: list[Evidence], found: Differences) -> bool:
        """Run the rows alone; whether that tells. A form's tells always, another module's where it is right."""
        x = torch.cat([self._rows_in(one) for one in some])
        y = torch.cat([self._told(one["y"], len(one["rows"])) for one in some])
        choices = [choice[one["rows"]] for one in some if (choice := self._choice(one)) is not None]
        try:
            with torch.no_grad():
                if isinstance(self._form, MixtureOfExperts):
                    self._form.imposed = torch.cat(choices)
                if self._form is not None:
                    expected = reference_output(self._form, x[None])[0]
                elif self._exact is not None:
                    self._reset(self._exact)
                    expected = self._exact(x[None].double())[0]
                else:
                    return False
        except Exception:  # a module that takes whole inputs only
            self._by_rows = False
            return False
        if y.shape != expected.shape:
            self._by_rows = False
            return False
        error = row_error(y, expected)
        if self._form is None and not error <= self._tolerance:
            self._by_rows = False
            apart = (y.double() - expected.double()).norm(dim=-1).nan_to_num(float("inf"))
            worst = dict(zip(map(id, some), apart.split([len(one["rows"]) for one in some]), strict=True))
            some.sort(key=lambda one: -float(worst[id(one)].max()))  # there may be time for the first alone
            return False
        if choices and not error <= self._tolerance and self._case.workload.routing is None:
            kept = ~self._tied(x)
            error = row_error(y[kept], expected[kept])
        found.add(error, OUTPUT)
        return True

    def _rows_in(self, one: Evidence) -> Tensor:
        rows = torch.tensor(one["rows"], device=place_of(self._case.workload.device))
        return self._pool.rows(one["salt"], one["calls"], one["call"], rows)

    def _choice(self, one: Evidence) -> Tensor | None:
        """The experts of all tokens: those that were imposed, or those that the router chooses in its own dtype."""
        if self._router is None or self._imposed is not None:
            return self._imposed
        x = self._pool.input(one["salt"], one["calls"], one["call"])
        with torch.no_grad():
            return self._router.choose(x.reshape(-1, x.shape[-1]))

    def _tied(self, x: Tensor) -> Tensor:
        """Rows whose last expert and the next best are so near that rounding may choose either."""
        assert isinstance(self._form, MixtureOfExperts)
        moe = self._form.moe
        logits = self._form.router(x.double())
        best = logits.topk(min(moe.top_k + 1, moe.experts), dim=-1).values
        near = NEAR * torch.finfo(self._dtype).eps * logits.abs().amax(-1)
        return torch.as_tensor((best[:, -2] - best[:, -1] <= near) if moe.groups == 1 else torch.ones_like(near) > 0)

    def _whole(self, one: Evidence, found: Differences) -> bool:
        """Run the whole input: in float64, and where that differs or can't be, in the dtype. Whether either could."""
        told: Rows = {OUTPUT: self._told(one["y"], len(one["rows"]))}
        if "dx" in one:
            told[INPUT_GRADIENT] = self._told(one["dx"], len(one["rows"]))
        for name, gradient in one.get("dw", {}).items():
            told[f"gradient of {name}"] = self._told(gradient["values"], len(gradient["rows"]))
        errors: dict[str, float] = {}
        for module, dtype in ((self._exact, torch.float64), (self._module, self._dtype)):
            if module is None or (errors and (self._by_form(one) or max(errors.values()) <= self._tolerance)):
                continue
            try:
                said = self._by_form(one) and module is self._exact
                expected = self._as_said(one) if said else self._expected(module, dtype, one)
            except Exception as problem:
                found.why = f"a second instance of it can't be run: {type(problem).__name__}: {problem}"[:200]
                continue
            now = {
                what: self._error(what, told[what], expected[what]) for what in self._shown_in(expected) if what in told
            }
            errors = min(errors or now, now, key=lambda one: max(one.values()))
        if errors and max(errors.values()) > self._tolerance and self._train and self._moves(self._module):
            found.why, errors = "training changes its buffers, so its calls can't be repeated", {}
        if not errors:
            return False
        for what, error in errors.items():
            found.add(error, what)
        found.gradients += "dx" in one
        found.by_itself |= self._layout is not None and not self._by_form(one)
        return True

    def _error(self, what: str, values: Tensor, expected: Tensor) -> float:
        """Of an output the largest error of a row. A slope jumps where rounding falls on the other side of a kink: so
        of a gradient in float32 the second largest, and in narrow dtypes that of all rows together, and LOOSER.
        """
        if what == OUTPUT:
            return row_error(values, expected)
        if self._tolerance <= DTYPES.get("float32").tolerance:
            return row_error(values, expected, but=1 if len(values) > 2 else 0)
        return row_error(values.reshape(1, -1), expected.reshape(1, -1)) * LOOSER

    def _shown_in(self, expected: Rows) -> list[str]:
        """What is large enough that rounding does not hide it: not a gradient that is 0 but for what cancels."""
        sizes = {what: float(rows.double().square().mean().sqrt()) for what, rows in expected.items() if rows.numel()}
        weights = [size for what, size in sizes.items() if what not in (OUTPUT, INPUT_GRADIENT)]
        least = CANCELS * torch.finfo(self._dtype).eps * max(weights, default=0.0)
        return [what for what, size in sizes.items() if what in (OUTPUT, INPUT_GRADIENT) or size > least]

    def _expected(self, module: nn.Module, dtype: torch.dtype, one: Evidence) -> Rows:
        """Rows of the output and of all gradients of an instance, as they were drawn from the timed call."""
        self._reset(module)
        x = self._pool.input(one["salt"], one["calls"], one["call"]).to(dtype).requires_grad_(self._train)
        if isinstance(module, MixtureOfExperts):
            module.imposed = self._choice(one)
        if "state" in one:
            state = unpacked(one["state"], torch.uint8, (-1,))
            if (accelerator := accelerator_of(self._case.workload.device)) is not None:
                accelerator.set_rng_state(state)
            else:
                torch.random.set_rng_state(state)
        module.zero_grad(set_to_none=True)
        with torch.set_grad_enabled(self._train):
            y = module(x)
        return self._gathered(one, x, y, dict(module.named_parameters()))

    def _as_said(self, one: Evidence) -> Rows:
        """Rows of the form that `@like` names, in float64: gradients flow into weights that lie as theirs do."""
        assert self._layout is not None
        assert self._form is not None
        theirs = {name: p.detach().double().requires_grad_() for name, p in self._plain.named_parameters()}
        x = self._pool.input(one["salt"], one["calls"], one["call"]).double().requires_grad_(self._train)
        with torch.set_grad_enabled(self._train):
            y = torch.func.functional_call(self._form, self._layout.of(theirs), (x,))
        return self._gathered(one, x, y, theirs)

    def _gathered(self, one: Evidence, x: Tensor, y: Tensor, weights: Mapping[str, Tensor]) -> Rows:
        """Rows of the output, and in train mode those of the gradients that were drawn."""
        width = self._pool.width
        rows = {OUTPUT: y.detach().reshape(-1, width)[one["rows"]]}
        if "dw" not in one:
            return rows
        gradient = self._grads.input(gradient_salt(one["salt"]), one["calls"], one["call"])
        y.backward(gradient.view(y.shape).to(y.dtype))
        assert x.grad is not None
        rows[INPUT_GRADIENT] = x.grad.reshape(-1, width)[one["rows"]]
        for name, weight in weights.items():
            if name in one["dw"] and weight.numel() >= LEAST_GRADIENT:
                gradient = torch.zeros_like(weight) if weight.grad is None else weight.grad
                wide = weight.shape[-1] if weight.ndim else 1
                rows[f"gradient of {name}"] = gradient.reshape(-1, wide)[one["dw"][name]["rows"]]
            weight.grad = None
        return rows

    def _reset(self, module: nn.Module) -> None:
        """The buffers as they were when it was built."""
        for name, value in module.named_buffers():
            if name in self._buffers:
                value.copy_(self._buffers[name])

    def _moves(self, module: nn.Module) -> bool:
        """Whether its last call has moved a buffer."""
        named = module.named_buffers()
        return any(
            not torch.equal(value, self._buffers[name].to(value)) for name, value in named if name in self._buffers
        )

    def _told(self, text: str, rows: int) -> Tensor:
        return unpacked(text, self._dtype, (rows, -1))


@dataclass(slots=True)
class Differences:
    """The largest error of a row so far, and what of; how many outputs were judged, and how many with gradients."""

    outputs: int = 0
    gradients: int = 0
    error: float | None = None
    what: str = ""
    why: str = ""
    by_itself: bool = False  # though it is said to be a form

    def add(self, error: float, what: str) -> None:
        if self.error is None or error > self.error:
            self.error, self.what = error, what


def row_error(y: Tensor, expected: Tensor, but: int = 0) -> float:
    """The largest error of a row but so many, relative to its norm or to the mean one of all, whichever is larger. inf
    for what is not finite.
    """
    y, expected = y.detach().double().cpu(), expected.detach().double().cpu()
    if not bool(torch.isfinite(y).all()):
        return float("inf")
    if not expected.numel():
        return 0.0
    norms = expected.norm(dim=-1)
    scale = norms.clamp_min(float(norms.square().mean().sqrt()))
    apart = (y - expected).norm(dim=-1)
    return float(torch.where(scale > 0, apart / scale.clamp_min(1e-300), apart).sort().values[-1 - but])


def _name_of(spec: AnySpec) -> str:
    if isinstance(spec, ActivationSpec):
        return "" if spec.own else spec.activation
    return spec.name if isinstance(spec, AttentionSpec) else ""


def _run_eagerly(spec: AnySpec) -> AnySpec:
    """The spec with its experts run one after another, since grouped products know few dtypes."""
    if isinstance(spec, FFNSpec) and spec.moe is not None:
        return replace(spec, moe=replace(spec.moe, dispatch=Dispatch.EAGER))
    return spec

"""Which typed flag would let its user believe a wrong thing of the numbers: one table of rules, for all commands.

What is merely without effect is accepted in silence: it does no harm. A rule names flags, and says when what is shown
is not of what they ask for. What only a plan or a baseline can tell is asked once that is known; nothing is measured or
written by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.spec import FFNSpec, HFSpec, ImportedSpec
from ffnbench.ffn.width_rules import RULES
from ffnbench.gate.baseline import is_timed
from ffnbench.gate.regression import SECONDS, TIMED, parse_tolerances
from ffnbench.plan import MODE_ALIASES, Case, Mode, Plan
from ffnbench.planning.grammar import BACKEND_KEYS, parse_variant
from ffnbench.request import spelling
from ffnbench.result import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A network of a plan, with the keys that its variant has: these win over flags."""

    case: Case
    keys: frozenset[str]

    @property
    def own(self) -> bool:
        """Whether it is one of ffnbench's own forms, also around an activation of the user's."""
        return isinstance(self.case.ffn, FFNSpec)


@contextmanager
def of_file(told: Iterable[str]) -> Iterator[None]:
    """Say of a mistake that it is one of these defaults, `seq_len many`, that a file sets."""
    try:
        yield
    except FfnbenchError as problem:
        for text in told:
            name, _, value = text.partition(" ")
            if repr(value) in problem.message or spelling(name) in problem.message:
                problem.message += f" ({name} is set in pyproject.toml)"
                break
        raise


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What was asked of a command: all of its values, and what was typed, by field, as it was spelled.

    `set_` is what a pyproject.toml sets, by field, as it is told. `plan` and `before`, the baseline of a check, are
    None until they are known.
    """

    command: str
    values: Mapping[str, Any]
    typed: Mapping[str, str]
    set_: Mapping[str, str] = field(default_factory=dict)
    plan: Plan | None = None
    before: Report | None = None

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def known(self, what: Plan | Report) -> None:
        """Refuse what would mislead for this plan, or for a check of this baseline."""
        now = replace(self, plan=what) if isinstance(what, Plan) else replace(self, plan=what.plan, before=what)
        now.refuse()

    def refuse(self) -> None:
        """Raise FfnbenchError for the first typed flag that would mislead, as far as that is known by now."""
        for rule in self._rules:
            for name in rule.flags:
                if name in self.typed and (idle := rule.idle(self, name)):
                    one = f" {idle}" if isinstance(idle, str) else ""
                    raise FfnbenchError(f"{self.typed[name]}{one} would do nothing: {rule.why}", "leave it out")

    def idle_defaults(self) -> set[str]:
        """The defaults of a file that would mislead if they were typed, as far as that is known by now."""
        return {name for rule in self._rules for name in rule.flags if name in self.set_ and rule.idle(self, name)}

    @property
    def _rules(self) -> list[Rule]:
        table = AT_ONCE if self.plan is None else ONCE_KNOWN
        return [rule for rule in table if self.command in rule.commands]

    def said(self, plan: Plan | None) -> tuple[str, ...]:
        """What a reader should know of the defaults that a file sets, and that this plan takes anything from."""
        now = replace(self, plan=plan)
        idle = now.idle_defaults() if plan is not None else set()
        told = [text for name, text in self.set_.items() if name not in idle and name not in OF_OUTPUT]
        return (f"defaults from pyproject.toml: {', '.join(told)}",) if told else ()

    @contextmanager
    def explained(self) -> Iterator[None]:
        """A mistake that a file makes is not looked for on the command line."""
        with of_file(self.set_.values()):
            yield

    @cached_property
    def forms(self) -> list[Form]:
        """The networks of the plan; that of a block's model has no keys."""
        assert self.plan is not None
        networks = [case for case in self.plan.shown if isinstance(case.ffn, FFNSpec | ImportedSpec)]
        if self.command == "block" and (self["preset"] or self["config"]):
            return [Form(case=case, keys=frozenset()) for case in networks]
        return [_form(case) for case in networks]


def _form(case: Case) -> Form:
    variant = parse_variant(case.variant)
    keys = frozenset({**variant.spec_keys, **variant.workload_keys, **dict(variant.arguments)})
    if keys & BACKEND_KEYS:  # one about compiling names the backend too
        keys |= {"backend"}
    return Form(case=case, keys=keys)


Idle = Callable[[Asked, str], bool | str]  # whether a flag misleads; of several values, the one that does


@dataclass(frozen=True, slots=True)
class Rule:
    """A row of the tables: flags of these commands mislead where `idle` says so, and why."""

    commands: tuple[str, ...]
    flags: tuple[str, ...]
    idle: Idle
    why: str


def _rule(commands: str, flags: str, idle: Idle, why: str) -> Rule:
    return Rule(tuple(commands.split()), tuple(flags.split()), idle, why)


def _another_call(asked: Asked, name: str) -> bool:
    """A whole model is asked for, and another call than the one that it is counted for."""
    value = MODE_ALIASES.get(asked[name], asked[name])
    return bool(asked["whole_model"] and value not in (1, Mode.FORWARD, Mode.FORWARD.value))


# What the plan tells: where widths come from, which keys win over flags


def _none(takes: Callable[[Asked, Form], bool]) -> Idle:
    """No variant takes anything from the flag."""
    return lambda asked, _: not any(takes(asked, form) for form in asked.forms)


def _d_ff(asked: Asked, form: Form) -> bool:
    return form.case.sizing.how == "given" and "d_ff" not in form.keys and not isinstance(form.case.ffn, HFSpec)


def _rule_of_width(asked: Asked, form: Form) -> bool:
    return not {"d_ff", "rule", "ratio"} & form.keys and not isinstance(form.case.ffn, HFSpec)


def _ratio(asked: Asked, form: Form) -> bool:
    """An unlike reference is matched to the classic form; a module is first looked at with the width of the ratio."""
    assert asked.plan is not None
    how, is_reference = form.case.sizing.how, asked.plan.is_reference(form.case.label)
    found = how in ("rule", "ratio", "unread") or (how == "matched" and (is_reference or not form.own))
    return found and "ratio" not in form.keys


def _multiple(asked: Asked, form: Form) -> bool:
    sizing = form.case.sizing
    if sizing.how == "given" or "multiple_of" in form.keys:
        return False
    scaled = "ffn_dim_multiplier" in form.keys or asked["ffn_dim_multiplier"] is not None
    return sizing.how != "rule" or RULES.get(sizing.what).name != "lfm2" or scaled  # lfm2 rounds what it scales


def _multiplier(asked: Asked, form: Form) -> bool:
    return form.case.sizing.how == "rule" and "ffn_dim_multiplier" not in form.keys


def _no_own_form(asked: Asked, name: str) -> bool:
    """No form of ours is without a key of the flag's name."""
    return not any(form.own and name not in form.keys for form in asked.forms)


def _all_keys(asked: Asked, name: str) -> bool:
    """Every variant has a key of the flag's name."""
    return all(name in form.keys for form in asked.forms)


# What a check's baseline tells


def _not_timed(asked: Asked, _: str) -> bool:
    assert asked.before is not None
    return not asked["exact_only"] and not is_timed(asked.before)


def _no_gate(asked: Asked, name: str) -> str:
    """The first tolerance of a time that no row is held to, where times were not left out."""
    assert asked.before is not None
    plan, timed = asked.before.plan, is_timed(asked.before)

    def held(case: str, metric: str) -> bool:
        return timed and (asked["absolute"] if metric == SECONDS else not (case and plan.is_reference(case)))

    for text in () if asked["exact_only"] else asked[name]:
        rows = parse_tolerances([text], [case.label for case in plan.shown])
        if not any(metric not in TIMED or held(case, metric) for case, metric, _ in rows):
            return str(text)
    return ""


# The tables


OF_OUTPUT = ("format", "wide", "quiet", "sort", "columns")  # how an answer is shown: no part of the question
OF_WORKLOAD = "batch dtype mode device threads backend routing time cache matmul_precision reduced_reductions"

# fmt: off
AT_ONCE = (
    _rule("block", "mode batch", _another_call, "a whole model is counted for one sequence's forward pass"),
    _rule("activations", "dtype", lambda asked, _: not asked["time"], "without --time facts are found in float64"),
)
ONCE_KNOWN = (
    _rule("compare cost", "ratio", _none(_ratio), "every width is given, or matched to one that is"),
    _rule("compare cost", "multiple_of", _none(_multiple), "no width is rounded"),
    _rule("compare cost", "ffn_dim_multiplier", _none(_multiplier), "no width is made by a rule that reads it"),
    _rule("compare cost", "rule", _none(_rule_of_width), "every variant says itself how wide it is"),
    _rule("compare cost", "d_ff", _none(_d_ff), "every variant says itself how wide it is"),
    _rule("compare cost ab", "bias init dropout", _no_own_form, "no variant takes it from the flag"),
    _rule("compare cost ab", "seq_len", _all_keys, "every variant has its own"),
    _rule("compare cost block ab", OF_WORKLOAD, _all_keys, "every variant has its own"),
    _rule("check", "absolute", _not_timed, "the baseline has no latencies"),
    _rule("check", "tolerance", _no_gate, "no row is held to it"),
)
# fmt: on

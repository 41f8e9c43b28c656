"""Which typed flag would do nothing: tables of rules, for all commands, held against whatever was typed.

A rule names flags, and says when none of their values would change anything that is shown, written or decided. What
only a plan or a baseline can tell is asked once that is known; nothing is measured or written by then. A value that
does nothing is no mistake where another one would do something: `--seq-len 512` may be typed.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.dtypes import item_bytes
from ffnbench.ffn.spec import FFNSpec, HFSpec, ImportedSpec
from ffnbench.ffn.width_rules import RULES
from ffnbench.metrics import LATENCY
from ffnbench.plan import Backend, Case, Plan
from ffnbench.planning.backends import parse_backends
from ffnbench.planning.grammar import BACKEND_KEYS, parse_variant
from ffnbench.report.formats import PICTURES
from ffnbench.request import spelling
from ffnbench.result import Report
from ffnbench.selftest.worlds import LIVE_WORLDS
from ffnbench.stats.baseline import is_timed
from ffnbench.stats.regression import EXACT, SECONDS, exact_value, parse_tolerances


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A network of a plan, with the keys that its variant has: these win over flags."""

    case: Case
    keys: frozenset[str]
    named: bool  # by a model's name, which gives its d_model

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
        """Refuse what does nothing for this plan, or for a check of this baseline."""
        now = replace(self, plan=what) if isinstance(what, Plan) else replace(self, plan=what.plan, before=what)
        now.refuse()

    def refuse(self) -> None:
        """Raise FfnbenchError for the first typed flag that would do nothing, as far as that is known by now."""
        for rule in AT_ONCE if self.plan is None else ONCE_KNOWN:
            for name in rule.flags if self.command in rule.commands else ():
                if name in self.typed and (idle := rule.idle(self, name)):
                    one = f" {idle}" if isinstance(idle, str) else ""
                    raise FfnbenchError(f"{self.typed[name]}{one} would do nothing: {rule.why}", "leave it out")

    def idle_defaults(self) -> set[str]:
        """The defaults of a file that would do nothing, as far as that is known by now."""
        rules = [rule for rule in (AT_ONCE if self.plan is None else ONCE_KNOWN) if self.command in rule.commands]
        return {name for rule in rules for name in rule.flags if name in self.set_ and rule.idle(self, name)}

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

    @property
    def shown(self) -> tuple[Case, ...]:
        """The cases of the plan, without the control."""
        assert self.plan is not None
        return self.plan.shown

    @cached_property
    def forms(self) -> list[Form]:
        """The networks of the plan; that of a block's model has no keys."""
        networks = [case for case in self.shown if isinstance(case.ffn, FFNSpec | ImportedSpec)]
        if self.command == "block" and (self["preset"] or self["config"]):
            return [Form(case=case, keys=frozenset(), named=True) for case in networks]
        return [_form(case) for case in networks]


def _form(case: Case) -> Form:
    variant = parse_variant(case.variant)
    keys = frozenset({**variant.spec_keys, **variant.workload_keys, **dict(variant.arguments)})
    if keys & BACKEND_KEYS:  # one about compiling names the backend too
        keys |= {"backend"}
    return Form(case=case, keys=keys, named=variant.d_model is not None or isinstance(case.ffn, HFSpec))


Idle = Callable[[Asked, str], bool | str]  # whether a flag does nothing; of several values, the one that does nothing


@dataclass(frozen=True, slots=True)
class Rule:
    """A row of the tables: flags of these commands do nothing where `idle` says so, and why."""

    commands: tuple[str, ...]
    flags: tuple[str, ...]
    idle: Idle
    why: str


def _rule(commands: str, flags: str, idle: Idle, why: str) -> Rule:
    return Rule(tuple(commands.split()), tuple(flags.split()), idle, why)


# What flags tell by themselves


def _is(name: str) -> Idle:
    """Another flag is given."""
    return lambda asked, _: bool(asked[name])


def _not(name: str) -> Idle:
    """Another flag is not given."""
    return lambda asked, _: not asked[name]


def _said(name: str) -> Idle:
    """Another flag was typed."""
    return lambda asked, _: name in asked.typed


def _no_table(asked: Asked, _: str) -> bool:
    return bool(asked["format"] != "table")


def _simulated(asked: Asked, _: str) -> bool:
    return not (asked["live"] or asked["judge"])


def _always(asked: Asked, _: str) -> bool:
    return True


def _writes(asked: Asked, *suffixes: str) -> bool:
    """Whether a file of one of these suffixes is asked for; a folder gets all of them."""
    folders = ("/", os.sep)
    return any(
        text.lower().endswith((*suffixes, *folders)) or os.path.isdir(os.path.expanduser(text)) for text in asked["out"]
    )


def _no_json(asked: Asked, _: str) -> bool:
    return not _writes(asked, ".json")


def _json_alone(asked: Asked, _: str) -> bool:
    return bool(asked["format"] == "json" and all(text.lower().endswith(".json") for text in asked["out"]))


def _one_length(asked: Asked, _: str) -> bool:
    return "," not in asked["seq_len"]


def _points_alone(asked: Asked, _: str) -> bool:
    return bool(asked["out"]) and not _writes(asked, *PICTURES)


def _fixed(asked: Asked, _: str) -> bool:
    return asked["workers"] is not None and asked["rounds"] is not None


def _no_code_is_run(asked: Asked, _: str) -> bool:
    """Where nothing is measured only a look at code of the user's takes time."""
    return bool(asked["whole_model"] or (asked["cost_only"] and ":" not in (asked["variant"] or "")))


def _twice(asked: Asked, name: str) -> str:
    return _first_of_two(asked[name], asked[name])


def _world_twice(asked: Asked, name: str) -> str:
    return _first_of_two([LIVE_WORLDS.canonical(text) for text in asked[name]], asked[name])


def _variable_twice(asked: Asked, name: str) -> str:
    return _first_of_two([text.strip().partition(":")[0] for text in asked[name]], asked[name])


def _first_of_two(names: Iterable[str], values: Iterable[str]) -> str:
    """The first value whose name stands twice."""
    named = list(names)
    many = Counter(named)
    return next((value for name, value in zip(named, values, strict=True) if many[name] > 1), "")


# What the plan tells: where widths come from, which keys win over flags, what is measured


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


def _width_is_given(asked: Asked, name: str) -> bool:
    return asked["d_ff"] is not None and bool(_none(_ratio)(asked, name))


def _multiple(asked: Asked, form: Form) -> bool:
    sizing = form.case.sizing
    if sizing.how == "given" or "multiple_of" in form.keys:
        return False
    scaled = "ffn_dim_multiplier" in form.keys or asked["ffn_dim_multiplier"] is not None
    return sizing.how != "rule" or RULES.get(sizing.what).name != "lfm2" or scaled  # lfm2 rounds what it scales


def _multiplier(asked: Asked, form: Form) -> bool:
    return form.case.sizing.how == "rule" and "ffn_dim_multiplier" not in form.keys


def _match(asked: Asked, form: Form) -> bool:
    """Beside others each is held against the reference; alone, one of an unlike form and without a width is matched."""
    how, ffn = form.case.sizing.how, form.case.ffn
    unlike = isinstance(ffn, FFNSpec) and (ffn.gated or ffn.moe is not None)
    free = how == "ratio" and unlike and _rule_of_width(asked, form) and bool(asked["rule"] != "classic")
    assert asked.plan is not None
    backends = len(parse_backends(asked.values.get("backend", Backend.EAGER.value)))
    several = any(len(group.cases) > backends for group in asked.plan.groups)
    return several or how == "matched" or free


def _dropout(asked: Asked, form: Form) -> bool:
    """In train mode; element-wise operations are counted with it in every mode, where they are known."""
    ffn = form.case.ffn
    if not isinstance(ffn, FFNSpec) or "dropout" in form.keys:
        return False
    return form.case.workload.train or (ffn.row.flops, ffn.row.flops_backward) != (None, None)


def _no_own_form(asked: Asked, name: str) -> bool:
    """No form of ours is without a key of the flag's name."""
    return not any(form.own and name not in form.keys for form in asked.forms)


def _all_keys(asked: Asked, name: str) -> bool:
    """Every variant has a key of the flag's name."""
    return all(name in form.keys for form in asked.forms)


def _all_routed(asked: Asked, name: str) -> bool:
    return all(name in form.keys for form in asked.forms if form.case.workload.routing)


def _clocked(asked: Asked, form: Form) -> bool:
    return form.case.workload.device != "cpu" and "time" not in form.keys


def _float32(asked: Asked, form: Form) -> bool:
    return form.case.workload.dtype == "float32" and "matmul_precision" not in form.keys


def _reduces(asked: Asked, form: Form) -> bool:
    """In 16 bits, and where it is not known to be a CPU."""
    work = form.case.workload
    return item_bytes(work.dtype) == 2 and work.device != "cpu" and "reduced_reductions" not in form.keys


def _named(asked: Asked, _: str) -> bool:
    return any(form.named for form in asked.forms)


def _alone(asked: Asked, _: str) -> bool:
    assert asked.plan is not None
    return all(len(group.cases) == 1 for group in asked.plan.groups)


def _no_latency(asked: Asked, _: str) -> bool:
    assert asked.plan is not None
    return "latency" not in asked.plan.metrics


# What a check's baseline tells, and the plan of `ab`: which rows there are


def _never_timed(asked: Asked, _: str) -> bool:
    assert asked.before is not None
    return not is_timed(asked.before)


def _untimed(asked: Asked, name: str) -> bool:
    return bool(asked["exact_only"]) or _never_timed(asked, name)


def _no_row(asked: Asked, name: str) -> str:
    """The first tolerance that no row is held to: there is none, or a later or a more particular one wins."""
    given = parse_tolerances(asked[name], [case.label for case in asked.shown])
    last = {(case, metric): number for number, (case, metric, _) in enumerate(given)}
    rows = _rows_of_sides(asked) if asked.before is None else _rows(asked, asked.before)
    held = {last.get((case, metric), last.get(("", metric))) for case, metric in rows}
    return next((text for number, text in enumerate(asked[name]) if number not in held), "")


def _rows(asked: Asked, before: Report) -> set[tuple[str, str]]:
    """Case and metric of every row that a check has."""
    found = {(c.label, m.name) for c in asked.shown for m in EXACT if exact_value(before, c.label, m) is not None}
    if not _untimed(asked, ""):
        found |= {(case.label, LATENCY) for case in asked.shown if not before.plan.is_reference(case.label)}
        found |= {(case.label, SECONDS) for case in asked.shown if asked["absolute"]}
    return found


def _rows_of_sides(asked: Asked) -> set[tuple[str, str]]:
    """Those that `ab` may have; of a module element-wise operations are not counted."""
    head = asked.shown[-1]
    lacking = {"flops_elementwise"} if isinstance(head.ffn, ImportedSpec) else set()
    exact = {metric.name for metric in EXACT if head.workload.train or not metric.train_only} - lacking
    return {(head.label, name) for name in exact | (set() if asked["exact_only"] else {LATENCY})}


# The tables


EVERY = "list env inspect cost compare block activations check ab report selftest"
OF_CONDITIONS = "time cache matmul_precision reduced_reductions"
OF_MEASURING = (
    f"workers rounds quick precision budget seed runs pause device threads {OF_CONDITIONS} textbook quiet wait"
)
OF_OUTPUT = ("format", "wide", "quiet", "sort", "columns")  # how an answer is shown: no part of the question
OF_TIME = "sort columns elements dtype device threads workers rounds quick seed runs pause quiet wait"
OF_LIVE = "world rivals repeats budget d_model threads"

# fmt: off
AT_ONCE = (
    _rule(EVERY, "wide", _no_table, "only --format table leaves columns out"),
    _rule(EVERY, "json", _said("format"), "--format says it"),
    _rule("compare cost block activations report", "sort columns", _json_alone, "a .json holds the whole run as it is"),
    _rule("block", "sort columns", _is("whole_model"), "a whole model has a table of its own"),
    _rule("block", "sort", _one_length, "there is one length"),
    _rule("env", "wide", _always, "both columns are always shown"),
    _rule("env", "quiet", _not("ceilings"), "without --ceilings nothing is measured"),
    _rule(f"{EVERY} plot-activations", "out", _twice, "it stands twice"),
    _rule("check ab", "export", _twice, "it stands twice"),
    _rule("cost", "force", _no_json, "only a .json can hold what was measured"),
    _rule("compare block activations", "quick", _fixed, "--workers and --rounds say how much"),
    _rule("block", "mode batch", _is("whole_model"), "a whole model is counted for one sequence's forward pass"),
    _rule("block", f"cost_only backend {OF_MEASURING}", _is("whole_model"), "a whole model is counted, not measured"),
    _rule("block", OF_MEASURING, _is("cost_only"), "nothing is measured"),
    _rule("block", "timeout", _no_code_is_run, "nothing is measured"),
    _rule("activations", OF_TIME, _not("time"), "without --time nothing is measured"),
    _rule("plot-activations", "derivative", _is("gated"), "--gated draws surfaces, not curves"),
    _rule("plot-activations", "derivative size style dpi", _points_alone, "a .csv holds points alone"),
    _rule("check", "budget quiet wait", _is("current"), "a saved run is not measured"),
    _rule("check", "trust", _is("current"), "a saved run is held against it, and no code runs"),
    _rule("ab", "budget fail_above wait time cache", _is("exact_only"), "nothing is timed"),
    _rule("ab", "base_env head_env", _variable_twice, "the last value of a variable counts"),
    _rule("selftest", f"live judge runs seed quiet {OF_LIVE} wait", _is("saved"), "what --from names is only shown"),
    _rule("selftest", f"live checks runs {OF_LIVE}", _is("judge"), "--judge runs the modules of its table"),
    _rule("selftest", "runs", _is("live"), "it is about simulated runs, and --live measures"),
    _rule("selftest", OF_LIVE, _not("live"), "it is about --live, and this exam is simulated"),
    _rule("selftest", "wait", _simulated, "nothing is measured: this exam is simulated"),
    _rule("selftest", "rivals", _is("checks"), "rivals make runs, and --gate makes checks"),
    _rule("selftest", "world", _world_twice, "it stands twice"),
)
ONCE_KNOWN = (
    _rule("compare cost", "ratio", _width_is_given, "--d-ff gives the width"),
    _rule("compare cost", "ratio", _none(_ratio), "every width is given, or matched to one that is"),
    _rule("compare cost", "multiple_of", _none(_multiple), "no width is rounded"),
    _rule("compare cost", "ffn_dim_multiplier", _none(_multiplier), "no width is made by a rule that reads it"),
    _rule("compare cost", "rule", _none(_rule_of_width), "every variant says itself how wide it is"),
    _rule("compare cost", "d_ff", _none(_d_ff), "every variant says itself how wide it is"),
    _rule("compare cost", "match", _none(_match), "there is one variant, and nothing to match it to"),
    _rule("compare cost ab", "d_model", _named, "the model sets it"),
    _rule("compare cost", "reference sort", _alone, "there is one variant"),
    _rule("compare cost", "dropout", _none(_dropout), "no variant takes it from the flag"),
    _rule("compare cost ab", "bias init", _no_own_form, "no variant takes it from the flag"),
    _rule("compare", "routing", _all_routed, "every variant with experts has its own"),
    _rule("compare cost ab", "seq_len", _all_keys, "every variant has its own"),
    _rule("compare cost block ab", "batch dtype mode device threads backend", _all_keys, "every variant has its own"),
    _rule("compare block ab", OF_CONDITIONS, _all_keys, "every variant has its own"),
    _rule("compare block ab", "time", _none(_clocked), "nothing runs on a GPU, and a CPU has no time of its own"),
    _rule("compare block ab", "matmul_precision", _none(_float32), "nothing is computed in float32"),
    _rule("compare block ab", "reduced_reductions", _none(_reduces), "nothing is computed in 16 bits on a GPU"),
    _rule("compare", "workers rounds quick precision budget wait time cache", _no_latency, "latency is not measured"),
    _rule("check", "exact_only", _never_timed, "the baseline has no latencies"),
    _rule("check", "budget absolute across_machines on_unclear wait", _untimed, "nothing is timed"),
    _rule("check ab", "tolerance", _no_row, "no row is held to it"),
)
# fmt: on

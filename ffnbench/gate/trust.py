"""Which code a file from elsewhere may run: what the user names with --trust, spelled
in exactly the same way, and nothing else.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from ffnbench.common.errors import FfnbenchError
from ffnbench.ffn.activations import OwnActivation
from ffnbench.ffn.spec import ImportedSpec
from ffnbench.plan.plan import Arm, Plan


def refuse_untrusted(plan: Plan, path: str, trusted: Sequence[str]) -> None:
    """Raise FfnbenchError if the plan of a file names code that `trusted` does not; the
    hint has the flags to type.
    """
    unknown = [name for name in code_of(plan) if name not in trusted]
    if unknown:
        raise FfnbenchError(
            f"{path!r} names code that would run: {', '.join(unknown)}",
            f"if you trust it, add {trust_flags(unknown)}",
        )


def trust_flags(names: Iterable[str]) -> str:
    """The flags that let these run."""
    return " ".join(f"--trust {shlex.quote(name)}" for name in names)


def code_of(plan: Plan) -> list[str]:
    """The names, as --trust takes them, of all code that a plan would run and that is
    not ffnbench's own; each once.
    """
    names = [
        name
        for case in plan.cases
        for name in (*_of_arm(case.arm), *_targets(case.ffn))
    ]
    return list(dict.fromkeys(names))


def _of_arm(arm: Arm) -> Iterator[str]:
    """The names of an arm's interpreter, source folder and environment variables: each
    of them decides which code runs.
    """
    if arm.python:
        yield f"python={arm.python}"
    if arm.source:
        yield f"source={arm.source}"
    yield from (f"env={name}:{value}" for name, value in arm.env)


def _targets(spec: Any) -> Iterator[str]:
    """Every target in a spec, however deep it stands."""
    if isinstance(spec, ImportedSpec | OwnActivation):
        yield spec.target
    if is_dataclass(spec):
        for field in fields(spec):
            yield from _targets(getattr(spec, field.name))

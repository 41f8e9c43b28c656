"""What a shell offers at TAB: names of variants, of published models, and the words that a flag takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import Field
from typing import Any

from ffnbench.features import completer_of, function_of
from ffnbench.planning.fields import LIST, flag_of


def completer(field: Field[Any]) -> Callable[[str], list[str]]:
    """What completes the value of a flag or an argument; of a list, its last part."""
    lists = flag_of(field).metavar == LIST

    def complete(incomplete: str) -> list[str]:
        before, comma, _ = incomplete.rpartition(",") if lists else ("", "", "")
        return [f"{before}{comma}{name}" for name in names_of(field.name) if name not in before.split(",")]

    return complete


def names_of(field: str) -> Iterable[str]:
    """The names that there are for a field. All is loaded at TAB only."""
    from ffnbench.ffn.activations import ACTIVATIONS
    from ffnbench.ffn.variants import GATED
    from ffnbench.ffn.width_rules import RULES
    from ffnbench.metrics import METRIC_GROUPS
    from ffnbench.models.presets import PRESETS
    from ffnbench.planning.workload import DEVICES
    from ffnbench.python.arguments import CHOICES
    from ffnbench.report.listing import LISTINGS

    models, curves = PRESETS.names(), ACTIVATIONS.names()
    forms = [*curves, *GATED.names(), *models]
    known: dict[str, Iterable[str]] = {
        **CHOICES, "variants": forms, "variant": forms, "preset": models,
        "activations": curves, "rule": RULES.names(), "metrics": METRIC_GROUPS, "device": DEVICES,
        "on_unclear": ("pass", "fail"), "format": ("table", "markdown", "csv", "json", "github"), "what": LISTINGS,
        "tolerance": [f"{metric}=" for metric in function_of("gate.decision:CHECKED")],
    }  # fmt: skip
    if field in known:
        return known[field]
    completer = completer_of(field)
    return completer() if completer else ()

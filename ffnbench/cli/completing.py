"""What a shell offers at TAB: names of variants, of published models, and the words that a flag takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

LISTS = ("variants", "dtype", "mode", "backend", "metrics", "activations")  # fields that take a comma separated list
ONE = (
    "variant", "preset", "config", "model", "rule", "match", "init", "device", "routing", "time", "cache",
    "matmul_precision", "tolerance", "what", "export", "on_unclear", "format",
)  # fmt: skip


def completer(field: str) -> Callable[[str], list[str]] | None:
    """What completes the value of a flag or an argument; None where there is nothing to choose from."""
    if field not in LISTS + ONE:
        return None

    def complete(incomplete: str) -> list[str]:
        before, comma, _ = incomplete.rpartition(",") if field in LISTS else ("", "", "")
        found = [f"{before}{comma}{name}" for name in _names(field) if name not in before.split(",")]
        return [value for value in found if value.startswith(incomplete)]

    return complete


def _names(field: str) -> Iterable[str]:
    """The names that there are for a field. All is loaded at TAB only."""
    from ffnbench.activations.table import ACTIVATIONS
    from ffnbench.ffn.variants import GATED
    from ffnbench.ffn.width_rules import RULES
    from ffnbench.metrics import METRIC_GROUPS
    from ffnbench.models.presets import PRESETS
    from ffnbench.planning.workload import DEVICES
    from ffnbench.python.arguments import CHOICES

    models, curves = PRESETS.names(), ACTIVATIONS.names()
    forms = [*curves, *GATED.names(), *models]
    known: dict[str, Iterable[str]] = {
        **CHOICES, "variants": forms, "variant": forms, "preset": models, "config": models, "model": models,
        "activations": curves, "rule": RULES.names(), "metrics": METRIC_GROUPS, "device": DEVICES,
        "on_unclear": ("pass", "fail"), "format": ("table", "markdown", "csv", "json", "github"),
    }  # fmt: skip
    return known[field] if field in known else _of_output(field)


def _of_output(field: str) -> Iterable[str]:
    from ffnbench.gate.decision import CHECKED
    from ffnbench.report.files.exports import EXPORTS
    from ffnbench.report.tables.listing import LISTINGS

    known: dict[str, Iterable[str]] = {
        "what": LISTINGS, "export": EXPORTS, "tolerance": [f"{metric}=" for metric in CHECKED],
    }  # fmt: skip
    return known[field]

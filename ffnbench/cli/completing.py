"""What a shell offers at TAB: names of variants, of published models, and the words that a flag takes.

All is loaded at TAB only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ffnbench.features import completer_of, function_of


def _next(incomplete: str, known: Iterable[str]) -> list[str]:
    """What the last part of a list could be."""
    before, comma, _ = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in known if name not in before.split(",")]


def variants(incomplete: str) -> list[str]:
    """Forms, and models that stand for one."""
    from ffnbench.ffn.activations import ACTIVATIONS
    from ffnbench.ffn.spec import GATED
    from ffnbench.models.presets import PRESETS

    return _next(incomplete, [*ACTIVATIONS.names(), *GATED.names(), *PRESETS.names()])


def activations(incomplete: str) -> list[str]:
    """Activations."""
    from ffnbench.ffn.activations import ACTIVATIONS

    return _next(incomplete, ACTIVATIONS.names())


def presets(incomplete: str) -> list[str]:
    """Published models."""
    from ffnbench.models.presets import PRESETS

    return PRESETS.names()


def rules(incomplete: str) -> list[str]:
    """Rules of widths."""
    from ffnbench.ffn.width_rules import RULES

    return RULES.names()


def devices(incomplete: str) -> list[str]:
    """Devices of torch's."""
    from ffnbench.planning.workload import DEVICES

    return _next(incomplete, DEVICES)


def metrics(incomplete: str) -> list[str]:
    """What can be measured."""
    from ffnbench.metrics import METRIC_GROUPS

    return _next(incomplete, METRIC_GROUPS)


def topics(incomplete: str) -> list[str]:
    """What `ffnbench list` shows."""
    from ffnbench.report.listing import LISTINGS

    return [*LISTINGS]


def tolerances(incomplete: str) -> list[str]:
    """Metrics that a check holds to a limit."""
    return [f"{metric}=" for metric in function_of("gate.decision:CHECKED")]


def words_of(option: str) -> list[str]:
    """The words that an option takes; none where it takes no fixed ones."""
    from ffnbench.ffn.spec import DTYPES, Init, Routing
    from ffnbench.ffn.width_rules import Match
    from ffnbench.plan import MODE_ALIASES, Backend, Cache, MatmulPrecision, Mode, Time, values_of
    from ffnbench.planning.workload import ALL

    known: dict[str, Iterable[str]] = {
        "match": values_of(Match), "mode": (*values_of(Mode), *MODE_ALIASES), "dtype": DTYPES.spellings(),
        "time": values_of(Time), "cache": values_of(Cache), "matmul_precision": values_of(MatmulPrecision),
        "backend": (*values_of(Backend), ALL), "init": values_of(Init), "routing": values_of(Routing),
        "on_unclear": ("pass", "fail"), "format": ("table", "markdown", "csv", "json", "github"),
    }  # fmt: skip
    if option in known:
        return [*known[option]]
    of_feature = completer_of(option)
    return [*of_feature()] if of_feature else []


def of(option: str) -> Callable[[str], list[str]]:
    """What offers the words that an option takes."""

    def complete(incomplete: str) -> list[str]:
        return _next(incomplete, words_of(option))

    return complete

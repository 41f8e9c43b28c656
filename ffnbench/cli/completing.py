"""What a shell offers at TAB: the words that an argument or a flag takes, loaded only then."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ffnbench.features import completer_of, function_of


def words_for(name: str) -> Callable[[str], list[str]]:
    """What offers the words of a flag, behind those of its list that are typed already."""

    def complete(incomplete: str) -> list[str]:
        before, comma, _ = incomplete.rpartition(",")
        typed = before.split(",")
        return [f"{before}{comma}{word}" for word in words_of(name) if word not in typed]

    return complete


def words_of(name: str) -> list[str]:
    """The words that a flag takes; none where it takes no fixed ones."""
    if name == "variants":
        from ffnbench.ffn.spec import GATED

        return [*words_of("activations"), *GATED.names(), *words_of("preset")]
    if name == "activations":
        from ffnbench.ffn.activations import ACTIVATIONS

        return ACTIVATIONS.names()
    if name == "preset":
        from ffnbench.models.presets import PRESETS

        return PRESETS.names()
    if name == "what":
        from ffnbench.report.listing import topics

        return topics()
    if name == "tolerance":
        return [f"{metric}=" for metric in function_of("gate.decision:CHECKED")]
    of_feature = completer_of(name)
    return [*(of_feature() if of_feature else _fixed_words(name))]


def _fixed_words(name: str) -> Iterable[str]:
    from ffnbench.choices import MODE_ALIASES, Backend, Cache, Init, Match, MatmulPrecision, Mode, Routing, Time
    from ffnbench.ffn.spec import DTYPES
    from ffnbench.ffn.width_rules import RULES
    from ffnbench.metrics import METRIC_GROUPS
    from ffnbench.planning.workload import ALL, DEVICES

    words: dict[str, Iterable[str]] = {
        "match": Match,
        "rule": RULES.names(),
        "init": Init,
        "dtype": DTYPES.spellings(),
        "mode": (*Mode, *MODE_ALIASES),
        "device": DEVICES,
        "backend": (*Backend, ALL),
        "routing": Routing,
        "time": Time,
        "cache": Cache,
        "matmul_precision": MatmulPrecision,
        "metrics": METRIC_GROUPS,
        "on_unclear": ("pass", "fail"),
        "format": ("table", "markdown", "latex", "csv", "json", "github"),
    }
    return words.get(name, ())

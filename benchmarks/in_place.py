"""How far the ratio of an FFN alone is from its ratio in a stack of blocks: `python
benchmarks/in_place.py results/NAME.jsonl --minutes 120`, 80 minutes a seed.

Twelve shapes, six forms of equal parameters. Each line of the file is one seed of one
shape: the ratios to relu alone with hot, cold and rotated weights, and in place, by
`ffnbench block` and `ffnbench compare`. The same command goes on where it was stopped.
`--page` writes the table into docs/in-place.md, and draws its picture.
"""

import argparse
import json
import re
import time
from itertools import combinations, product
from math import log
from pathlib import Path
from statistics import fmean, median

import numpy as np
from matplotlib.figure import Figure
from pandas import DataFrame

import ffnbench
from ffnbench.record.result import Estimate
from ffnbench.report.words import interval_text
from ffnbench.stats.interval import estimate_of_values

FORMS = ("relu", "gelu", "relu2", "reglu", "geglu", "swiglu")
# layers by d_model: 72, 216 and 576 MiB of weights and more, as in a model
LAYERS = {256: 24, 768: 8, 2048: 3}
TOKENS = (1, 16, 128, 512)
WAYS = ("hot", "cold", "rotated")
IN_PLACE = "in place"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "in-place.md"
PICTURE = "![Agreement of FFNs alone with FFNs in place](in-place.png)"
MARKS = re.compile(r"(<!-- in-place -->\n).*(<!-- end -->)", re.DOTALL)
Line = dict


def budget_s(d_model: int, tokens: int) -> float:
    """Seconds of the stacks of a shape, and of its FFNs alone: a minute, and more for
    large weights, which each process copies, and for long calls.
    """
    weights = LAYERS[d_model] * d_model**2
    return 60 + weights / 2e5 + weights * tokens / 1e7


def measured(seed: int, d_model: int, tokens: int, budget: float) -> Line:
    """The ratios to relu of one shape, by way and form."""
    asked = {"d_model": d_model, "seq_len": tokens, "seed": seed}
    stacks = ffnbench.block(
        FORMS, layers=LAYERS[d_model], budget=budget, **asked
    ).frame()
    alone = ffnbench.compare(
        FORMS, cache=WAYS[1:], metrics="latency", budget=budget, **asked
    ).frame()
    ratios = {
        IN_PLACE: ratios_in(stacks, "ffn_ratio"),
        WAYS[0]: ratios_in(stacks, "alone_ratio"),
    }
    for way, rows in alone.groupby("cache"):
        ratios[way] = ratios_in(rows, "ratio")
    return {"seed": seed, "d_model": d_model, "tokens": tokens, "ratios": ratios}


def ratios_in(rows: DataFrame, key: str) -> dict[str, float]:
    """The ratios of rows by form, without those that are busy."""
    known = rows.dropna(subset=[f"{key}_low"])
    return {row["variant"]: round(row[key], 4) for _, row in known.iterrows()}


def agreement(line: Line, way: str) -> tuple[float, float] | None:
    """Kendall's tau of a way and in place, and the median difference of their ratios in
    percent; None where too few forms have both.
    """
    there, here = line["ratios"].get(way, {}), line["ratios"][IN_PLACE]
    forms = [form for form in FORMS if form in there and form in here]
    if len(forms) < len(FORMS) - 1:
        return None
    pairs = [
        (there[one] - there[other]) * (here[one] - here[other])
        for one, other in combinations(forms, 2)
    ]
    tau = fmean((pair > 0) - (pair < 0) for pair in pairs)
    differences = [abs(log(there[form] / here[form])) for form in forms[1:]]
    return tau, 100 * median(differences)


def over_seeds(lines: list[Line], way: str, number: int) -> Estimate | None:
    """The mean over shapes of tau (0) or the difference (1), with its interval over
    seeds; without one of fewer than three.
    """
    of_seeds = []
    for seed in {line["seed"] for line in lines}:
        found = [agreement(line, way) for line in lines if line["seed"] == seed]
        known = [each[number] for each in found if each]
        if known:
            of_seeds.append(fmean(known))
    return estimate_of_values(of_seeds) if of_seeds else None


def cells(lines: list[Line]) -> dict[str, dict[str, list[Estimate | None]]]:
    """Tau and difference of each way, by tokens, and of all."""
    by_tokens = {
        f"{tokens}": [line for line in lines if line["tokens"] == tokens]
        for tokens in TOKENS
    }
    return {
        name: {way: [over_seeds(part, way, n) for n in (0, 1)] for way in WAYS}
        for name, part in (by_tokens | {"all": lines}).items()
    }


def table(lines: list[Line]) -> str:
    """The table of the page."""
    titles = [f"{way}: {what}" for way in WAYS for what in ("tau", "off by, %")]
    rows = [["tokens", *titles], ["--:"] * (1 + len(titles))]
    for name, by_way in cells(lines).items():
        shown = [
            interval_text(each) if each else "-" for way in WAYS for each in by_way[way]
        ]
        rows.append([name, *shown])
    seeds = len({line["seed"] for line in lines})
    text = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"{text}\n\n[ ]: 95 % over {seeds} seeds, cut at 0; ~: fewer than three seeds.\n"


def picture(lines: list[Line]) -> Figure:
    """Tau and difference by tokens, with intervals."""
    figure = Figure(figsize=(7, 2.4), dpi=200, layout="constrained")
    titles = (
        "Do FFNs alone have the order of those in place?\n(Kendall's tau; 1: the same order)",
        "How far is a ratio alone from that in place?\n(median difference in %; 0: the same ratio)",
    )
    for number, axes in enumerate(figure.subplots(1, 2)):
        axes.set_title(titles[number], fontsize=8)
        axes.set_xlabel("tokens (bars: 95 % over seeds)")
        axes.set_xticks(range(len(TOKENS)), TOKENS)
        for shift, way in enumerate(WAYS):
            found = [by_way[way][number] for by_way in cells(lines).values()]
            of_tokens = zip(range(len(TOKENS)), found, strict=False)
            known = [(at, each) for at, each in of_tokens if each]
            places = [at + 0.15 * (shift - 1) for at, _ in known]
            values = [each.value for _, each in known]
            ends = np.array([[each.low, each.high] for _, each in known], float)
            bars = abs(ends.T - values)
            axes.errorbar(places, values, yerr=bars, fmt="os^"[shift], label=way)
        axes.set_ylim((None, 0)[number], (1.02, None)[number])
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside right upper", title="weights of\nFFNs alone"
    )
    return figure


def main() -> None:
    """Measure what the file lacks; print the table, or write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--minutes", type=float, default=0.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--d-model", type=int, nargs="+", default=list(LAYERS))
    parser.add_argument("--tokens", type=int, nargs="+", default=TOKENS)
    parser.add_argument("--share", type=float, default=1.0, help="of the seconds")
    parser.add_argument("--page", action="store_true")
    asked = parser.parse_args()
    text = asked.file.read_text() if asked.file.exists() else ""
    lines = [json.loads(line) for line in text.splitlines()]
    done = {(line["seed"], line["d_model"], line["tokens"]) for line in lines}
    end = time.monotonic() + 60 * asked.minutes
    for shape in product(range(asked.seeds), asked.d_model, asked.tokens):
        if shape in done or time.monotonic() > end:
            continue
        line = measured(*shape, asked.share * budget_s(*shape[1:]))
        lines.append(line)
        with asked.file.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(shape, {way: agreement(line, way) for way in WAYS}, flush=True)
    print(table(lines))
    if asked.page:
        written = rf"\g<1>{table(lines)}\n{PICTURE}\n\g<2>"
        PAGE.write_text(MARKS.sub(written, PAGE.read_text()))
        picture(lines).savefig(PAGE.with_suffix(".png"))


if __name__ == "__main__":
    main()

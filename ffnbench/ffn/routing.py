"""How tokens spread over experts: the probability of each to be drawn, and how many of
them the tokens of a call are expected to meet. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import accumulate, pairwise
from math import exp, lgamma, log, log1p, sqrt

from ffnbench.common.choices import Routing
from ffnbench.ffn.spec import MoESpec

# Trained-like routing chooses the busiest expert by this share more often than the mean
# one.
IMBALANCE = 0.5
# The first logarithm of the times of an integral, before which a chance is below 1e-8,
# and the step between them where one expert is drawn. The time of the k-th draw is
# known to 1/sqrt(k) of itself, so that with more draws steps are as much smaller.
EARLIEST, STEP = -19.0, 0.5


def shares(routing: Routing, experts: int) -> list[float]:
    """The probability of each expert to be drawn; the sum is 1.

    Uniform: all the same. Skewed: Zipf's law, in proportion to 1, 1/2, 1/3 ...
    Trained-like: evenly from 1 + IMBALANCE times the mean down to 1 - IMBALANCE times;
    (max - mean) / mean is MaxVio (Wang et al. 2024).
    """
    if experts == 1 or routing is Routing.UNIFORM:
        weights = [1.0] * experts
    elif routing is Routing.SKEWED:
        weights = [1 / rank for rank in range(1, experts + 1)]
    else:
        step = 2 * IMBALANCE / (experts - 1)
        weights = [1 + IMBALANCE - step * rank for rank in range(experts)]
    total = sum(weights)
    return [weight / total for weight in weights]


def expected_hits(each: Iterable[float], tokens: int) -> float:
    """The expected number of experts that at least one of so many tokens chooses, where
    each token chooses by itself, each expert with its chance.
    """
    return sum(1 - (1 - chance) ** tokens for chance in each)


def expected_rows(moe: MoESpec, tokens: int, routing: Routing) -> list[float]:
    """The expected number of tokens that each expert with weights computes, of so many
    in a call.
    """
    each = chances(routing, moe.outputs, moe.top_k)[: moe.experts]
    most = moe.most_rows(tokens)
    rows_of = {chance: _expected_up_to(most, chance, tokens) for chance in {*each}}
    return [rows_of[chance] for chance in each]


def _expected_up_to(most: int, chance: float, tokens: int) -> float:
    """The expectation of a binomial number, or of `most` where it is larger."""
    mean = chance * tokens
    if most >= tokens or chance >= 1:
        return min(mean, most)
    # beyond so many standard deviations there is less than rounding shows
    reach = 12 * sqrt(mean) + 12
    lost = 0.0
    for count in range(max(most + 1, int(mean - reach)), int(mean + reach) + 1):
        if count <= tokens:
            ways = lgamma(tokens + 1) - lgamma(count + 1) - lgamma(tokens - count + 1)
            of_count = count * log(chance) + (tokens - count) * log1p(-chance)
            lost += (count - most) * exp(ways + of_count)
    return mean - lost


def expected_loads(moe: MoESpec, tokens: int, routing: Routing) -> list[int]:
    """As `expected_rows`, in whole tokens."""
    rows = expected_rows(moe, tokens, routing)
    ends = [round(total) for total in accumulate(rows, initial=0.0)]
    return [end - start for start, end in pairwise(ends)]


@cache
def chances(routing: Routing, experts: int, top_k: int) -> list[float]:
    """The probability of each expert to be among the `top_k` that a token draws without
    replacement.

    With exponential times whose rates are the shares, the first k to come are such a
    draw (Efraimidis & Spirakis 2006). So the chance of an expert is the integral over
    its time of the probability that fewer than k others came before, by the trapezoidal
    rule in the logarithm of the time.
    """
    if routing is Routing.UNIFORM:
        return [top_k / experts] * experts
    rates = shares(routing, experts)
    latest, step = log(40 / min(rates)), STEP / sqrt(top_k)
    found = [0.0] * experts
    for point in range(int((latest - EARLIEST) / step) + 1):
        time = exp(EARLIEST + step * point)
        come = [1 - exp(-rate * time) for rate in rates]
        before = _counts(come, top_k)
        after = _counts(come[::-1], top_k)[::-1]
        for expert, rate in enumerate(rates):
            at_most = list(accumulate(after[expert + 1]))
            fewer = sum(
                some * at_most[top_k - 1 - count]
                for count, some in enumerate(before[expert])
            )
            found[expert] += step * time * rate * exp(-rate * time) * fewer
    return found


def _counts(come: list[float], top_k: int) -> list[list[float]]:
    """For the first 0, 1, 2 ... experts, the probabilities that 0, 1 ... top_k - 1 of
    them have come, where each has come with its own probability.
    """
    counts = [[1.0] + [0.0] * (top_k - 1)]
    for chance in come:
        last = counts[-1]
        counts.append(
            [
                (1 - chance) * now + chance * fewer
                for now, fewer in zip(last, [0.0, *last], strict=False)
            ]
        )
    return counts

"""The next width to try: where a line, a noisy line and a step have it."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ffnbench.stats.matching import Trial, next_width

START = 2048


def searched(ratio, multiple: int, runs: int = 3) -> int:
    """The width after so many exact trials, from 2,048."""
    width, trials = START, []
    for _ in range(runs):
        trials.append(Trial(width, ratio(width)))
        width = next_width(trials, multiple)
    return width


@given(
    constant=st.floats(0.0, 0.75),
    truth=st.integers(256, 4000),
    multiple=st.sampled_from([1, 8, 64, 128]),
)
@example(constant=0.75, truth=2304, multiple=128)
def test_a_line_is_met_in_three_trials(
    constant: float, truth: int, multiple: int
) -> None:
    """The time is 1 at `truth`, a constant of it for any width. What is found takes at
    most 1 % longer; the next multiple but one takes as long or longer.
    """

    def ratio(width: int) -> float:
        return constant + (1 - constant) * width / truth

    width = searched(ratio, multiple)
    assert width % multiple == 0
    if width > multiple:
        assert ratio(width) <= 1.0101
    assert ratio(width + 2 * multiple) >= 1 or ratio(width) > 0.9899


@given(
    st.lists(st.tuples(st.integers(1, 99), st.floats(0.2, 5.0)), min_size=1, max_size=4)
)
def test_whatever_noise_says_the_width_stays_in_reach(
    found: list[tuple[int, float]],
) -> None:
    trials = [Trial(64 * steps, ratio) for steps, ratio in found]
    width = next_width(trials, 64)
    assert width % 64 == 0
    assert 64 <= width <= 2 * max(trial.d_ff for trial in trials)


@pytest.mark.parametrize(
    ("trials", "expected"),
    [
        # 2048 / 1.25 is 1638.4: between 1,600 and 1,664, nearer to 1,664, which takes
        # 1.6 % longer
        ([Trial(2048, 1.25)], 1600),
        # half way between, by the secant
        ([Trial(1024, 0.8), Trial(2048, 1.2)], 1536),
        # near enough: it stays
        ([Trial(2048, 1.009)], 2048),
        # its mean over two runs is near enough
        ([Trial(2048, 1.04), Trial(2048, 0.97)], 2048),
        # twice as wide at most
        ([Trial(64, 0.1)], 128),
        # longer at the least width already
        ([Trial(64, 1.3)], 64),
    ],
)
def test_by_hand(trials: list[Trial], expected: int) -> None:
    assert next_width(trials, 64) == expected

from __future__ import annotations

import pytest

from ffnbench.common.errors import FfnbenchError
from ffnbench.plan import reading


@pytest.mark.parametrize(
    ("text", "count"),
    [("512", 512), ("2k", 2000), ("2K", 2000), ("2Ki", 2048), ("1.5k", 1500), ("128Ki", 131072), ("1M", 1000000),
     (" 7 ", 7), ("0.001k", 1), (".5Ki", 512), ("-3", -3)],
)  # fmt: skip
def test_counts_as_people_write_them(text: str, count: int) -> None:
    assert reading.count("--n", text) == count


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("5m", 300), ("5min", 300), ("1h", 3600), ("1m30s", 90), ("1h 30m", 5400), ("0.5h", 1800),
     ("250ms", 0.25), ("1d", 86400), ("inf", float("inf"))],
)  # fmt: skip
def test_times_as_people_write_them(text: str, seconds: float) -> None:
    assert reading.seconds("--t", text) == seconds


@pytest.mark.parametrize("read", [reading.count, reading.seconds, reading.percent])
@pytest.mark.parametrize(
    "text", ["", "k", "%", "s", "5x", "1%%", "2kk", "5 m 3", "1s1s", "½", "2k%"]
)
def test_what_is_no_quantity_is_an_error_that_shows_some(read, text: str) -> None:
    with pytest.raises(FfnbenchError) as caught:
        read("--x", text)
    assert repr(text) in caught.value.message
    assert any(example in caught.value.hint for example in ("2Ki", "1m30s", "0.5%"))

"""What samples and the machine say of noise: each warning where it belongs, silence
where all is well.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ffnbench.run.world import Watch


def test_what_other_processes_used_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten seconds pass; this process uses none of them."""
    seconds = iter([0.0, 10.0, 0.0, 1.0])
    monkeypatch.setattr("ffnbench.run.world.time.monotonic", lambda: next(seconds))
    idle = type("Usage", (), {"ru_utime": 0.0, "ru_stime": 0.0})
    monkeypatch.setattr("ffnbench.run.world.resource.getrusage", lambda who: idle)
    stat, told = tmp_path / "stat", []
    for _ in ("long enough", "too short to tell"):
        stat.write_text("cpu  0 0 0 0 0 0 0 0 0 0\n")
        watch = Watch(stat)
        stat.write_text(
            "cpu  700 0 0 9000 0 0 0 200 0 0\n"
        )  # hundredths: busy, idle, stolen
        told.append(watch.around().others_cpus)
    assert told == [pytest.approx(0.7), None]
    assert Watch(tmp_path / "nowhere").around().others_cpus is None

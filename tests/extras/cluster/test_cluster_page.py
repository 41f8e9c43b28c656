"""The commands of docs/cluster.md work as they stand there."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import ROOT
from test_jobs import Jobs

from ffnbench.extras.cluster import jobs

PAGE = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
LINES = [line for line in PAGE.splitlines() if line.startswith("ffnbench ")]


def test_the_lines_of_the_page_work_one_after_another(
    on_fakes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Jobs().stand_in(monkeypatch)
    monkeypatch.setattr(jobs.Cluster, "executor", lambda cluster, folder: None)
    assert len(LINES) == 2
    for line in LINES:
        code, _, err = on_fakes(*line.split()[1:])
        assert code == 0, err
        assert Path("sweep.json").exists()

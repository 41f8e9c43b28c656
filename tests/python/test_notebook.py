"""docs/python.ipynb in a kernel of Jupyter: every cell runs, and what is shown is what
a reader wants to see.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from paths import ROOT

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
NOTEBOOK = ROOT / "docs" / "python.ipynb"


def test_the_notebook_is_small_and_holds_no_output() -> None:
    assert NOTEBOOK.stat().st_size < 20_000
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    assert all(not cell.get("outputs") for cell in cells)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of Jupyter's own packages
def test_the_notebook_measures_and_shows_tables_and_figures(tmp_path: Path) -> None:
    """As it stands there, with real workers."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute(env={**os.environ, "PYTHONPATH": str(ROOT)})
    shown = [
        one.get("data", {})
        for cell in notebook.cells
        for one in cell.get("outputs", ())
    ]
    assert any("vs relu" in data.get("text/plain", "") for data in shown)
    assert any("<table" in data.get("text/html", "") for data in shown)
    assert sum("image/png" in data for data in shown) >= 2

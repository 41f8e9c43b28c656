"""docs/python.ipynb in a kernel of Jupyter: every cell runs, and what is shown is what
a reader wants to see.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from fake_machine import KnownProber
from paths import ROOT

from ffnbench.ffn.spec import ActivationSpec
from ffnbench.record.result import ActivationCurve

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
# a kernel takes long to start; warnings of Jupyter's own packages come and go
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

FAKED = f"""
import sys
sys.path[:0] = [{str(ROOT / "tests")!r}, {str(ROOT / "tests" / "python")!r}]
from fake_machine import FakeLaunch
from test_notebook import Known
from ffnbench import api
from ffnbench.run import world
world.this_machine = lambda: world.World(launch=FakeLaunch(), prober=Known)
"""


class Known(KnownProber):
    """Knows what an activation is like, whichever it is: no torch, so that a kernel
    starts quickly.
    """

    def curve(
        self, spec: ActivationSpec, low: float, high: float, points: int
    ) -> ActivationCurve:
        x = tuple(low + (high - low) * i / (points - 1) for i in range(points))
        return ActivationCurve(
            x=x, y=tuple(max(0.0, v) for v in x), slope=tuple(float(v > 0) for v in x)
        )


FURTHER = [
    "print(ffnbench.cost('relu', d_model=64))",
    "ffnbench.cost('relu', d_model=64).show()",
    "class Mine:\n    pass\nffnbench.cost(['relu', Mine])",
    "from fake_machine import interrupted_in_the_second_worker\n"
    "world.this_machine = lambda: world.World(launch=FakeLaunch(interrupted_in_the_second_worker))\n"
    "ffnbench.compare('relu,gelu', d_model=64, workers=3, rounds=2)",
]


def executed(folder: Path, cells: list[Any], *, before: str = "") -> Any:
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(before), *cells]
    )
    client = nbclient.NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(folder)}}
    )
    client.execute(env={**os.environ, "PYTHONPATH": str(ROOT)})
    return notebook.cells[1:]


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The notebook, and a few cells more, in one kernel; nothing is measured."""
    written = nbformat.read(ROOT / "docs" / "python.ipynb", as_version=4).cells
    further = [
        nbformat.v4.new_code_cell(source, metadata={"tags": ["raises-exception"]})
        for source in FURTHER
    ]
    return executed(
        tmp_path_factory.mktemp("notebook"), [*written, *further], before=FAKED
    )


def outputs(cells: list[Any], source: str) -> list[Any]:
    return next(cell for cell in cells if source in cell.source)["outputs"]


def texts(cells: list[Any]) -> list[str]:
    found = []
    for cell in (cell for cell in cells if cell.cell_type == "code"):
        for one in cell.outputs:
            found += [one.get("text", ""), *one.get("traceback", [])]
            found += [
                text
                for kind, text in one.get("data", {}).items()
                if kind.startswith("text/")
            ]
    return found


def test_the_notebook_is_small_and_holds_no_output() -> None:
    path = ROOT / "docs" / "python.ipynb"
    assert path.stat().st_size < 20_000
    assert all(
        not cell.get("outputs") for cell in nbformat.read(path, as_version=4).cells
    )


def test_tables_and_figures_are_shown(cells) -> None:
    *progress, table = outputs(cells, "\nreport")
    assert {one.name for one in progress} == {"stderr"}
    assert table.output_type == "execute_result"
    assert "vs relu" in table.data["text/plain"]
    (shown,) = outputs(cells, ".show()")
    assert [one.data["text/html"].count("<table") for one in (table, shown)] == [1, 1]
    (printed,) = outputs(cells, "print(ffnbench.cost(")
    assert printed.text.startswith("d_model")
    for source in ("report.plot()", "plot_activations"):
        assert "image/png" in outputs(cells, source)[-1].data
    assert not [text for text in texts(cells) if "\x1b" in text or "<pre" in text]


def test_a_mistake_is_two_lines_and_an_interruption_stops_the_notebook(cells) -> None:
    (mistake,) = outputs(cells, '"swigul"')
    error, hint = mistake.traceback
    assert error == "error: unknown variant 'swigul'"
    assert hint.startswith("hint: did you mean 'swiglu'")
    (cell,) = outputs(cells, "class Mine:\n    pass")
    assert "no file has it" in cell.traceback[0]
    assert "%%writefile mine.py" in cell.traceback[1]
    *_, stopped = outputs(cells, "interrupted_in_the_second_worker")
    assert (stopped.ename, len(stopped.traceback)) == ("KeyboardInterrupt", 1)
    assert re.match(
        "KeyboardInterrupt: .* holds what was measured by then", stopped.traceback[0]
    )


def test_the_notebook_measures(tmp_path: Path) -> None:
    """As it stands there, with real workers."""
    cells = executed(
        tmp_path, nbformat.read(ROOT / "docs" / "python.ipynb", as_version=4).cells
    )
    assert "vs relu" in outputs(cells, "\nreport")[-1].data["text/plain"]

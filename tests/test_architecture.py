"""The rules of the house, read off the source: imports go down, torch stays in its files, files stay small."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest
from conftest import ROOT

PACKAGE = ROOT / "ffnbench"
FILES = sorted(PACKAGE.rglob("*.py"))
HEAVY = {"torch", "pandas", "matplotlib", "numpy", "scipy"}
TORCH_FILES = {
    "ffn/modules.py", "ffn/attend.py", "ffn/dense.py", "ffn/experts.py", "bench/meters.py", "bench/jobs.py",
    "bench/counting.py", "bench/study.py", "bench/rivals.py", "bench/routing.py", "bench/agreement.py",
    "bench/backends.py",
}  # fmt: skip
PICTURE_FILES = {"report/plots.py", "report/curves.py", "report/surfaces.py", "report/blockpicture.py"}
# lower numbers know nothing of higher ones; a room's files may import their siblings
RANKS = {
    "errors": -1, "interruption": 0, "registry": 0, "units": 0, "jsonable": 0, "__init__": 0, "arm": 0, "ffn": 1,
    "centre": 1, "plan": 2, "sides": 2, "protocol": 3, "result": 3, "workload": 3, "fitting": 3, "modelflags": 3,
    "request": 4, "noise": 4, "selection": 5, "stats": 5, "blockplan": 5, "sampling": 6, "selftest": 6, "check": 6,
    "alarms": 6.5, "twolooks": 6.5, "abcheck": 6.5, "bench": 7, "report": 7, "api": 8, "show": 8, "gallery": 8,
    "timing": 8, "trial": 8, "options": 8, "app": 8, "models": 8, "block": 9, "cli_models": 9, "gate": 9,
    "study_options": 9, "ab_options": 9, "cli_block": 10, "gateshow": 10, "cli_study": 10, "ab": 10, "cli_gate": 11,
    "cli_ab": 11, "cli": 12, "__main__": 13,
}  # fmt: skip


def part_of(name: str) -> str:
    """ffnbench.ffn.cost -> ffn; ffnbench.plan -> plan; ffnbench -> __init__."""
    return name.split(".")[1] if "." in name else "__init__"


def imports(path, *, module_level: bool = False) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = tree.body if module_level else list(ast.walk(tree))
    found = []
    for node in nodes:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [f"{node.module}.{a.name}" if node.module == "ffnbench" else node.module for a in node.names]
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_strictly_down(path) -> None:
    relative = path.relative_to(PACKAGE)
    here = relative.parts[0].removesuffix(".py")
    if here == "__init__":
        return  # the shop window: lazy names only, see below
    for name in imports(path):
        if name.startswith("ffnbench") and name != "ffnbench.__version__":
            there = part_of(name)
            assert there == here if RANKS[there] == RANKS[here] else RANKS[there] < RANKS[here], f"{relative}: {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_heavy_imports_stand_only_where_they_may(path) -> None:
    at_top = {name.split(".")[0] for name in imports(path, module_level=True)} & HEAVY
    here = str(path.relative_to(PACKAGE))
    allowed = {"torch"} if here in TORCH_FILES else {"matplotlib", "numpy"} if here in PICTURE_FILES else set()
    assert at_top <= allowed


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_files_are_one_concept_and_say_which(path) -> None:
    text = path.read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(text)), "no module docstring"
    assert len(text.splitlines()) <= 350
    assert path.stem not in {"utils", "helpers", "common", "core", "base", "manager"}


def public(body: list[ast.stmt]) -> list[ast.stmt]:
    """Public functions and classes of a module, and the public methods of those classes."""
    found = [n for n in body if isinstance(n, ast.FunctionDef | ast.ClassDef) and not n.name.startswith("_")]
    return found + [m for n in found if isinstance(n, ast.ClassDef) for m in public(n.body)]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_functions_stay_short_and_public_ones_say_what_they_do(path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in public(tree.body):
        one_line = len(node.body) == 1 and not isinstance(node, ast.ClassDef)
        assert ast.get_docstring(node) or one_line or node.name == "forward", f"{path.name}: {node.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and not path.name.startswith("cli"):  # there, flags are parameters
            assert node.end_lineno - node.lineno <= 60, f"{path.name}: {node.name}"


def loaded_after(code: str) -> set[str]:
    """Heavy packages in sys.modules after running code in a fresh interpreter."""
    probe = f"{code}\nimport sys; print('LOADED', *sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert "LOADED" in done.stdout, done.stderr
    return set(done.stdout.split("LOADED")[1].split())


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["cost"], ["cost", "--format", "csv"], ["list", "rules"], ["compare", "--help"]],
)
def test_commands_that_need_no_torch_load_none(arguments: list[str]) -> None:
    code = f"import sys; sys.argv = ['ffnbench', *{arguments!r}]\nfrom ffnbench.cli import main\n"
    assert loaded_after(code + "try: main()\nexcept SystemExit as e: assert not e.code, e.code") == set()


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert loaded_after("import ffnbench; ffnbench.FFNSpec; ffnbench.Report; ffnbench.compare") == set()


def test_the_parent_of_a_measurement_never_loads_torch() -> None:
    code = (
        "import sys; sys.path.insert(0, 'tests')\nfrom conftest import FakeLaunch\nfrom ffnbench import api\n"
        "from ffnbench.request import Request\napi.prepare(Request(quick=True)).measure(launch=FakeLaunch())"
    )
    assert loaded_after(code) <= {"numpy", "scipy"}

"""The rules of the house, read off the source: imports go down between rooms, no
circles, torch stays in its files.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from itertools import permutations

import pytest
from paths import ROOT
from weight import loaded_by, nodes_of

PACKAGE = ROOT / "ffnbench"
FILES = sorted(PACKAGE.rglob("*.py"))
HEAVY = {"torch", "pandas", "matplotlib", "numpy", "scipy"}
TORCH_FILES = {
    "device/accelerator.py", "ffn/stack_module.py", "ffn/experts.py", "ffn/proof.py", "models/read.py", "models/weights.py", "ffn/modules.py",
    "worker/device_timing.py", "worker/agreement.py", "worker/backends/building.py",
    "worker/backends/compiling.py", "worker/backends/eager.py", "worker/backends/onednn.py",
    "worker/backends/onnx_graph.py", "worker/backends/openvino.py", "worker/backends/ort.py",
    "worker/backends/quantised.py", "worker/backends/running.py",
    "worker/rate.py", "worker/rotation.py", "worker/correctness.py", "worker/failures.py", "worker/activation_jobs.py", "worker/jobs.py",
    "worker/plain_rounding.py", "worker/timing.py", "worker/peak_memory.py", "worker/probe_jobs.py", "worker/subject.py",
}  # fmt: skip
# where matplotlib and numpy are at home
PICTURES = ("report/pictures/", "block/picture.py", "activations/picture.py")
QUESTIONS = (
    "compare",
    "block",
    "activations",
    "gate",
)  # rooms side by side, each from its plan to its command
# from the top of the house to its ground: a room imports from those below it; files of
# one room may import each other
ROOMS = (
    "__main__", "app", "inspecting", *QUESTIONS, "api", "report", "run", "worker", "device",
    "stats", "record", "plan", "models", "ffn", "common",
)  # fmt: skip
APART = {
    ("report", room) for room in ("run", "worker", "device")
}  # neither knows the other
APART |= set(permutations(QUESTIONS, 2))
# by the kind of a plan: the table and the picture of its question, and what is wrong
# with it
UP = {
    ("report/shown_report.py", "compare"), ("report/shown_report.py", "block"),
    ("report/shown_report.py", "activations"), ("report/store.py", "block"),
}  # fmt: skip
# what commands load, in the parent and its workers together (benchmarks/weight.py)
MODULES_OF_COMPARE, NODES_OF_COMPARE = 89, 106_300
MODULES_OF_COST, NODES_OF_HELP = 52, 12_580
# what the house weighs at most: syntax nodes of a folder, files of the package, columns
# of a case; they only fall, and who adds to them names what leaves
NODES = {"ffnbench": 182_660, "tests": 110_732, "benchmarks": 16_020}
MODULES, COLUMNS = 158, 45


def part_of(name: str) -> str:
    """ffnbench.ffn.cost -> ffn; ffnbench.plan.plan -> plan; ffnbench -> __init__."""
    return name.split(".")[1] if "." in name else "__init__"


@cache
def tree_of(path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path, *, module_level: bool = False) -> list[str]:
    tree = tree_of(path)
    nodes = tree.body if module_level else list(ast.walk(tree))
    found = []
    for node in nodes:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def test_every_file_stands_in_a_room() -> None:
    found = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in FILES}
    assert found - {"__init__"} == set(ROOMS)


def test_imports_go_down_between_rooms_and_stay_in_the_wheel() -> None:
    for path in FILES:
        here = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        names = imports(path)
        assert not {name.split(".")[0] for name in names} & {
            "benchmarks",
            "exam",
            "tests",
            "conftest",
        }, path
        for name in (
            names if here != "__init__" else ()
        ):  # the shop window: lazy names only, see below
            there = part_of(name)
            if (str(path.relative_to(PACKAGE)), there) in UP:
                continue
            if name.startswith("ffnbench.") and there not in (here, "__version__"):
                assert ROOMS.index(there) > ROOMS.index(here), f"{here} knows of {name}"
                assert (here, there) not in APART, f"{here} knows of {name}"


def test_no_private_name_crosses_files() -> None:
    for path in FILES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                "ffnbench"
            ):
                private = [
                    one.name
                    for one in node.names
                    if one.name.startswith("_") and one.name[:2] != "__"
                ]
                assert not private, f"{path} imports {private}"


def test_writers_call_no_function_that_makes_figures() -> None:
    """Figures stand in the report: what writes, draws or says one takes it from there.
    Types and constants are data.
    """
    writers = [*PACKAGE.glob("report/*.py"), *PACKAGE.glob("report/pictures/*.py")]
    writers += [PACKAGE / "compare" / f"{name}.py" for name in ("table", "pivots")]
    writers.append(PACKAGE / "gate" / "table.py")
    for room in ("block", "activations"):
        for name in ("table", "picture", "layers"):
            writers += PACKAGE.glob(f"{room}/{name}.py")
    assert len(writers) > 25
    of_figures = (
        "ffnbench.stats.",
        "ffnbench.gate.decision.",
        "ffnbench.gate.baseline.",
    )
    for path in writers:
        called = [
            name
            for name in imports(path)
            if name.startswith(of_figures) and name.rpartition(".")[2].islower()
        ]
        assert not called, f"{path} calls {called}"


def test_heavy_imports_stand_only_where_they_may() -> None:
    for path in FILES:
        at_top = {
            name.split(".")[0] for name in imports(path, module_level=True)
        } & HEAVY
        here = str(path.relative_to(PACKAGE))
        draws = here.startswith(PICTURES)
        runs = here in TORCH_FILES
        allowed = {"torch"} if runs else {"matplotlib", "numpy"} if draws else set()
        assert at_top <= allowed, here


def test_a_worker_needs_torch_and_the_standard_library_alone() -> None:
    """What else a backend or a device needs may be missing."""
    optional = {"onnx", "onnxruntime", "openvino", "pynvml"}
    needed = {"ffnbench", "torch", *sys.stdlib_module_names}
    for room in ("worker", "device", "ffn", "plan", "record", "common"):
        for path in (PACKAGE / room).rglob("*.py"):
            roots = {name.split(".")[0] for name in imports(path)}
            assert roots <= needed | optional, path
            top = {name.split(".")[0] for name in imports(path, module_level=True)}
            assert top <= needed or path.stem == "onnx_graph", path


def test_pictures_load_matplotlib_away_from_the_current_folder() -> None:
    """`report/pictures/__init__.py` does so: elsewhere its import stands before
    theirs.
    """
    for path in FILES:
        if str(path.relative_to(PACKAGE)).startswith(PICTURES[1:]):
            own = [
                name
                for name in imports(path, module_level=True)
                if name.split(".")[0] in {"ffnbench", *HEAVY}
            ]
            assert own[0].startswith("ffnbench.report.pictures."), path


def public(body: list[ast.stmt]) -> list[ast.stmt]:
    """Public functions and classes of a module, and the public methods of those
    classes.
    """
    found = [
        n
        for n in body
        if isinstance(n, ast.FunctionDef | ast.ClassDef) and not n.name.startswith("_")
    ]
    return found + [
        m for n in found if isinstance(n, ast.ClassDef) for m in public(n.body)
    ]


def test_files_and_public_names_say_what_they_are() -> None:
    for path in FILES:
        tree = tree_of(path)
        assert ast.get_docstring(tree), f"{path}: no module docstring"
        assert path.stem not in {
            "utils",
            "helpers",
            "common",
            "core",
            "base",
            "manager",
        }
        for node in public(tree.body):
            one_line = len(node.body) == 1 and not isinstance(node, ast.ClassDef)
            assert ast.get_docstring(node) or one_line or node.name == "forward", (
                f"{path}: {node.name}"
            )


def test_no_two_files_of_tests_have_one_name() -> None:
    """pytest imports them by their names alone."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))


def loaded_after(code: str) -> set[str]:
    """What is in sys.modules after running code in a fresh interpreter."""
    probe = f"{code}\nimport sys; print('LOADED', *sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", probe],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
    )
    assert "LOADED" in done.stdout, done.stderr
    return set(done.stdout.rpartition("LOADED")[2].split())


def test_the_parent_of_a_comparison_loads_no_torch() -> None:
    code = (
        "import sys; sys.path.insert(0, 'tests')\nfrom fake_machine import FakeLaunch, measure, prepare\n"
        "print(measure(prepare(quick=True), launch=FakeLaunch()))"
    )
    loaded = loaded_after(code)
    assert not loaded & HEAVY


def test_the_house_is_no_heavier_than_it_was(in_process) -> None:
    for folder, most in NODES.items():
        files = (ROOT / folder).rglob("*.py")
        assert sum(len(nodes_of(path)) for path in files) <= most, folder
    assert len(FILES) <= MODULES
    head = in_process("cost", "relu", "-f", "csv")[1].partition("\n")[0]
    assert len(head.split(",")) <= COLUMNS


def test_a_command_loads_no_more_of_the_house_than_it_needs() -> None:
    """What parent and workers load together; the limits only fall."""
    compared = loaded_by(
        [
            "compare",
            "relu",
            "mine=own.py:Own",
            "--d-model",
            "64",
            "--workers",
            "3",
            "--rounds",
            "1",
            "-q",
        ]
    )
    assert len(compared) <= MODULES_OF_COMPARE
    assert sum(len(nodes_of(path)) for path in compared) <= NODES_OF_COMPARE
    assert len(loaded_by(["cost", "relu"])) <= MODULES_OF_COST
    assert sum(len(nodes_of(path)) for path in loaded_by(["--help"])) <= NODES_OF_HELP


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["compare", "--help"], ["cost"], ["cost", "--hardware", "h100"]],
)
def test_commands_that_only_count_or_tell_load_nothing_heavy(
    arguments: list[str],
) -> None:
    code = f"import sys; sys.argv = ['ffnbench', *{arguments!r}]\nfrom ffnbench.app.main import main\n"
    loaded = loaded_after(
        code + "try: main()\nexcept SystemExit as e: assert not e.code, e.code"
    )
    assert not loaded & {*HEAVY, "pydantic"}
    assert "--help" not in arguments or not loaded & {
        "rich",
        "ffnbench.api",
        "ffnbench.report.destination",
    }


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert (
        not loaded_after(
            "import ffnbench; ffnbench.FFNSpec; ffnbench.Report; ffnbench.compare"
        )
        & HEAVY
    )

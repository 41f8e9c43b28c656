"""How heavy the house is: `python benchmarks/weight.py`.

Prints the lines of each room, all of them and those that are neither blank nor comment
nor docstring; statements and syntax nodes, nodes a line and conditional expressions in
a thousand lines of code; syntax nodes of tests and of benchmarks; lines of data;
modules of ours that a command loads, in its parent and its workers together, with their
syntax nodes; seconds of `--help` and `cost`, the best of five; words of the documents.
Seconds of the tests: `pytest --durations=20`.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
import time
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "ffnbench"
DOCUMENTS = [*ROOT.glob("docs/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
BLANK = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
OWN_MODULE = """
from torch import nn


class Own(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.up = nn.Linear(d_model, d_ff, bias=False)
        self.down = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x):
        return self.down(nn.functional.relu(self.up(x)))
"""
COMPARE = ["compare", "relu", "mine=own.py:Own", "--d-model", "64", "--quick", "-q"]
COMMANDS = {"--help": ["--help"], "cost": ["cost", "relu"], "compare": COMPARE}
# what every Python process of a command runs first: it notes each module of ours whose
# import begins
NOTING = """
import os, sys

class Noting:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.split(".")[0] == "ffnbench":
            with open(os.environ["NOTED_MODULES"], "a") as file:
                file.write(name + "\\n")

sys.meta_path.insert(0, Noting)
"""


def lines_of(path: Path) -> tuple[int, int]:
    """All lines of a file, and those with code."""
    text = path.read_text(encoding="utf-8")
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            docstrings |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    code: set[int] = set()
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type not in BLANK and token.type != tokenize.ENCODING:
                code |= set(range(token.start[0], token.end[0] + 1))
    return len(text.splitlines()), len(code - docstrings)


def nodes_of(path: Path) -> list[ast.AST]:
    """All syntax nodes of a file."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def syntax() -> tuple[int, int, int]:
    """Statements, syntax nodes and conditional expressions of the package."""
    nodes = [node for path in PACKAGE.rglob("*.py") for node in nodes_of(path)]
    statements = sum(isinstance(node, ast.stmt) for node in nodes)
    conditionals = sum(isinstance(node, ast.IfExp) for node in nodes)
    return statements, len(nodes), conditionals


def rooms() -> dict[str, tuple[int, int, int]]:
    """For each room its files, its lines and its lines of code; files without a room
    stand together.
    """
    found: dict[str, Counter[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        inside = path.relative_to(PACKAGE).parts
        every, code = lines_of(path)
        found.setdefault(
            inside[0] if len(inside) > 1 else "(loose files)", Counter()
        ).update(files=1, lines=every, code=code)
    return {room: (of["files"], of["lines"], of["code"]) for room, of in found.items()}


def loaded_by(arguments: list[str]) -> list[Path]:
    """The files of ours that a command loads, in the parent and in its workers
    together.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sitecustomize.py").write_text(NOTING, encoding="utf-8")
        (folder / "own.py").write_text(OWN_MODULE, encoding="utf-8")
        noted = folder / "modules"
        path = os.pathsep.join([name, str(ROOT)])
        environment = os.environ | {"PYTHONPATH": path, "NOTED_MODULES": str(noted)}
        command = [sys.executable, "-m", "ffnbench", *arguments]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
            env=environment,
        )
        if done.returncode:
            sys.exit(f"{command}: {done.stderr}")
        modules = set(noted.read_text(encoding="utf-8").split())
    return [file for module in sorted(modules) if (file := file_of(module)) is not None]


def file_of(module: str) -> Path | None:
    """The file of a module of ours; None where the name is no module's."""
    path = ROOT / module.replace(".", "/")
    for file in (path / "__init__.py", path.with_suffix(".py")):
        if file.is_file():
            return file
    return None


def seconds_of(arguments: list[str]) -> float:
    """The least of five runs, as a process of its own."""
    taken = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "ffnbench", *arguments],
            capture_output=True,
            check=True,
            cwd=ROOT,
        )
        taken.append(time.perf_counter() - start)
    return min(taken)


def count(paths: list[Path]) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def main() -> None:
    """Print the table."""
    found = rooms()
    print(f"{'room':14} {'files':>6} {'lines':>7} {'code':>7}")
    for room, (files, lines, code) in sorted(
        found.items(), key=lambda item: -item[1][1]
    ):
        print(f"{room:14} {files:6} {lines:7,} {code:7,}")
    files, lines, code = (sum(column) for column in zip(*found.values(), strict=True))
    print(f"{'ffnbench/':14} {files:6} {lines:7,} {code:7,}")
    statements, nodes, conditionals = syntax()
    print(
        f"{statements:,} statements, {nodes:,} syntax nodes, {nodes / code:.1f} a line of code, "
        f"{1000 * conditionals / code:.0f} conditional expressions in 1,000 lines"
    )
    around = {
        room: sum(len(nodes_of(path)) for path in ROOT.glob(f"{room}/**/*.py"))
        for room in ("tests", "benchmarks")
    }
    print(
        "syntax nodes beside: "
        + ", ".join(f"{room} {nodes:,}" for room, nodes in around.items())
    )
    data = [path for path in PACKAGE.rglob("*") if path.suffix in (".toml", ".json")]
    print(
        f"data {count(data):,} lines; tests {count(list(ROOT.glob('tests/**/*.py'))):,} lines"
    )
    for name, words in COMMANDS.items():
        files_loaded = loaded_by(words)
        print(
            f"{name} loads {len(files_loaded)} modules, {sum(len(nodes_of(path)) for path in files_loaded):,} nodes"
        )
    print(
        "seconds: "
        + ", ".join(
            f"{name} {seconds_of(COMMANDS[name]):.2f}" for name in ("--help", "cost")
        )
    )
    words = {
        path.name: len(path.read_text(encoding="utf-8").split()) for path in DOCUMENTS
    }
    print(
        f"words of documents {sum(words.values()):,}: {', '.join(f'{name} {n:,}' for name, n in words.items())}"
    )


if __name__ == "__main__":
    main()

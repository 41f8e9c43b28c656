"""How heavy the house is: `python benchmarks/weight.py`.

Prints for each room its files, its lines of code (neither blank nor comment nor
docstring) and its syntax nodes; modules of ours that a command loads, in its parent and
its workers together, with their syntax nodes; words of the documents. Seconds of the
tests: `pytest --durations=20`.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

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


def code_of(path: Path) -> int:
    """The lines of a file with code: neither blank nor comment nor docstring."""
    docstrings: set[int] = set()
    for node in nodes_of(path):
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
    return len(code - docstrings)


def nodes_of(path: Path) -> list[ast.AST]:
    """All syntax nodes of a file."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def weights_of(paths: Iterable[Path], base: Path) -> pd.DataFrame:
    """For each room, a folder in `base`, its files, lines of code and syntax nodes."""
    rows = []
    for path in paths:
        inside = path.relative_to(base).parts
        room = inside[0] if len(inside) > 1 else "(files)"
        rows.append((room, 1, code_of(path), len(nodes_of(path))))
    frame = pd.DataFrame(rows, columns=["room", "files", "code", "nodes"])
    return frame.groupby("room").sum().sort_values("nodes", ascending=False)


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


def main() -> None:
    """Print the table."""
    weights = weights_of(PACKAGE.rglob("*.py"), PACKAGE)
    for room in ("ffnbench", "tests", "benchmarks"):
        paths = ROOT.glob(f"{room}/**/*.py")
        weights.loc[f"{room}/"] = weights_of(paths, ROOT).sum()
    weights["nodes a line"] = (weights.nodes / weights.code).round(1)
    print(weights.to_string())
    for name, words in COMMANDS.items():
        files = loaded_by(words)
        nodes = sum(len(nodes_of(path)) for path in files)
        print(f"{name} loads {len(files)} modules, {nodes:,} nodes")
    words_of = {path.name: len(path.read_text().split()) for path in DOCUMENTS}
    print(f"{sum(words_of.values()):,} words of documents: {words_of}")


if __name__ == "__main__":
    main()

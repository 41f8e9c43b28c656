"""How heavy the house is: `python benchmarks/weight.py`.

Prints the lines of each room, all of them and those that are neither blank nor comment nor docstring; statements and
syntax nodes, nodes a line and conditional expressions in a thousand lines of code; lines of data and of tests; modules
of ours that the parent loads for `--help`, `cost` and `compare`, and for the first two the seconds
that they take, the best of five; words of the documents. Seconds of the tests: `pytest --durations=20`.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import time
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "ffnbench"
DOCUMENTS = [*ROOT.glob("docs/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
BLANK = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
COMMANDS = {
    "--help": ["--help"],
    "cost": ["cost"],
    "compare": ["compare", "--d-model", "64", "--variants", "relu,gelu", "--budget", "1", "--metrics", "latency", "-q"],
}
PROBE = """
import atexit, os, sys
atexit.register(lambda: os.write(2, b"LOADED %d" % sum(name.split(".")[0] == "ffnbench" for name in sys.modules)))
from ffnbench.__main__ import main
main()
"""


def lines_of(path: Path) -> tuple[int, int]:
    """All lines of a file, and those with code."""
    text = path.read_text(encoding="utf-8")
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    code: set[int] = set()
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type not in BLANK and token.type != tokenize.ENCODING:
                code |= set(range(token.start[0], token.end[0] + 1))
    return len(text.splitlines()), len(code - docstrings)


def syntax() -> tuple[int, int, int]:
    """Statements, syntax nodes and conditional expressions of the package."""
    nodes = [node for path in PACKAGE.rglob("*.py") for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    statements = sum(isinstance(node, ast.stmt) for node in nodes)
    conditionals = sum(isinstance(node, ast.IfExp) for node in nodes)
    return statements, len(nodes), conditionals


def rooms() -> dict[str, tuple[int, int, int]]:
    """For each room its files, its lines and its lines of code; files without a room stand together."""
    found: dict[str, Counter[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        inside = path.relative_to(PACKAGE).parts
        every, code = lines_of(path)
        found.setdefault(inside[0] if len(inside) > 1 else "(contracts)", Counter()).update(
            files=1, lines=every, code=code
        )
    return {room: (of["files"], of["lines"], of["code"]) for room, of in found.items()}


def modules_of(arguments: list[str]) -> int:
    """Modules of ours that the parent has loaded when the command ends."""
    command = [sys.executable, "-c", PROBE, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    return int(done.stderr.rpartition("LOADED ")[2])


def seconds_of(arguments: list[str]) -> float:
    """The least of five runs, as a process of its own."""
    taken = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "ffnbench", *arguments], capture_output=True, check=True, cwd=ROOT)
        taken.append(time.perf_counter() - start)
    return min(taken)


def count(paths: list[Path]) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def main() -> None:
    """Print the table."""
    found = rooms()
    print(f"{'room':14} {'files':>6} {'lines':>7} {'code':>7}")
    for room, (files, lines, code) in sorted(found.items(), key=lambda item: -item[1][1]):
        print(f"{room:14} {files:6} {lines:7,} {code:7,}")
    files, lines, code = (sum(column) for column in zip(*found.values(), strict=True))
    print(f"{'ffnbench/':14} {files:6} {lines:7,} {code:7,}")
    statements, nodes, conditionals = syntax()
    print(
        f"{statements:,} statements, {nodes:,} syntax nodes, {nodes / code:.1f} a line of code, "
        f"{1000 * conditionals / code:.0f} conditional expressions in 1,000 lines"
    )
    data = [path for path in PACKAGE.rglob("*") if path.suffix in (".toml", ".json")]
    print(f"data {count(data):,} lines; tests {count(list(ROOT.glob('tests/**/*.py'))):,} lines")
    print("modules in the parent: " + ", ".join(f"{name} {modules_of(words)}" for name, words in COMMANDS.items()))
    print("seconds: " + ", ".join(f"{name} {seconds_of(COMMANDS[name]):.2f}" for name in ("--help", "cost")))
    words = {path.name: len(path.read_text(encoding="utf-8").split()) for path in DOCUMENTS}
    print(f"words of documents {sum(words.values()):,}: {', '.join(f'{name} {n:,}' for name, n in words.items())}")


if __name__ == "__main__":
    main()

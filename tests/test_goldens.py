"""What users see, as it was: help, saved runs shown again, every command on the fake machine.

`pytest tests/test_goldens.py --regenerate` writes the files in tests/golden anew; what has changed is then read in
`git diff tests/golden`. Nothing here knows more of ffnbench than its command line, its files and the fake machine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

GOLDEN = ROOT / "tests" / "golden"
COMMANDS = (
    "compare", "cost", "estimate", "report", "block", "train", "check", "ab", "bisect", "history", "plot",
    "plot-activations", "activations", "list", "env", "inspect", "selftest",
)  # fmt: skip
SAVED = [*sorted(ROOT.glob("results/**/*.json")), *sorted(GOLDEN.glob("runs/*.json"))]
PAIRS = {
    "same-plan": ("results/amd-epyc-2cpu/compare.json", "results/amd-epyc-2cpu/compare-again.json"),
    "three": tuple(f"results/amd-epyc-2cpu/swiglu-0768-{tokens}.json" for tokens in ("0001", "0016", "0512")),
}
ASKED = [(80, ""), (120, ""), (80, "-v"), (120, "-v"), (80, "-f markdown"), (80, "-f csv"), (80, "-f json")]
LEFT_OUT = {"samples", "judged", "inputs", "seal"}  # of JSON: what stands in the saved run as it was measured
SPEAKING = ("GITHUB_STEP_SUMMARY", "NO_COLOR", "FORCE_COLOR", "TERM", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "LINES")
Golden = Callable[[str, str], None]
Call = Callable[..., str]


def name_of(path: Path) -> str:
    """A run by its path: the folder of the machine tells nothing."""
    return "-".join(path.relative_to(ROOT).with_suffix("").parts).replace("results-amd-epyc-2cpu-", "").replace(
        "tests-golden-runs-", "fake-"
    )  # fmt: skip


def laid_out(value: Any, before: str = "", indent: str = "") -> str:
    """JSON whose lines are as long as they can be read, so that a difference is a short one."""
    text = json.dumps(value, ensure_ascii=False)
    if len(text) < 110 or not isinstance(value, dict | list):
        return f"{indent}{before}{text}"
    deeper, brackets = indent + " ", "{}" if isinstance(value, dict) else "[]"
    if isinstance(value, dict):
        parts = [laid_out(part, f"{json.dumps(key)}: ", deeper) for key, part in value.items()]
    else:
        parts = [laid_out(part, "", deeper) for part in value]
    return f"{indent}{before}{brackets[0]}\n" + ",\n".join(parts) + f"\n{indent}{brackets[1]}"


def without_samples(value: Any) -> Any:
    """A saved run without what only repeats the file that it was made from."""
    if isinstance(value, list):
        return [without_samples(part) for part in value]
    if isinstance(value, dict):
        return {key: without_samples(part) for key, part in value.items() if key not in LEFT_OUT}
    return value


def steady(text: str, folder: Path) -> str:
    """A text without what differs from one machine, folder or moment to another: all that is made equal is here."""
    text = text.replace(folder.as_uri(), "file://FOLDER").replace(str(folder), "FOLDER")
    text = text.replace(ROOT.as_uri(), "file://ROOT").replace(str(ROOT), "ROOT")
    text = re.sub(r"-?\d+\.\d{7,}(e[-+]\d+)?", lambda found: f"{float(found[0]):.9g}", text)  # libraries differ beyond
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", "THEN", text)
    return "".join(line.rstrip() + "\n" for line in text.splitlines())


def readable(text: str) -> str:
    """The same text; JSON of one line laid out."""
    return laid_out(without_samples(json.loads(text))) if text.startswith(("{", "[")) else text


@pytest.fixture
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Golden:
    """Compare a text with a file of tests/golden, or write it there."""

    def hold(file: str, text: str) -> None:
        path = GOLDEN / file
        text = steady(text, tmp_path)
        if request.config.getoption("regenerate"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"{file} is missing: pytest tests/test_goldens.py --regenerate"
        assert text.splitlines() == path.read_text(encoding="utf-8").splitlines()

    return hold


@pytest.fixture
def told(in_process, monkeypatch: pytest.MonkeyPatch) -> Call:
    """What a command line gives: the line itself, its exit code where that is not 0, stdout, stderr."""
    monkeypatch.chdir(ROOT)
    for name in SPEAKING:
        monkeypatch.delenv(name, raising=False)

    def call(line: str, columns: int = 80) -> str:
        monkeypatch.setenv("COLUMNS", str(columns))
        code, out, err = in_process(*line.split())
        parts = [f"$ COLUMNS={columns} ffnbench {line}\n", readable(out)]
        parts += [f"--- stderr\n{err}"] * bool(err) + [f"--- exit code {code}\n"] * bool(code)
        return "".join(part if part.endswith("\n") else f"{part}\n" for part in parts if part) + "\n"

    return call


@pytest.mark.parametrize("command", ["", *COMMANDS], ids=lambda name: name or "ffnbench")
def test_help(command: str, golden: Golden, told: Call) -> None:
    asked = [f"{command} --help".strip(), *[f"{command} --help-all"] * bool(command)]
    golden(f"help/{command or 'ffnbench'}.txt", "".join(map(told, asked)))


@pytest.mark.parametrize("path", SAVED, ids=name_of)
def test_report(path: Path, golden: Golden, told: Call) -> None:
    run = path.relative_to(ROOT)
    golden(f"report/{name_of(path)}.txt", "".join(told(f"report {run} {how}".strip(), width) for width, how in ASKED))


@pytest.mark.parametrize("pair", PAIRS)
def test_report_side_by_side(pair: str, golden: Golden, told: Call) -> None:
    line = f"report {' '.join(PAIRS[pair])}"
    golden(f"report/side-by-side-{pair}.txt", "".join(told(f"{line} {how}".strip(), width) for width, how in ASKED))


def test_no_golden_is_left_over() -> None:
    pairs = [f"side-by-side-{pair}" for pair in PAIRS]
    expected = {"help": ["ffnbench", *COMMANDS], "report": [*map(name_of, SAVED), *pairs]}
    for folder, names in expected.items():
        assert sorted(path.name for path in (GOLDEN / folder).iterdir()) == sorted(f"{name}.txt" for name in names)

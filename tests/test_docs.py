"""The documents are true: their commands run, their outputs are what is printed, their
links lead somewhere.
"""

from __future__ import annotations

import inspect
import json
import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
from fake_machine import FakeLaunch, ProberHere, measure, prepare
from paths import ROOT
from repositories import two_sides
from shell import COMMANDS

import ffnbench
from ffnbench.app.main import run_command_line
from ffnbench.block.rows import MEASURED
from ffnbench.compare.table import BOUNDS
from ffnbench.report.columns import COLUMNS
from ffnbench.report.store import report_text

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
DOCUMENTS = [*PAGES, *ROOT.glob("results/*.md")]
TEXTS = {path.name: path.read_text(encoding="utf-8") for path in PAGES}
BLOCK = re.compile(r"(?:<!-- (\S+) -->\n)?```(\w*)\n(.*?)```", re.DOTALL)


RUNTIME = re.search(r"```py\n(# runtime\.py\n.*?)```", TEXTS["runtimes.md"], re.DOTALL)[
    1
]


def blocks(kind: str) -> list[tuple[str, str]]:
    """The document and the text of each block of a kind."""
    return [
        (name, body)
        for name, text in TEXTS.items()
        for _, found, body in BLOCK.findall(text)
        if found == kind
    ]


def commands() -> dict[str, int]:
    """Every line of ffnbench that a reader copies, of a shell, a workflow, a table or a
    sentence, with its exit code. Those of kernel-writer.md, of a baseline and of SLURM
    are typed by other tests.
    """
    lines = [
        line
        for name, body in blocks("sh")
        for line in body.splitlines()
        if name != "kernel-writer.md"
    ]
    for _, body in blocks("yaml"):
        lines += re.findall(r"(?<=- run: )ffnbench .*", body)
    for name in ("README.md", "student.md", "designer.md", "in-place.md"):
        lines += re.findall(r"`(ffnbench [^`]+)`", TEXTS[name])
    typed_elsewhere = ("ffn.json", "--on slurm", "COMMAND")
    found = {}
    for line in lines:
        typed, _, code = line.partition("  # exit code ")
        words = typed.split()
        is_whole = words[:1] == ["ffnbench"] and len(words) > 2
        if is_whole and not any(word in typed for word in typed_elsewhere):
            found[typed] = int(code[:1] or 0)
    return found


COMMANDS_OF_PAGES = commands()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that commands of the documents name."""
    monkeypatch.chdir(tmp_path)
    asked = dict(variants="relu,gelu,swiglu", precision=0.5, metrics="latency")
    saved = report_text(measure(prepare(**asked), launch=FakeLaunch()))
    for name, text in {
        "mine.py": "def telu(x): return x * x.exp().tanh()\n",
        "runtime.py": RUNTIME,
        "docs/notes.py": (ROOT / "docs" / "notes.py").read_text(),
        "run.json": saved,
        "baseline.json": saved,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


RIGHT = [line for line, code in COMMANDS_OF_PAGES.items() if code == 0]
CHECKED = [
    (line, code)
    for line, code in COMMANDS_OF_PAGES.items()
    if code or "--metrics error" in line
]


@pytest.mark.parametrize("line", RIGHT, ids=str)
def test_a_command_works(line, folder, monkeypatch, capsys, on_machine) -> None:
    """With workers faked and counts real, so that every flag, name and path is checked
    and nothing is timed.
    """
    for package in ("timm", "transformers.models", "liger_kernel.transformers"):
        if package in line:
            pytest.importorskip(package, exc_type=ImportError)
    on_machine(FakeLaunch(), ProberHere)
    if line.startswith("ffnbench ab "):
        two_sides(folder)
    arguments = shlex.split(line)[1:]
    assert run_command_line(arguments) == 0
    assert "".join(capsys.readouterr())
    written = [value for flag, value in pairwise(arguments) if flag == "-o"]
    assert all(Path(value).exists() for value in written)


@pytest.mark.slow
@pytest.mark.parametrize(("line", "code"), CHECKED)
def test_a_command_ends_as_the_page_says(line, code, in_process, monkeypatch) -> None:
    """With real workers, which find what is wrong, and that the rest is right."""
    if "transformers" in line:
        pytest.importorskip("transformers")
    monkeypatch.chdir(ROOT)
    assert in_process(*shlex.split(line)[1:])[0] == code


CONSOLES = [
    pytest.param(
        run,
        *body.split("\n", 1),
        marks=[pytest.mark.slow] * (not run and " compare " in body),
        id=body.partition("\n")[0],
    )
    for text in TEXTS.values()
    for run, kind, body in BLOCK.findall(text)
    if kind == "console"
]


@pytest.mark.parametrize(("run", "command", "shown"), CONSOLES)
def test_a_console_shows_what_is_printed(
    run, command, shown, in_process, monkeypatch
) -> None:
    """What is measured is read from the run that the page names, or measured anew where
    no time stands in the answer.
    """
    monkeypatch.chdir(ROOT)
    words = shlex.split(command.removeprefix("$ ffnbench "))
    if run:
        saved = json.loads((ROOT / run).read_text())["plan"]["command"]
        assert set(words) <= set(re.split("[ ,]", saved))
        words = ["report", str(ROOT / run)]
    code, out, err = in_process(*words)
    assert code == 0, err
    printed = [line.rstrip() for line in out.strip().splitlines()]
    assert printed == [line.rstrip() for line in shown.strip().splitlines()]


@pytest.mark.parametrize(("document", "body"), blocks("python"))
def test_python_runs(document, body, folder, on_machine) -> None:
    if "ffnbench.ab(" in body:
        two_sides(folder)
    on_machine(FakeLaunch(), ProberHere)
    exec(compile(body, document, "exec"), {})


def test_ci_calls_the_lines_that_contributing_gives() -> None:
    [[_, install, test, *_]] = [
        body.splitlines()
        for name, body in blocks("sh")
        if name == "CONTRIBUTING.md" and "[test," in body
    ]
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert install.partition(" install ")[2] in ci
    assert test.removeprefix(".venv/bin/") in ci


def headings_of(path: Path) -> set[str]:
    """The headings of a document as a link names them."""
    lines = re.findall(r"^#+ (.*)", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in lines}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_and_paths_lead_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^):]+)\)", text):
        target, _, heading = link.partition("#")
        there = path.parent / target if target else path
        assert there.exists(), link
        assert not heading or heading in headings_of(there), link
    folders = "ffnbench|tests|docs|results|benchmarks|examples"
    for name in re.findall(rf"`(?:python )?((?:{folders})/[\w./-]+)", text):
        assert (ROOT / name).exists(), name


def test_the_end_of_a_help_has_lines_that_can_be_typed_and_a_place_to_read_on() -> None:
    for name, command in COMMANDS.items():
        examples, page = re.fullmatch(
            r"Examples:\n(.*)\n\nMore: file://(.*)", command.epilog, re.DOTALL
        ).groups()
        path, _, heading = page.partition("#")
        assert heading in headings_of(Path(path)), name
        for example in examples.splitlines():
            program, typed, *words = shlex.split(example)
            assert (program, typed) == ("ffnbench", name)
            command.make_context(name, words).close()  # raises for what there is not


def test_python_md_has_every_function() -> None:
    named = set(re.findall(r"^\| `(\w+)\(", TEXTS["python.md"], re.MULTILINE))
    public = {n for n in dir(ffnbench) if inspect.isroutine(getattr(ffnbench, n))}
    assert named == public


def test_the_architecture_names_what_is_there() -> None:
    """`room/file.py: name` is a function, a class or a constant of that file."""
    maps = TEXTS["architecture.md"] + TEXTS["CONTRIBUTING.md"]
    references = re.findall(r"`([\w/]+\.(?:py|toml))(?:: (\w+))?`", maps)
    assert references
    for file, name in references:
        [path, *_] = [
            p for p in (ROOT / file, ROOT / "ffnbench" / file) if p.exists()
        ] or [None]
        assert path, file
        defined = rf"^(def |class ){name}\b|^{name}\b.* = "
        assert not name or re.search(defined, path.read_text(), re.MULTILINE), name


def test_the_columns_of_a_case_are_those_that_the_page_names() -> None:
    table = TEXTS["glossary.md"].partition("| columns of a case |")[2]
    cells = re.findall(r"^\| (`[^|]+)\|", table.partition("\n\n")[0], re.MULTILINE)
    named = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    [row] = ffnbench.cost({"a": "relu"}, d_model=64).rows()
    assert sorted(named) == sorted(row)


def test_every_title_of_a_table_is_explained() -> None:
    """In the table of columns, or in bold."""
    text = TEXTS["glossary.md"] + TEXTS["block.md"]
    rows = re.findall(r"^\|([^|]*)\|([^|]*)\|", text, re.MULTILINE)
    cells = [cell for row in rows for cell in row]
    bold = re.findall(r"\*\*([^*]+)\*\*", text)
    explained = {
        word.strip(" `") for cell in cells + bold for word in cell.split(",")
    } | {*bold}
    shown = (*COLUMNS, *MEASURED, *BOUNDS)
    assert {column.title or column.key for column in shown} <= explained


@pytest.mark.parametrize(
    ("run", "column", "digits"),
    [
        ("act-in-ffn", "label", (3,)),
        ("glu-train", "label", (2, 3)),
    ],
    ids=str,
)
def test_the_ratios_of_the_student_s_page_are_those_of_the_committed_runs(
    run: str, column: str, digits: tuple[int, ...]
) -> None:
    report = ffnbench.load(ROOT / "results" / "amd-epyc-2cpu" / f"{run}.json")
    named = {"silu", "gelu", "gelu_tanh", "swiglu", "wide"}
    rows = [
        row
        for row in report.rows()
        if row[column] in named and row["ratio_low"] not in (None, 1)
    ]
    assert rows
    for row in rows:
        ratio, low, high = row["ratio"], row["ratio_low"], row["ratio_high"]
        texts = [f"{ratio:.{d}f} [{low:.{d}f}, {high:.{d}f}]" for d in digits]
        assert any(text in TEXTS["student.md"] for text in texts), row

"""The documents are true: their commands run, their outputs are what is printed, their
links lead somewhere.
"""

from __future__ import annotations

import inspect
import os
import re
import runpy
import shlex
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from fake_machine import FakeLaunch, ProberHere, measure, prepare
from paths import ROOT
from repositories import two_sides
from shell import COMMANDS

import ffnbench
from ffnbench.api import measuring
from ffnbench.api.saved_runs import as_shown, load_recomputed, recompute
from ffnbench.app.main import run_command_line
from ffnbench.record.result import Report, Verdict
from ffnbench.report.columns import case_rows
from ffnbench.report.files.store import read_report, report_text
from ffnbench.report.words import VERDICTS

DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("results/*.md")]
)
BLOCK = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)


def blocks(kind: str) -> list[tuple[str, str]]:
    return [
        (path.name, body) for path in DOCUMENTS for found, body in BLOCK.findall(path.read_text(encoding="utf-8"))
        if found == kind
    ]  # fmt: skip


WORKFLOWS = [yaml.safe_load(body) for _, body in blocks("yaml")]


def steps_of(workflow: dict) -> list[dict]:
    jobs = workflow.get("jobs", {}).values()
    return [step for job in jobs for step in job.get("steps", ())]


def shell_lines(workflow: dict) -> list[str]:
    """Lines of GitHub's `run`, and of GitLab's `script`."""
    texts = [step["run"] for step in steps_of(workflow) if "run" in step]
    for job in workflow.values():
        texts += job.get("script", []) if isinstance(job, dict) else []
    return [
        line.strip() for text in texts for line in text.splitlines() if line.strip()
    ]


SHELL = [
    (name, line.rpartition(".venv/bin/")[2] if ".venv" in line else line)
    for name, body in blocks("sh") for line in body.splitlines()
    if "ffnbench " in line
    # tests/test_recipes.py types these
    and name != "tutorial.md" and "ffn.json" not in line and not line.startswith("git ")
    # tests/run/test_cluster.py has a SLURM
    and "--on slurm" not in line
] + [
    ("ci.md", line.replace("${{ github.base_ref }}", "main"))
    for workflow in WORKFLOWS for line in shell_lines(workflow) if line.startswith("ffnbench ")
]  # fmt: skip


@pytest.mark.parametrize(("document", "line"), SHELL, ids=[line for _, line in SHELL])
def test_shell_lines_are_commands_that_work(
    document, line, tmp_path, monkeypatch, capsys, on_machine
) -> None:
    """With workers faked and counts real, so that every flag, name and path is checked
    and nothing is timed.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "path" / "to").mkdir(parents=True)
    (tmp_path / "mine.py").write_text("def telu(x): return x * x.exp().tanh()\n")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "dying_relu.py").write_text(
        (ROOT / "docs" / "dying_relu.py").read_text()
    )
    hostile = (ROOT / "tests" / "hostile.py").read_text()
    (tmp_path / "path" / "to" / "mlp.py").write_text(
        hostile + "\n\nFusedSwiGLU = TwoThirds\n"
    )
    launch = FakeLaunch()
    asked = dict(variants="relu,gelu,swiglu", precision=0.5, metrics="latency")
    saved = measure(prepare(**asked), launch=launch)
    (tmp_path / "results" / "ci").mkdir(parents=True)
    for name in ("run.json", "baseline.json", "ffn.json", "results/ci/baseline.json"):
        (tmp_path / name).write_text(report_text(saved))
    for package in ("timm", "transformers"):
        if package in line:
            pytest.importorskip(package)
    on_machine(launch, ProberHere)
    monkeypatch.setattr(measuring, "_pause", lambda seconds, progress: None)
    if line.startswith("ffnbench ab "):
        two_sides(tmp_path)
    command, *arguments = shlex.split(line)
    assert command == "ffnbench"
    assert run_command_line(arguments) == 0
    assert "".join(capsys.readouterr())
    assert all(
        Path(value).exists() for flag, value in pairwise(arguments) if flag == "-o"
    )


def test_a_workflow_is_one_and_keeps_what_its_commands_write() -> None:
    for workflow in WORKFLOWS:
        for step in steps_of(workflow):
            assert ("run" in step) != ("uses" in step), step
            assert "uses" not in step or re.fullmatch(
                r"[\w-]+/[\w-]+@v\d+", step["uses"]
            ), step
    kept = [path for workflow in WORKFLOWS for job in workflow.values() if isinstance(job, dict) and "artifacts" in job
            for path in job["artifacts"]["reports"].values()]  # fmt: skip
    assert kept
    written = " ".join(line for workflow in WORKFLOWS for line in shell_lines(workflow))
    assert all(f"-o {path}" in written for path in kept), kept


def test_the_plain_shell_of_ci_tells_the_exit_codes_apart(tmp_path) -> None:
    """A stand-in for ffnbench that ends with each code in turn."""
    ((_, script),) = blocks("bash")
    stand_in = tmp_path / "ffnbench"
    for code, said in enumerate(
        ["nothing regressed", "regressed: see report.md", *["could not be run"] * 3]
    ):
        stand_in.write_text(f"#!/bin/sh\nexit {code}\n")
        stand_in.chmod(0o755)
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        done = subprocess.run(
            ["bash", "-c", script],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert (done.returncode, said in done.stdout) == (int(code > 0), True), code


@pytest.mark.parametrize(("document", "body"), blocks("console"))
def test_console_blocks_show_the_real_output(
    document: str, body: str, in_process, monkeypatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(ROOT)
    command, _, expected = body.partition("\n")
    code, out, err = in_process(*shlex.split(command.removeprefix("$ ffnbench ")))
    assert code == 0, err
    shown = "\n".join(line.rstrip() for line in out.splitlines())
    assert shown.strip() == expected.strip()


def test_the_recording_is_that_of_the_committed_run() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "recording.py"))["picture"]()
    assert made == (ROOT / "docs" / "compare.svg").read_text(encoding="utf-8")


RUNS = sorted(ROOT.glob("results/*/*.json"))


def test_every_committed_run_is_read_and_shows_its_own_figures() -> None:
    assert len(RUNS) >= 10
    told = (ROOT / "results" / "README.md").read_text()
    for path in RUNS:
        report, differs = load_recomputed(str(path))
        assert report.costs
        assert path.parent.name in told
        assert not differs, path


@pytest.mark.parametrize(("document", "body"), blocks("python"))
def test_python_blocks_run(
    document: str, body: str, tmp_path, monkeypatch, on_machine
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = dict(variants="relu,gelu,swiglu", precision=0.5, metrics="latency")
    saved = measure(prepare(**asked), launch=FakeLaunch())
    (tmp_path / "baseline.json").write_text(report_text(saved))
    if "ffnbench.ab(" in body:
        two_sides(tmp_path)
    on_machine(FakeLaunch(), ProberHere)
    exec(compile(body, document, "exec"), {})


def test_ci_calls_the_line_that_the_readme_gives_for_the_tests() -> None:
    (line,) = (
        body for name, body in blocks("sh") if name == "README.md" and "[test," in body
    )
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    called = (
        ci.replace('"$environment/bin/pip"', "pip")
        .replace(" --quiet --no-compile", "")
        .replace('"$environment"', ".venv")
    )
    for step in line.strip().split(" && "):
        assert step.replace(".venv/bin/", "") in called.splitlines(), step


def headings_of(path: Path) -> set[str]:
    """The headings of a document as a link names them."""
    lines = [
        line.lstrip("# ").lower()
        for line in path.read_text(encoding="utf-8").splitlines()
        if line[:1] == "#"
    ]
    return {re.sub(r"[^\w -]", "", line).replace(" ", "-") for line in lines}


def test_links_and_paths_lead_somewhere() -> None:
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        for target, _, heading in (
            one.partition("#") for one in re.findall(r"\]\(([^):]+)\)", text)
        ):
            there = path.parent / target if target else path
            assert there.exists(), target
            assert not heading or heading in headings_of(there), (path, heading)
        for name in re.findall(
            r"`((?:ffnbench|tests|docs|results|benchmarks)/[\w./-]+)`", text
        ):
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


def test_python_md_has_every_function_and_says_which_commands_are_none() -> None:
    text = (ROOT / "docs" / "python.md").read_text(
        encoding="utf-8"
    )  # a feature says it on its own page
    functions = set(re.findall(r"^\| `(\w+)\(", text, re.MULTILINE))
    alone = set(
        re.findall(
            r"`(\w+)`", re.search(r"^.* are not functions\.$", text, re.MULTILINE)[0]
        )
    )
    assert functions == {
        name for name in dir(ffnbench) if inspect.isroutine(getattr(ffnbench, name))
    }
    assert alone == {
        name for name in COMMANDS if not hasattr(ffnbench, name.replace("-", "_"))
    } - {"report"}


def test_the_architecture_names_what_is_there() -> None:
    """`room/file.py: name` is a function, a class or a constant of that file."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    references = re.findall(r"`([\w/]+\.(?:py|toml))(?:: (\w+))?`", text)
    assert len(references) > 50
    for file, name in references:
        path = next(p for p in (ROOT / file, ROOT / "ffnbench" / file) if p.exists())
        assert not name or re.search(
            rf"^(def |class ){name}\b|^{name}\b.* = ", path.read_text(), re.MULTILINE
        ), name


def test_the_columns_of_a_case_are_those_that_the_page_names() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text()
    table = page.partition("| columns of a case |")[2].partition("\n\n")[0]
    named = [
        name
        for line in table.splitlines()[2:]
        for name in re.findall(r"`(\w+)`", line.split("|")[1])
    ]
    [row] = ffnbench.cost({"a": "relu"}, d_model=64).rows()
    assert sorted(named) == sorted(row)


def test_every_command_and_flag_of_the_readme_exists(in_process, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    text = (ROOT / "README.md").read_text(encoding="utf-8") + (
        ROOT / "docs" / "forms.md"
    ).read_text(encoding="utf-8")
    helps = "".join(
        in_process(name, "--help")[1] for name in ("compare", "cost", "block")
    )
    for flag in set(re.findall(r"`(--[a-z-]+)", text)):
        assert flag in helps, flag


def quoted(ratio: str, low: str, high: str) -> set[str]:
    """A ratio with its interval as a document may write it: two decimals, one, or
    three.
    """
    return {
        f"{float(ratio):.{d}f} [{float(low):.{d}f}, {float(high):.{d}f}]"
        for d in (1, 2, 3)
    }


def shown_again(path) -> Report:
    """A saved run with its figures as `ffnbench report` shows them."""
    return recompute(as_shown(read_report(str(path))))


def test_the_numbers_of_the_claims_are_those_of_the_committed_runs() -> None:
    text = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
    folder = ROOT / "results" / "amd-epyc-2cpu"
    times = shown_again(folder / "activations-time.json").rows()
    for row in times:
        if row["activation"] in ("silu", "gelu", "gelu_tanh"):
            assert any(
                q in text
                for q in quoted(row["ratio"], row["ratio_low"], row["ratio_high"])
            ), row
    inside = {
        c.case: c.ratio for c in shown_again(folder / "act-in-ffn.json").comparisons
    }
    for name in ("silu", "gelu", "gelu_tanh"):
        ratio = inside[name]
        assert f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]" in text, name
    train = {
        row["label"]: row for row in case_rows(shown_again(folder / "glu-train.json"))
    }
    assert (
        f"{train['wide']['ratio']:.2f} [{train['wide']['ratio_low']:.2f}, {train['wide']['ratio_high']:.2f}]"
        in text
    )
    same = train["swiglu"]
    assert (
        f"{same['ratio']:.3f} [{same['ratio_low']:.3f}, {same['ratio_high']:.3f}] {VERDICTS[Verdict(same['verdict'])]}"
        in text
    )
    for row in train.values():
        assert f"{row['params']:,}" in text
        assert f"{row['saved_bytes'] / 2**20:.1f} MiB" in text


BACKENDS = (
    ROOT / "results" / "amd-epyc-2cpu"
)  # swiglu-*.json: one form and workload each, by several backends


def backend_rows() -> list[str]:
    """A row of markdown for each backend beside eager, of every committed run of
    docs/performance.md.
    """
    rows = []
    for path in sorted(BACKENDS.glob("swiglu-*.json")):
        report = read_report(path)
        first, *others = case_rows(report)
        what = f"{first['d_model']:,} / {first['d_ff']:,}, {first['seq_len']:,} token{'s' * (first['seq_len'] > 1)}"
        for row in [row for row in others if row["ratio"] is not None]:
            cells = (
                what,
                first["dtype"],
                row["backend"],
                ratio_of(row),
            )
            rows.append(f"| {' | '.join(map(str, cells))} |")
    return rows


def ratio_of(row: dict) -> str:
    low, high = (
        (f"[{row['ratio_low']:.2f}", f"{row['ratio_high']:.2f}]")
        if row["ratio_low"]
        else ("", "")
    )
    return (
        f"{row['ratio']:.2f} {low}, {high}"
        if low
        else f"{row['ratio']:.2f} ({row['verdict']})"
    )


def test_rows_about_backends_are_those_of_the_committed_runs() -> None:
    text = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert (
        re.findall(r"^\| [\d,]+ / [\d,]+, [\d,]+ tokens? \|.*$", text, re.MULTILINE)
        == backend_rows()
    )

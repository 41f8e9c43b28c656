"""action.yml as a runner carries it out: each `run` in a shell, in a repository of
somebody's, with what GitHub gives in variables and files. Stand-ins are on the PATH:
`gh`, which keeps comments, `python`, which installs nothing, and `ffnbench`.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from paths import ROOT
from repositories import MODULE, TARGET, git

ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
CALLED = yaml.safe_load(
    (ROOT / ".github" / "workflows" / "ffn-ab.yml").read_text(encoding="utf-8")
)
YAML = r"```yaml\n(.*?)```"
EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
GH = """
import json, subprocess, sys
from pathlib import Path

folder, words = Path({folder!r}), sys.argv[1:]
with (folder / "gh.txt").open("a") as log:
    log.write(json.dumps(words) + "\\n")
if (folder / "read-only").exists():
    sys.exit("HTTP 403: Resource not accessible by integration")
store = folder / "comments.json"
comments = json.loads(store.read_text())
assert words[0] == "api"
if "--jq" in words:
    found = subprocess.run(["jq", "-r", words[words.index("--jq") + 1]],
                           input=json.dumps(comments), capture_output=True, text=True)
    sys.stdout.write(found.stdout)
    sys.exit(found.returncode)
body = Path(words[words.index("--field") + 1].removeprefix("body=@")).read_text()
method, path = words[words.index("--method") + 1:][:2]
if method == "POST":
    assert path == "repos/them/theirs/issues/7/comments"
    new = dict(id=100 + len(comments), user=dict(type="Bot"), body=body)
    comments.append(new)
else:
    number = int(path.removeprefix("repos/them/theirs/issues/comments/"))
    (comment,) = [each for each in comments if each["id"] == number]
    comment["body"] = body
store.write_text(json.dumps(comments))
"""
PYTHON = """
import json, os, sys
from pathlib import Path

words = sys.argv[1:]
if words[:2] == ["-m", "pip"]:
    with (Path({folder!r}) / "pip.txt").open("a") as log:
        log.write(json.dumps(words[2:]) + "\\n")
else:
    os.execv(sys.executable, [sys.executable, *words])
"""


@dataclass(frozen=True)
class Done:
    """What came of an action: its exit code, outputs, and all that its steps printed.

    `uses` has the values of each step that is an action itself.
    """

    code: int
    outputs: dict[str, str]
    said: str
    summary: str
    uses: dict[str, dict[str, str]]


class Job:
    """A job of GitHub's in a folder; its repository is `repository`."""

    def __init__(self, folder: Path, repository: Path) -> None:
        self.folder, self.repository = folder, repository
        self.event = {"number": "7", "base_ref": "main", "token": "secret"}
        self.ffnbench = ROOT / "tests" / "ffnbench_on_fakes.py"
        self.environment: dict[str, str] = {}
        (folder / "comments.json").write_text("[]")
        (folder / "bin").mkdir()
        self._stand_in("gh", GH)
        self._stand_in("python", PYTHON)

    def _stand_in(self, name: str, text: str) -> None:
        code = self.folder / f"{name}.py"
        code.write_text(text.format(folder=str(self.folder)))
        self._command(name, f'{sys.executable} "{code}"')

    def _command(self, name: str, line: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(f'#!/bin/sh\nexec {line} "$@"\n')
        path.chmod(0o755)

    @property
    def comments(self) -> list[dict[str, Any]]:
        """The comments of the pull request."""
        return json.loads((self.folder / "comments.json").read_text())

    def words(self, name: str) -> list[list[str]]:
        """What a stand-in was called with."""
        log = self.folder / f"{name}.txt"
        lines = log.read_text().splitlines() if log.exists() else []
        return [json.loads(line) for line in lines]

    def run(self, **inputs: str) -> Done:
        """Carry out the action with these inputs, `d_model` for d-model."""
        self._command("ffnbench", f'{sys.executable} "{self.ffnbench}"')
        given = {
            name: str(of.get("default", "")) for name, of in ACTION["inputs"].items()
        }
        given |= {name.replace("_", "-"): value for name, value in inputs.items()}
        assert given.keys() == ACTION["inputs"].keys()
        known = {
            "github.token": self.event["token"],
            "github.base_ref": self.event["base_ref"],
            "github.repository": "them/theirs",
            "github.action_path": str(ROOT),
            "github.event.pull_request.number": self.event["number"],
            **{f"inputs.{name}": value for name, value in given.items()},
        }
        summary = self.folder / "summary.md"
        summary.write_text("")
        said, uses, code = "", {}, 0
        for step in ACTION["runs"]["steps"]:
            filled = {
                name: EXPRESSION.sub(lambda found: known[found[1]], str(value))
                for name, value in (step.get("env") or step.get("with") or {}).items()
            }
            if "uses" in step:
                uses[step["uses"].partition("@")[0]] = filled
                continue
            output = self.folder / "output.txt"
            output.write_text("")
            done = self._shell(step["run"], filled, output, summary)
            said, code = said + done.stdout + done.stderr, done.returncode
            for line in output.read_text().splitlines():
                name, _, value = line.partition("=")
                known[f"steps.{step['id']}.outputs.{name}"] = value
            if code:
                break
        outputs = {
            name: known.get(EXPRESSION.fullmatch(of["value"])[1], "")
            for name, of in ACTION["outputs"].items()
        }
        return Done(code, outputs, said, summary.read_text(), uses)

    def _shell(
        self, text: str, env: dict[str, str], output: Path, summary: Path
    ) -> subprocess.CompletedProcess[str]:
        script = self.folder / "step.sh"
        script.write_text(text)
        environment = {
            "PATH": f"{self.folder / 'bin'}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.folder),
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": str(self.folder),
            "RUNNER_TEMP": str(self.folder),
            "GITHUB_OUTPUT": str(output),
            "GITHUB_STEP_SUMMARY": str(summary),
            **self.environment,
            **env,
        }
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=self.repository,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
        )


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A job in a repository with `mypkg.mlp:SwiGLU`, which is as the base branch has
    it.
    """
    if not shutil.which("jq"):
        pytest.skip("jq is not installed, which stands in for a part of gh")
    folder = tmp_path / "theirs"
    (folder / "mypkg").mkdir(parents=True)
    (folder / "mypkg" / "__init__.py").touch()
    (folder / "mypkg" / "mlp.py").write_text(module())
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one")
    git(folder, "update-ref", "refs/remotes/origin/main", "HEAD")
    return Job(tmp_path, folder)


def module(seconds: float = 0.004) -> str:
    return MODULE.format(seconds=seconds, act="silu")


def slow_down(job: Job, seconds: float = 0.0048) -> None:
    (job.repository / "mypkg" / "mlp.py").write_text(module(seconds))


def test_unchanged_code_passes_and_its_answer_is_a_comment_a_summary_and_a_file(
    job: Job,
) -> None:
    done = job.run(target=TARGET, d_model="64")
    assert (done.code, done.outputs["code"]) == (0, "0"), done.said
    (comment,) = job.comments
    assert "| SwiGLU | latency | OK |" in comment["body"]
    assert "| SwiGLU | latency | OK |" in done.summary
    assert "::error" not in done.said
    kept = done.uses["actions/upload-artifact"]
    assert kept["name"] == done.outputs["artifact"]
    answer = json.loads(Path(kept["path"], "ffn-ab.json").read_text())
    assert {row["status"] for row in answer["findings"]} == {"OK"}
    assert answer["now"]["plan"]["cases"][1]["ffn"]["d_model"] == 64


def test_code_that_is_slower_by_a_fifth_fails_and_the_comment_is_renewed(
    job: Job,
) -> None:
    others = {"id": 1, "user": {"type": "User"}, "body": "<!-- ffnbench mine -->"}
    (job.folder / "comments.json").write_text(json.dumps([others]))
    slow_down(job)
    done = job.run(target=TARGET, d_model="64")
    assert (done.code, done.outputs["code"]) == (1, "1"), done.said
    assert "::error title=ffnbench REGRESSED::SwiGLU latency" in done.said
    slow_down(job, 0.004)
    assert job.run(target=TARGET, d_model="64").code == 0
    assert job.run(target=f"other={TARGET}", d_model="64").code == 0
    first, renewed, of_another_target = job.comments
    assert first == others
    assert "| SwiGLU | latency | OK |" in renewed["body"]
    assert "| other | latency | OK |" in of_another_target["body"]


def test_a_limit_and_further_flags_reach_the_command(job: Job) -> None:
    slow_down(job)
    extra = "--seq-len 32  --tolerance 'params=1%'"
    done = job.run(target=TARGET, d_model="64", fail_above="30%", extra=extra)
    assert done.code == 0, done.said
    path = Path(done.uses["actions/upload-artifact"]["path"], "ffn-ab.json")
    answer = json.loads(path.read_text())
    limits = {row["metric"]: row["tolerance"] for row in answer["findings"]}
    assert (limits["latency"], limits["params"]) == (0.3, 0.01)
    assert answer["now"]["plan"]["cases"][0]["workload"]["seq_len"] == 32


def test_jobs_of_one_target_with_other_flags_have_answers_of_their_own(
    job: Job,
) -> None:
    names = set()
    for given in ({"d_model": "64"}, {"d_model": "32"}, {"extra": "--d-ff 64"}):
        done = job.run(**{"target": TARGET, "d_model": "64", **given})
        assert done.code == 0, done.said
        names.add(done.outputs["artifact"])
    assert len(names) == len(job.comments) == 3


def test_a_module_that_does_not_import_ends_with_2_and_the_comment_says_so(
    job: Job,
) -> None:
    job.environment["FAKE_PROBER"] = "real"
    (job.repository / "mypkg" / "mlp.py").write_text(module() + "import not_there\n")
    done = job.run(target=TARGET, d_model="64")
    assert (done.code, done.outputs["code"]) == (2, "2"), done.said
    (comment,) = job.comments
    for text in (comment["body"], done.summary, done.said):
        assert "cannot import 'mypkg.mlp': ModuleNotFoundError" in text
    assert "no answer (exit code 2)" in comment["body"]
    assert "::error title=ffnbench::error: head: cannot import" in done.said


@pytest.mark.parametrize(
    ("inputs", "event", "says", "hint"),
    [
        ({"target": ""}, {}, "no target is given", "target: package.module:Attr"),
        ({"target": "--help"}, {}, "the target is a flag: --help", "flags in extra"),
        (
            {"target": TARGET, "base": "--help"},
            {},
            "the base is a flag: --help",
            "flags in extra",
        ),
        (
            {"target": TARGET, "extra": "--d-ff '64"},
            {},
            "a quote in extra is not closed: --d-ff '64",
            "as in a shell",
        ),
        (
            {"target": TARGET},
            {"base_ref": "", "number": ""},
            "no base is given, and this is no pull request",
            "base: origin/main",
        ),
        (
            {"target": TARGET, "base": "nowhere", "d_model": "64"},
            {},
            "no revision is called 'nowhere'",
            "git tag",
        ),
    ],
)
def test_mistakes_end_with_2_one_line_and_a_hint(
    job: Job, inputs: dict, event: dict, says: str, hint: str
) -> None:
    job.event |= event
    done = job.run(**inputs)
    assert done.code == 2
    (annotation,) = re.findall(r"^::error title=ffnbench::.*$", done.said, re.MULTILINE)
    assert says in annotation
    (line,) = re.findall(r"^hint: .*$", done.said, re.MULTILINE)
    assert hint in line


def test_a_shallow_clone_without_the_base_is_told_to_fetch_it(
    job: Job, tmp_path: Path
) -> None:
    git(job.repository, "commit", "-qm", "two", "--allow-empty")
    address = f"file://{job.repository}"
    git(tmp_path, "clone", "-q", "--depth", "1", address, "shallow")
    job.repository = tmp_path / "shallow"
    done = job.run(target=TARGET, base="HEAD~1", d_model="64")
    assert done.code == 2
    assert "in CI fetch-depth: 0" in done.said


@pytest.mark.parametrize("lacks", ["permission", "token", "wish", "pull request"])
def test_without_a_comment_there_is_the_summary(job: Job, lacks: str) -> None:
    inputs = {"target": TARGET, "d_model": "64"}
    if lacks == "permission":
        (job.folder / "read-only").touch()
    elif lacks == "token":
        job.event["token"] = ""
    elif lacks == "wish":
        inputs["comment"] = "false"
    else:
        job.event |= {"number": "", "base_ref": ""}
        inputs["base"] = "HEAD"
    done = job.run(**inputs)
    assert done.code == 0, done.said
    assert (job.comments, "| SwiGLU | latency | OK |" in done.summary) == ([], True)
    assert ("::notice" in done.said) == (lacks == "permission")
    assert bool(job.words("gh")) == (lacks == "permission")


def test_inputs_are_never_code(job: Job) -> None:
    """They come by variables, and a shell reads none of their signs."""
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step.get("run", "")
        assert "run" not in step or step["run"].startswith("set -euo pipefail\n")
    sign = "$(touch pwned)`touch pwned`; touch pwned"
    given = {
        name: f'"{sign}'
        for name in ACTION["inputs"]
        if name not in ("install", "extra", "python-version", "confirm")
    }
    job.run(**given)
    job.run(**{**given, "extra": f"'{sign}'", "install": f"'{sign}'"})
    assert not [*job.folder.rglob("pwned")]
    assert job.words("pip")[-1][-1] == sign


def test_what_is_installed(job: Job) -> None:
    job.run(target=TARGET, d_model="64", install=". -r 'more things.txt'")
    torch, ours, theirs = job.words("pip")
    assert torch[:3] == ["install", "--quiet", "torch"]
    assert torch[-1].endswith("/whl/cpu")
    assert ours[-1] == str(ROOT)
    assert theirs[2:] == [".", "-r", "more things.txt"]


@pytest.mark.parametrize(("again", "code"), [(0.0048, 1), (0.004, 0)])
def test_a_second_runner_confirms_a_regression_or_does_not(
    job: Job, again: float, code: int
) -> None:
    """As the workflow has it: the first job passes its answer on, and does not fail."""
    slow_down(job)
    first = job.run(target=TARGET, d_model="64", fail="false")
    assert (first.code, first.outputs["code"]) == (0, "1"), first.said
    answer = Path(first.uses["actions/upload-artifact"]["path"], "ffn-ab.json")
    slow_down(job, again)
    second = job.run(target=TARGET, d_model="64", confirm=str(answer))
    assert (second.code, second.outputs["code"]) == (code, str(code)), second.said
    assert second.outputs["artifact"] == f"{first.outputs['artifact']}-confirmed"
    (comment,) = job.comments
    assert "| both together [95%] |" in comment["body"]


def test_the_workflow_that_confirms_gives_the_action_what_it_takes() -> None:
    first, second = CALLED["jobs"]["ab"], CALLED["jobs"]["confirm"]
    assert second["needs"] == "ab"
    assert second["if"] == "needs.ab.outputs.code == '1'"
    asked = CALLED[True]["workflow_call"]["inputs"]  # `on` is true in YAML 1.1
    given = []
    for job in (first, second):
        (step,) = [
            step for step in job["steps"] if "/ffnbench@" in step.get("uses", "")
        ]
        given.append(step["with"])
        assert step["with"].keys() <= ACTION["inputs"].keys()
        texts = EXPRESSION.findall(" ".join(step["with"].values()))
        names = {name.removeprefix("inputs.") for name in texts if "inputs." in name}
        assert names == asked.keys() - {"runs-on"}
    assert given[0].pop("fail") == "false"
    assert given[1].pop("confirm").endswith("/ffn-ab.json")
    assert given[0] == given[1]
    for name, value in first["outputs"].items():
        assert EXPRESSION.fullmatch(value)[1] == f"steps.ffn.outputs.{name}"
        assert name in ACTION["outputs"]
    for name, of in asked.items():
        if name in ACTION["inputs"]:
            assert of.get("default", "") == ACTION["inputs"][name].get("default", "")


def test_what_the_page_shows_is_what_action_and_workflow_take() -> None:
    text = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    shown = [yaml.safe_load(body) for body in re.findall(YAML, text, re.DOTALL)]
    jobs = [job for each in shown for job in each.get("jobs", {}).values()]
    steps = [step for job in jobs for step in job.get("steps", ())]
    (with_action,) = [step for step in steps if "/ffnbench@" in step.get("uses", "")]
    assert with_action["with"].keys() <= ACTION["inputs"].keys()
    (called,) = [job for job in jobs if "uses" in job]
    assert called["uses"].endswith("/ffnbench/.github/workflows/ffn-ab.yml@v0")
    assert called["with"].keys() <= CALLED[True]["workflow_call"]["inputs"].keys()
    named = re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE)
    assert named == list(ACTION["inputs"])


def test_our_own_ci_is_the_script_that_anyone_can_run_and_a_slow_night() -> None:
    path = ROOT / ".github" / "workflows" / "ci.yml"
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values()
    runs = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
    assert ".ci/run" in runs
    assert "pytest -m slow" in runs


@pytest.mark.slow
@pytest.mark.parametrize(("seconds", "code"), [(0.004, 0), (0.0048, 1)])
def test_real_runs_pass_what_is_unchanged_and_fail_a_fifth_more(
    job: Job, seconds: float, code: int
) -> None:
    job.ffnbench = ROOT / "ffnbench" / "__main__.py"
    slow_down(job, seconds)
    done = job.run(target=TARGET, d_model="64", extra="--threads 1 --budget 60s")
    assert done.code == code, done.said

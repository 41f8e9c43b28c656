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
from pathlib import Path
from typing import Any

import pytest
import yaml
from paths import ROOT
from repositories import MODULE, TARGET, git

ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
WORKFLOW = ROOT / ".github" / "workflows" / "ffn-ab.yml"
EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
STAND_INS = {
    "gh": r"""
cd "$HOME"
case "$2 $3 $4" in
  --paginate*) exec jq -r "$5" comments.json ;;
  "--method POST repos/them/theirs/issues/7/comments")
    change='. + [{id: (100 + length), user: {type: "Bot"}, body: $body}]' ;;
  "--method PATCH"*) change="map(if .id == ${4##*/} then .body = \$body else . end)" ;;
esac
jq --rawfile body "${6#body=@}" "$change" comments.json > new.json
mv new.json comments.json
""",
    "python": """
for word; do last="$word"; done
echo "$last" >> "$HOME/installed.txt"
""",
    "ffnbench": f'exec {sys.executable} {ROOT / "tests" / "ffnbench_on_fakes.py"} "$@"',
}
OK = "| SwiGLU | latency | OK |"


class Runner:
    """A runner of GitHub's with its home in a folder; its repository has
    `mypkg.mlp:SwiGLU`, which is as the base branch has it.
    """

    def __init__(self, home: Path) -> None:
        self.home, self.repository = home, home / "theirs"
        self.event = {"number": "7", "base_ref": "main"}
        self.environment: dict[str, str] = {}
        (home / "comments.json").write_text("[]")
        (home / "bin").mkdir()
        for name, text in STAND_INS.items():
            (home / "bin" / name).write_text(f"#!/bin/sh\n{text}")
            (home / "bin" / name).chmod(0o755)
        (self.repository / "mypkg").mkdir(parents=True)
        (self.repository / "mypkg" / "__init__.py").touch()
        self.write_module(0.004)
        git(self.repository, "init", "-q")
        git(self.repository, "add", ".")
        git(self.repository, "commit", "-qm", "one")
        git(self.repository, "update-ref", "refs/remotes/origin/main", "HEAD")

    def write_module(self, seconds: float, more: str = "") -> None:
        """Head's module, which takes so long; base takes 4 ms."""
        text = MODULE.format(seconds=seconds, act="silu") + more
        (self.repository / "mypkg" / "mlp.py").write_text(text)

    @property
    def comments(self) -> list[dict[str, Any]]:
        """The comments of the pull request."""
        return json.loads((self.home / "comments.json").read_text())

    def run(self, **inputs: str) -> tuple[int, dict[str, str], str]:
        """Carry out the action with these inputs, `d_model` for d-model; gives the exit
        code of the job, the outputs of its steps, and all that it printed.
        """
        given = {
            name: str(of.get("default", "")) for name, of in ACTION["inputs"].items()
        }
        given |= {name.replace("_", "-"): value for name, value in inputs.items()}
        assert given.keys() == ACTION["inputs"].keys()
        known = {
            "github.token": "secret",
            "github.base_ref": self.event["base_ref"],
            "github.repository": "them/theirs",
            "github.action_path": str(ROOT),
            "github.event.pull_request.number": self.event["number"],
            **{f"inputs.{name}": value for name, value in given.items()},
        }
        output, summary = self.home / "output.txt", self.home / "summary.md"
        summary.write_text("")
        code, printed, outputs = 0, "", {}
        for step in ACTION["runs"]["steps"]:
            if "run" not in step or code:
                continue
            env = {
                name: EXPRESSION.sub(lambda found: known[found[1]], str(value))
                for name, value in step["env"].items()
            }
            output.write_text("")
            done = subprocess.run(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
                cwd=self.repository,
                env={
                    "PATH": f"{self.home / 'bin'}:/usr/local/bin:/usr/bin:/bin",
                    "HOME": str(self.home),
                    "PYTHONPATH": str(ROOT),
                    "PYTHONDONTWRITEBYTECODE": "1",
                    "TMPDIR": str(self.home),
                    "RUNNER_TEMP": str(self.home),
                    "GITHUB_JOB": "ab",
                    "GITHUB_OUTPUT": str(output),
                    "GITHUB_STEP_SUMMARY": str(summary),
                    **self.environment,
                    **env,
                },
                capture_output=True,
                text=True,
                timeout=600,
            )
            code, printed = done.returncode, printed + done.stdout + done.stderr
            for line in output.read_text().splitlines():
                name, _, value = line.partition("=")
                outputs[name] = known[f"steps.{step['id']}.outputs.{name}"] = value
        return code, outputs, printed


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    if not shutil.which("jq"):
        pytest.skip("jq is not installed, which stands in for a part of gh")
    return Runner(tmp_path)


def test_code_that_is_slower_by_a_fifth_fails_and_the_comment_is_renewed(
    runner: Runner,
) -> None:
    others = {"id": 1, "user": {"type": "User"}, "body": "<!-- ffnbench mine -->"}
    (runner.home / "comments.json").write_text(json.dumps([others]))
    runner.write_module(0.0048)
    code, outputs, printed = runner.run(target=TARGET, d_model="64")
    assert (code, outputs["code"]) == (1, "1"), printed
    assert "::error title=ffnbench REGRESSED::SwiGLU latency" in printed
    # as the workflow that is called has its first job, which leaves it to a second one
    jobs = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]
    assert jobs["again"]["if"] == "needs.ab.outputs.code == '1'"
    code, outputs, printed = runner.run(target=TARGET, d_model="64", fail="false")
    assert (code, outputs["code"]) == (0, "1"), printed
    runner.write_module(0.004)
    code, outputs, printed = runner.run(target=TARGET, d_model="64")
    assert (code, outputs["code"], "::error" in printed) == (0, "0", False), printed
    assert OK in (runner.home / "summary.md").read_text()
    answer = json.loads(Path(outputs["folder"], "ffn-ab.json").read_text())
    assert {row["status"] for row in answer["findings"]} == {"OK"}
    assert runner.run(target=TARGET, d_model="32")[0] == 0
    first, renewed, of_another_question = runner.comments
    assert first == others
    assert OK in renewed["body"]
    assert OK in of_another_question["body"]


def test_a_module_that_does_not_import_ends_with_2_and_the_comment_says_so(
    runner: Runner,
) -> None:
    runner.environment["FAKE_PROBER"] = "real"
    runner.write_module(0.004, "import not_there\n")
    code, outputs, printed = runner.run(target=TARGET, d_model="64")
    assert (code, outputs["code"]) == (2, "2"), printed
    [comment] = runner.comments
    for text in (comment["body"], (runner.home / "summary.md").read_text(), printed):
        assert "cannot import 'mypkg.mlp': ModuleNotFoundError" in text
    assert "no answer (exit code 2)" in comment["body"]
    assert "::error title=ffnbench::error: head: cannot import" in printed


@pytest.mark.parametrize(
    ("inputs", "message", "hint"),
    [
        ({"target": ""}, "no target is given", "target: package.module:Attr"),
        ({"base": "--help"}, "the base is a flag: --help", "flags in extra"),
        ({"extra": "--d-ff '64"}, "a quote in extra is not closed: --d-ff '64", "as in a shell"),
        ({"base": ""}, "no base is given, and this is no pull request", "base: origin/main"),
        ({"base": "nowhere"}, "no revision is called 'nowhere'", "git tag"),
    ],
)  # fmt: skip
def test_mistakes_end_with_2_one_line_and_a_hint(
    runner: Runner, inputs: dict, message: str, hint: str
) -> None:
    runner.event |= {"base_ref": "", "number": ""}
    asked = {"target": TARGET, "base": "HEAD", "d_model": "64", **inputs}
    code, _, printed = runner.run(**asked)
    assert code == 2
    lines = printed.splitlines()
    [error] = [line for line in lines if line.startswith("::error title=ffnbench::")]
    [line] = [line for line in lines if line.startswith("hint: ")]
    assert (message in error, hint in line) == (True, True), printed


def test_inputs_are_never_code(runner: Runner) -> None:
    """They come by variables, and a shell reads none of their signs."""
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step.get("run", "")
        assert "run" not in step or step["run"].startswith("set -euo pipefail\n")
    sign = "$(touch pwned)`touch pwned`; touch pwned"
    words = ("install", "extra", "python-version")
    given = {name: f'"{sign}' for name in ACTION["inputs"] if name not in words}
    runner.run(**given)
    runner.run(**{**given, "extra": f"'{sign}'", "install": f"'{sign}'"})
    assert not [*runner.home.rglob("pwned")]
    assert (runner.home / "installed.txt").read_text().splitlines()[-1] == sign

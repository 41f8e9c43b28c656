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
EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
STAND_INS = {
    "gh": r"""
cd "$HOME"
[ ! -e read-only ] || exit 1
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
for word; do printf '%s\\t' "$word"; done >> "$HOME/python.txt"
echo >> "$HOME/python.txt"
""",
    "ffnbench": f'exec {sys.executable} {ROOT / "tests" / "ffnbench_on_fakes.py"} "$@"',
}
OK = "| SwiGLU | latency | OK |"


@dataclass(frozen=True)
class Done:
    """What came of a job: its exit code, the outputs of its steps, and all that they
    printed.
    """

    code: int
    outputs: dict[str, str]
    said: str
    folder: Path

    @property
    def summary(self) -> str:
        return (self.folder / "summary.md").read_text()

    @property
    def answer(self) -> dict[str, Any]:
        """What the artifact keeps."""
        (path,) = self.folder.glob(f"{self.outputs['inputs.name']}/ffn-ab.json")
        return json.loads(path.read_text())


class Runner:
    """A runner of GitHub's with its home in a folder; `repository` has
    `mypkg.mlp:SwiGLU`, which is as the base branch has it.
    """

    def __init__(self, home: Path) -> None:
        self.home, self.repository = home, home / "theirs"
        self.event = {"number": "7", "base_ref": "main", "token": "secret"}
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

    def run(self, job: str = "ab", **inputs: str) -> Done:
        """Carry out the action in a job, with these inputs, `d_model` for d-model."""
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
        (self.home / "summary.md").write_text("")
        said, code, outputs = "", 0, {}
        for step in ACTION["runs"]["steps"]:
            if "run" not in step or code:
                continue
            env = {
                name: EXPRESSION.sub(lambda found: known[found[1]], str(value))
                for name, value in step["env"].items()
            }
            done = self._shell(step["run"], {"GITHUB_JOB": job, **env})
            said, code = said + done.stdout + done.stderr, done.returncode
            for line in (self.home / "output.txt").read_text().splitlines():
                name, _, value = line.partition("=")
                outputs[f"{step['id']}.{name}"] = value
                known[f"steps.{step['id']}.outputs.{name}"] = value
        return Done(code, outputs, said, self.home)

    def _shell(self, text: str, env: dict[str, str]) -> subprocess.CompletedProcess:
        (self.home / "output.txt").write_text("")
        environment = {
            "PATH": f"{self.home / 'bin'}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.home),
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": str(self.home),
            "RUNNER_TEMP": str(self.home),
            "GITHUB_OUTPUT": str(self.home / "output.txt"),
            "GITHUB_STEP_SUMMARY": str(self.home / "summary.md"),
            **self.environment,
            **env,
        }
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text],
            cwd=self.repository,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
        )


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
    done = runner.run(target=TARGET, d_model="64")
    assert (done.code, done.outputs["ab.code"]) == (1, "1"), done.said
    assert "::error title=ffnbench REGRESSED::SwiGLU latency" in done.said
    runner.write_module(0.004)
    done = runner.run(target=TARGET, d_model="64")
    assert (done.code, done.outputs["ab.code"]) == (0, "0"), done.said
    assert OK in done.summary
    assert "::error" not in done.said
    assert {row["status"] for row in done.answer["findings"]} == {"OK"}
    assert runner.run(target=TARGET, d_model="32").code == 0
    first, renewed, of_another_question = runner.comments
    assert first == others
    assert OK in renewed["body"]
    assert OK in of_another_question["body"]


def test_the_check_fails_if_ab_fails_on_both_runners(runner: Runner) -> None:
    """As the workflow that is called has it; the first job does not fail itself."""
    first, second = CALLED["jobs"]["ab"], CALLED["jobs"]["again"]
    asked = {"target": TARGET, "d-model": "64"}

    def run(job: str, of: dict) -> Done:
        (step,) = [step for step in of["steps"] if step["uses"] == "./ffnbench"]
        inputs = {
            name: EXPRESSION.sub(
                lambda found: asked.get(found[1].removeprefix("inputs."), ""), value
            )
            for name, value in step["with"].items()
        }
        return runner.run(job, **inputs)

    runner.write_module(0.0048)
    done = run("ab", first)
    assert (done.code, done.outputs["ab.code"]) == (0, "1"), done.said
    assert first["outputs"] == {"code": "${{ steps.ffn.outputs.code }}"}
    assert ACTION["outputs"]["code"]["value"] == "${{ steps.ab.outputs.code }}"
    assert (second["needs"], second["if"]) == ("ab", "needs.ab.outputs.code == '1'")
    for seconds, code in ((0.0048, 1), (0.004, 0)):
        runner.write_module(seconds)
        again = run("again", second)
        assert again.code == code, again.said
        assert done.outputs["inputs.name"] != again.outputs["inputs.name"]
        (comment,) = runner.comments
        assert (OK in comment["body"]) == (code == 0)


def installed(runner: Runner) -> list[list[str]]:
    """The words of each call of python."""
    lines = (runner.home / "python.txt").read_text().splitlines()
    return [line.rstrip("\t").split("\t") for line in lines]


def test_a_module_that_does_not_import_ends_with_2_and_the_comment_says_so(
    runner: Runner,
) -> None:
    runner.environment["FAKE_PROBER"] = "real"
    runner.write_module(0.004, "import not_there\n")
    done = runner.run(target=TARGET, d_model="64")
    assert (done.code, done.outputs["ab.code"]) == (2, "2"), done.said
    (comment,) = runner.comments
    for text in (comment["body"], done.summary, done.said):
        assert "cannot import 'mypkg.mlp': ModuleNotFoundError" in text
    assert "no answer (exit code 2)" in comment["body"]
    assert "::error title=ffnbench::error: head: cannot import" in done.said


@pytest.mark.parametrize(
    ("inputs", "says", "hint"),
    [
        ({"target": ""}, "no target is given", "target: package.module:Attr"),
        ({"target": "--help"}, "the target is a flag: --help", "flags in extra"),
        ({"base": "--help"}, "the base is a flag: --help", "flags in extra"),
        ({"extra": "--d-ff '64"}, "a quote in extra is not closed: --d-ff '64", "as in a shell"),
        ({"base": ""}, "no base is given, and this is no pull request", "base: origin/main"),
        ({"base": "nowhere"}, "no revision is called 'nowhere'", "git tag"),
    ],
)  # fmt: skip
def test_mistakes_end_with_2_one_line_and_a_hint(
    runner: Runner, inputs: dict, says: str, hint: str
) -> None:
    runner.event |= {"base_ref": "", "number": ""}
    done = runner.run(**{"target": TARGET, "base": "HEAD", "d_model": "64", **inputs})
    assert done.code == 2
    (annotation,) = re.findall(r"^::error title=ffnbench::.*$", done.said, re.MULTILINE)
    assert says in annotation
    (line,) = re.findall(r"^hint: .*$", done.said, re.MULTILINE)
    assert hint in line


def test_inputs_are_never_code(runner: Runner) -> None:
    """They come by variables, and a shell reads none of their signs."""
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step.get("run", "")
        assert "run" not in step or step["run"].startswith("set -euo pipefail\n")
    sign = "$(touch pwned)`touch pwned`; touch pwned"
    given = {
        name: f'"{sign}'
        for name in ACTION["inputs"]
        if name not in ("install", "extra", "python-version")
    }
    runner.run(**given)
    runner.run(**{**given, "extra": f"'{sign}'", "install": f"'{sign}'"})
    assert not [*runner.home.rglob("pwned")]
    assert installed(runner)[-1][-1] == sign

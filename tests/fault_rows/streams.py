"""stdout and stderr: without a reader, closed, full, of an encoding without our signs, a terminal; and pages of CI."""

from __future__ import annotations

import os
import re
import shlex
import xml.etree.ElementTree as xml

from fault_rows.kit import COST, OBEYED, QUICK, QUICK_SAMPLES, TWO, Done, Scene, fault, relabelled, sealed

HOSTILE = "\x1b]0;owned\x07\x9b31m\u202e[/red]<script>"
LINES = "a\n::error ::owned\n::add-mask::owned\r::warning ::owned"


def gone(scene: Scene, *command: object) -> Done:
    """A command whose reader has gone; the code is its own."""
    return scene.shell(f"ffnbench {shlex.join(map(str, command))} | true; exit ${{PIPESTATUS[0]}}")


@fault("the reader of stdout goes away: cost", "exit 0, files whole, not a word about it", 0)
def reader_of_cost(scene: Scene) -> None:
    done = gone(scene, *COST, "-o", "a.json", "-o", "a.csv")
    scene.expect("error" not in done.err, "it complains")
    scene.whole("a.json", 0)
    scene.expect((scene.folder / "a.csv").read_text().count("\n") == 3, "a.csv is not whole")


@fault("the reader of stdout goes away: compare", "exit 0, the run is saved whole", 0)
def reader_of_compare(scene: Scene) -> None:
    done = gone(scene, "compare", *QUICK, "-q", "-o", "a.json")
    scene.expect(not done.err.replace("wrote a.json\n", ""), "it complains")
    scene.whole("a.json", QUICK_SAMPLES)


@fault("the reader of stdout goes away: check of a regression", "exit 1", 1)
def reader_of_check(scene: Scene) -> None:
    gone(scene, *scene.pair())
    gone(scene, *scene.pair(), "--format", "github")


@fault("stdout closed: compare, cost, check of a regression", "the code of the answer; files whole", 0, 1)
def stdout_closed(scene: Scene) -> None:
    scene.ends(scene.shell(f"ffnbench compare {shlex.join(QUICK)} -q -o a.json >&-"), 0)
    scene.whole("a.json", QUICK_SAMPLES)
    scene.ends(scene.shell(f"ffnbench {shlex.join(COST)} -o b.json >&-"), 0)
    scene.whole("b.json")
    scene.ends(scene.shell(f"ffnbench {shlex.join(scene.pair())} >&-"), 1)


@fault("stderr closed", "exit 0, files whole", 0)
def stderr_closed(scene: Scene) -> None:
    scene.shell(f"ffnbench compare {shlex.join(QUICK)} -o a.json 2>&-")
    scene.whole("a.json", QUICK_SAMPLES)


@fault("stdin, stdout and stderr closed", "exit 0; no file of ours gets the number of a stream", 0)
def all_closed(scene: Scene) -> None:
    scene.shell(f"ffnbench compare {shlex.join(QUICK)} -o a.json -o a.csv <&- >&- 2>&-")
    scene.whole("a.json", QUICK_SAMPLES)
    scene.expect((scene.folder / "a.csv").read_text().count("\n") == 3, "a.csv is not whole")


@fault("stdout on a full device", "exit 3 and one line; files whole; a regression stays 1", 3, 1)
def full_device(scene: Scene) -> None:
    done = scene.ends(scene.shell(f"ffnbench compare {shlex.join(QUICK)} -q -o a.json >/dev/full"), 3)
    scene.says(done, "cannot write to stdout: No space left on device")
    scene.one_error(done)
    scene.whole("a.json", QUICK_SAMPLES)
    scene.ends(scene.shell(f"ffnbench {shlex.join(scene.pair())} >/dev/full"), 1)


@fault("stderr on a full device", "the code of the answer; files whole", 0, 1)
def full_errors(scene: Scene) -> None:
    scene.ends(scene.shell(f"ffnbench compare {shlex.join(QUICK)} -o a.json 2>/dev/full"), 0)
    scene.whole("a.json", QUICK_SAMPLES)
    scene.ends(scene.shell(f"ffnbench {shlex.join(scene.pair())} -o a.md 2>/dev/full"), 1)


@fault("the reader of stderr goes away", "the code of the answer; files whole", 0, 1)
def reader_of_errors(scene: Scene) -> None:
    how = "2> >(true)"
    scene.ends(scene.shell(f"ffnbench compare {shlex.join(QUICK)} -o a.json {how}"), 0)
    scene.whole("a.json", QUICK_SAMPLES)
    scene.ends(scene.shell(f"ffnbench {shlex.join(scene.pair())} -o a.md {how}"), 1)


def encoded(scene: Scene, encoding: str) -> None:
    """compare, report and check where stdout has an encoding without our signs."""
    with_encoding = {"PYTHONIOENCODING": encoding}
    done = scene.ends(scene.run("compare", *QUICK, "-q", "-o", "a.json", env=with_encoding), 0)
    scene.expect(not done.err.replace("wrote a.json\n", ""), "it complains")
    scene.whole("a.json", QUICK_SAMPLES)
    for format_ in ("table", "markdown"):
        done = scene.ends(scene.run("report", "a.json", "--format", format_, env=with_encoding), 0)
        scene.expect(encoding != "ascii" or done.out.isascii(), "there are signs that ASCII does not have")
        scene.expect("\\u" not in done.out, "signs are shown as escapes")
    scene.ends(scene.run(*scene.pair(), env=with_encoding), 1)


@fault("PYTHONIOENCODING=ascii", "the code of the answer; plain signs for ours", 0, 1)
def ascii_alone(scene: Scene) -> None:
    encoded(scene, "ascii")


@fault("PYTHONIOENCODING=latin-1", "the code of the answer; plain signs for ours", 0, 1)
def latin_1(scene: Scene) -> None:
    encoded(scene, "latin-1")


@fault("rich markup in labels, in a terminal", "exit 0, the labels as they were typed", 0)
def markup_in_a_terminal(scene: Scene) -> None:
    names = "[/x]=relu,[bold]b[/bold]=gelu"
    running, _ = scene.terminal("compare", *QUICK, "--variants", names)
    done = running.end()
    scene.expect("[/x]" in done.out, "[/x] is not shown")
    scene.expect("[bold]b[/bold]" in done.out, "[bold] is read as markup")


@fault("Ctrl-C in a terminal with such labels", "exit 130", 130)
def markup_and_ctrl_c(scene: Scene) -> None:
    running, keys = scene.terminal("compare", *TWO, "--variants", "[/x]=relu,gelu", "--budget", "60", "-o", "a.json")
    running.measuring()
    os.write(keys, b"\x03")
    running.end(30)
    scene.expect(scene.whole("a.json").get("interrupted"), "a.json does not say that it was interrupted")


def renamed(scene: Scene, name: str, label: str, **slower: float) -> str:
    """A saved run in which gelu has another label."""
    scene.write(name, sealed(relabelled(scene.measured(**slower), "gelu", label)))
    return name


@fault("ESC, OSC, C1 and marks of direction in the labels of a saved run", "shown with escapes, obeyed nowhere", 0, 1)
def controls_in_labels(scene: Scene) -> None:
    base, slow = renamed(scene, "base.json", HOSTILE), renamed(scene, "slow.json", HOSTILE, gelu=3.0)
    for format_ in ("table", "markdown", "csv", "json"):
        scene.plain(scene.ends(scene.run("report", base, "--format", format_), 0))
    scene.plain(scene.ends(scene.run("check", base, slow, "--tolerance", "latency=80%", "-o", "junit.xml"), 1))
    scene.plain(scene.ends(scene.run("check", base, "--exact-only"), 0))
    running, _ = scene.terminal("report", base)
    shown = running.end().out
    scene.expect("\x1b]" not in shown and "\x9b" not in shown and "\udc9b" not in shown, "a terminal obeys it")
    suite = xml.parse(scene.folder / "junit.xml").getroot()
    scene.expect(suite.tag == "testsuite", "junit.xml is no JUnit")
    scene.expect(not OBEYED.search((scene.folder / "junit.xml").read_text()), "junit.xml holds a control")


@fault("ESC in a label that is typed, and in what a module raises", "shown with escapes; a row that failed", 0, 2)
def controls_in_exceptions(scene: Scene) -> None:
    scene.plain(scene.ends(scene.run(*COST[:1], "--variants", f"{HOSTILE}=relu", "--d-model", "32"), 0))
    scene.write("raises.py", f"raise ValueError({HOSTILE!r})\n")
    done = scene.ends(scene.run("compare", *QUICK, "--variants", "relu,raises.py:Net", "-q"), 2)
    scene.plain(done)
    scene.one_error(done)


@fault("a label with a line break and `::error ::`, under --format github", "exit 1; no command but ours", 1)
def commands_in_labels(scene: Scene) -> None:
    base, slow = renamed(scene, "base.json", LINES), renamed(scene, "slow.json", LINES, gelu=3.0)
    summary = scene.write("summary.md", "")
    how = ("--tolerance", "latency=80%", "--format", "github")
    done = scene.run("check", base, slow, *how, env={"GITHUB_STEP_SUMMARY": str(summary)})
    first, _, rest = done.out.partition("\n")
    token = first.removeprefix("::stop-commands::")
    scene.expect(len(token) > 20 and f"\n::{token}::\n" in rest, "commands are not stopped while the table is shown")
    after = re.split("[\n\r]", rest.partition(f"\n::{token}::\n")[2])
    commands = [line for line in after if line.startswith("::")]
    ours = [line for line in commands if re.match(r"::(error|warning) title=ffnbench [A-Z]+::", line)]
    scene.expect(ours and ours == commands, "a command of the label's own stands at the beginning of a line")
    scene.expect("\n::" not in summary.read_text(), "the summary has a line that begins with ::")
    scene.tell(f"{len(ours)} annotation")


@fault("the job's summary can't be written", "exit 1 stays 1, with a line about it", 1)
def summary_is_a_folder(scene: Scene) -> None:
    done = scene.run(*scene.pair(), "--format", "github", env={"GITHUB_STEP_SUMMARY": str(scene.folder)})
    scene.says(done, "cannot write")

"""stdout and stderr: without a reader, closed, full, of an encoding without our signs, a terminal; and pages of CI."""

from __future__ import annotations

import os
import re
import shlex
import xml.etree.ElementTree as xml

from fault_rows.kit import COST, ENDLESS, FEW, OBEYED, QUICK, QUICK_SAMPLES, SMALL, Scene, fault, relabelled, sealed

HOSTILE = "\x1b]0;owned\x07\x9b31m\u202e[/red]<script>"
LINES = "a\n::error ::owned\n::add-mask::owned\r::warning ::owned"


def redirected(scene: Scene, how: str, compared: int = 0) -> None:
    """compare, cost, and check of a regression, with their streams like this."""
    done = scene.ends(scene.shell(f"ffnbench compare {shlex.join(QUICK)} -q -o a.json -o a.csv {how}"), compared)
    scene.whole("a.json", QUICK_SAMPLES)
    scene.expect((scene.folder / "a.csv").read_text().count("\n") == 3, "a.csv is not whole")
    if compared:
        scene.one_error(done)
        scene.says(done, "cannot write to stdout: No space left on device")
    else:
        scene.expect("error" not in done.err, "it complains")
    scene.ends(scene.shell(f"ffnbench {shlex.join(COST)} -o b.json {how}"), compared)
    scene.whole("b.json")
    scene.ends(scene.shell(f"ffnbench {shlex.join(scene.pair())} -o a.md {how}"), 1)


@fault("the reader of stdout goes away", "the code of the answer; files whole, not a word about it", 0, 1)
def reader_goes(scene: Scene) -> None:
    redirected(scene, "| true; exit ${PIPESTATUS[0]}")


@fault("stdout closed, stderr closed, all closed", "the code of the answer; files whole", 0, 1)
def closed(scene: Scene) -> None:
    for how in (">&-", "2>&-", "<&- >&- 2>&-"):
        redirected(scene, how)


@fault("stdout on a full device", "exit 3 and one line; files whole; a regression stays 1", 3, 1)
def full_device(scene: Scene) -> None:
    redirected(scene, ">/dev/full", 3)


@fault("stderr on a full device, or without a reader", "the code of the answer; files whole", 0, 1)
def full_errors(scene: Scene) -> None:
    for how in ("2>/dev/full", "2> >(true)"):
        redirected(scene, how)


@fault("PYTHONIOENCODING=ascii, latin-1", "the code of the answer; plain signs for ours", 0, 1)
def encoded(scene: Scene) -> None:
    for encoding in ("ascii", "latin-1"):
        ours = {"PYTHONIOENCODING": encoding}
        scene.ends(scene.run("compare", *QUICK, "-q", "-o", "a.json", env=ours), 0)
        scene.whole("a.json", QUICK_SAMPLES)
        for form in ("table", "markdown"):
            done = scene.ends(scene.run("report", "a.json", "--format", form, env=ours), 0)
            scene.expect(encoding != "ascii" or done.out.isascii(), "there are signs that ASCII does not have")
            scene.expect("\\u" not in done.out, "signs are shown as escapes")
        scene.ends(scene.run(*scene.pair(), env=ours), 1)


@fault("rich markup in labels, in a terminal; Ctrl-C there", "the labels as they were typed; exit 130", 0, 130)
def markup_in_a_terminal(scene: Scene) -> None:
    running, _ = scene.terminal("compare", *SMALL, *FEW, "--variants", "[/x]=relu,[bold]b[/bold]=gelu")
    done = scene.ends(running.end(), 0)
    scene.expect("[/x]" in done.out and "[bold]b[/bold]" in done.out, "labels are read as markup")
    running, keys = scene.terminal("compare", *SMALL, "--variants", "[/x]=relu,gelu", *ENDLESS, "-o", "a.json")
    running.measuring()
    os.write(keys, b"\x03")
    scene.ends(running.end(30), 130)
    scene.expect(scene.whole("a.json").get("interrupted"), "a.json does not say that it was interrupted")


def renamed(scene: Scene, name: str, label: str, **slower: float) -> str:
    """A saved run in which gelu has another label."""
    scene.write(name, sealed(relabelled(scene.measured(**slower), "gelu", label)))
    return name


@fault("ESC, OSC, C1 and marks of direction in labels, saved and typed, and in what a module raises",
       "shown with escapes, obeyed nowhere", 0, 1, 2)  # fmt: skip
def controls(scene: Scene) -> None:
    base, slow = renamed(scene, "base.json", HOSTILE), renamed(scene, "slow.json", HOSTILE, gelu=3.0)
    for form in ("table", "markdown", "csv", "json"):
        scene.plain(scene.ends(scene.run("report", base, "--format", form), 0))
    scene.plain(scene.ends(scene.run("check", base, slow, "--tolerance", "latency=80%", "-o", "junit.xml"), 1))
    running, _ = scene.terminal("report", base)
    shown = running.end().out
    scene.expect("\x1b]" not in shown and "\x9b" not in shown and "\udc9b" not in shown, "a terminal obeys it")
    scene.expect(xml.parse(scene.folder / "junit.xml").getroot().tag == "testsuite", "junit.xml is no JUnit")
    scene.expect(not OBEYED.search((scene.folder / "junit.xml").read_text()), "junit.xml holds a control")
    scene.plain(scene.ends(scene.run(*COST[:1], "--variants", f"{HOSTILE}=relu", "--d-model", "32"), 0))
    scene.write("raises.py", f"raise ValueError({HOSTILE!r})\n")
    done = scene.ends(scene.run("compare", *SMALL, *FEW, "--variants", "relu,raises.py:Net", "-q"), 2)
    scene.plain(done)
    scene.one_error(done)


@fault("a label with a line break and `::error ::` under --format github; a summary that can't be written",
       "exit 1; no command but ours, a line about the summary", 1)  # fmt: skip
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
    done = scene.run(*scene.pair(), "--format", "github", env={"GITHUB_STEP_SUMMARY": str(scene.folder)})
    scene.says(done, "cannot write")

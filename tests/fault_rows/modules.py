"""Modules of the user's that write into every file that is open, or start processes of their own."""

from __future__ import annotations

import signal
import time

from fault_rows.kit import QUICK, QUICK_SAMPLES, SMALL, Scene, fault
from fault_rows.resources import NET

FOUR = (*SMALL, "--variants", "relu,mine.py:Net", "--workers", "3")
WRITES = """
import os
for number in range(64):
    try:
        os.write(number, {content!r})
    except OSError:
        pass
"""
# a process that does not end by itself: in its parent's group, in a session of its own, or nobody's child any more
CHILD = """
import subprocess
nothing = {{"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}}
subprocess.Popen({command!r}, start_new_session={apart!r}, **nothing)
"""
ORPHAN = ["sh", "-c", "sleep 600 & exec setsid sleep 601"]


def writing(scene: Scene, content: bytes, *codes: int) -> None:
    """A module that writes this into every file that it finds open."""
    scene.write("mine.py", WRITES.format(content=content) + NET)
    done = scene.ends(scene.run("compare", *FOUR, "--rounds", "2", "--timeout", "20", "-q"), *codes)
    if done.code:
        scene.one_error(done)
        scene.expect(done.seconds < 60, f"it took {done.seconds:.0f} s")


@fault("a module that writes text into every open file", "exit 2 or 3 and one line, or a row that failed", 0, 2, 3)
def writes_text(scene: Scene) -> None:
    writing(scene, b"some words\n", 0, 2, 3)


@fault("a module that writes JSON into every open file", "exit 2 or 3 and one line, or a row that failed", 0, 2, 3)
def writes_json(scene: Scene) -> None:
    for content in (b"[1]\n", b"3\n", b'{"x": 1}\n', b'{"hello": 99}\n', b"null\n"):
        writing(scene, content, 0, 2, 3)


@fault("a module that writes what is no UTF-8 into every open file", "exit 2 or 3 and one line, at once", 0, 2, 3)
def writes_bytes(scene: Scene) -> None:
    writing(scene, b"\xff\xfe\n", 0, 2, 3)
    writing(scene, b"x" * 100_000, 0, 2, 3)


@fault("a module that closes every file, at import", "exit 2 or 3 and one line", 2, 3)
def closes_files(scene: Scene) -> None:
    scene.write("mine.py", "import os\nos.closerange(0, 64)\n" + NET)
    scene.one_error(scene.run("compare", *FOUR, "--rounds", "2", "--timeout", "20", "-q"))


def with_child(scene: Scene, apart: bool, command: list[str] | None = None, more: str = "") -> None:
    """A module that starts a process when it is imported."""
    scene.write("mine.py", CHILD.format(command=command or ["sleep", "600"], apart=apart) + NET + more)


def measured_with_child(scene: Scene) -> None:
    """The run is whole, and what the module had started has ended with its workers."""
    scene.run("compare", *FOUR, "--rounds", "2", "-q", "-o", "a.json")
    scene.nobody()
    scene.whole("a.json", QUICK_SAMPLES)


@fault("a module that starts a process", "exit 0; it ends with its worker", 0)
def child(scene: Scene) -> None:
    with_child(scene, apart=False)
    measured_with_child(scene)


@fault("a module that starts a process in a session of its own", "exit 0; it ends with its worker", 0)
def child_apart(scene: Scene) -> None:
    with_child(scene, apart=True)
    measured_with_child(scene)


@fault("a module that starts a process that is nobody's child any more", "exit 0; it ends with its worker", 0)
def orphan(scene: Scene) -> None:
    with_child(scene, apart=True, command=ORPHAN)
    measured_with_child(scene)


@fault("a module that starts a process, and whose worker dies", "exit 0, a row that failed; it ends with its worker", 0)
def child_of_a_dead_worker(scene: Scene) -> None:
    dies = "\nlast = Net.forward\ndef forward(self, x):\n    if x.device.type == 'cpu' and x.shape[1] > 8:\n"
    with_child(scene, apart=True, more=f"{dies}        os._exit(7)\n    return last(self, x)\nNet.forward = forward\n")
    scene.run("compare", *FOUR, "--rounds", "2", "-q", "-o", "a.json")
    scene.nobody()
    failed = [f["kind"] for f in scene.whole("a.json").get("failures", ())]
    scene.expect(failed == ["crash"], f"failures: {failed}")


@fault("a module that starts a process, and SIGKILL of the parent", "no process lives 2 s later", -9, leaves=True)
def child_of_a_killed_run(scene: Scene) -> None:
    with_child(scene, apart=True)
    running = scene.start("compare", *FOUR, "--rounds", "5000", "-o", "a.json")
    running.measuring()
    running.send(signal.SIGKILL)
    running.end(20)
    scene.nobody()


@fault("a module that starts a process, and SIGINT", "exit 130; no process lives 2 s later", 130)
def child_of_an_interrupted_run(scene: Scene) -> None:
    with_child(scene, apart=True)
    running = scene.start("compare", *FOUR, "--rounds", "5000", "-o", "a.json")
    running.measuring()
    running.send(signal.SIGINT)
    running.end(20)
    scene.nobody()


@fault("a module that hangs when it is imported", "exit 2 and one line, after --timeout", 2)
def hangs(scene: Scene) -> None:
    scene.write("mine.py", "import time\ntime.sleep(1000)\n" + NET)
    began = time.monotonic()
    scene.one_error(scene.run("compare", *FOUR, "--rounds", "2", "--timeout", "3", "-q"))
    scene.expect(time.monotonic() - began < 30, "it took more than 30 s")


@fault("a module that ignores every signal, and SIGINT", "exit 130; no process lives 2 s later", 130)
def ignores_signals(scene: Scene) -> None:
    ignore = "import signal\nfor one in range(1, 32):\n    try:\n        signal.signal(one, signal.SIG_IGN)\n"
    scene.write("mine.py", f"{ignore}    except (OSError, ValueError):\n        pass\n{NET}")
    running = scene.start("compare", *FOUR, "--rounds", "5000", "-o", "a.json")
    running.measuring()
    running.send(signal.SIGINT)
    running.end(20)
    scene.nobody()


@fault("modules that misbehave in every way, beside one of ours", "exit 0; a row that failed for each", 0)
def misbehaving(scene: Scene) -> None:
    when = "if x.device.type == 'cpu' and x.shape[1] > 8:"
    ways = {
        "Exits": "raise SystemExit(1)", "Dies": "os._exit(7)", "Faults": "os.kill(os.getpid(), 11)",
        "Raises": "raise KeyboardInterrupt", "Odd": "return x / 0",
    }  # fmt: skip
    text = NET + "".join(
        f"\nclass {name}(Net):\n    def forward(self, x):\n        {when}\n            {what}\n"
        "        return super().forward(x)\n" for name, what in ways.items()
    )  # fmt: skip
    scene.write("mine.py", text)
    names = ",".join(["relu", "mine.py:Net", *(f"mine.py:{name}" for name in ways)])
    scene.run("compare", *QUICK, "--variants", names, "-q", "-o", "a.json")
    failed = {f["case"] for f in scene.whole("a.json", QUICK_SAMPLES).get("failures", ())}
    scene.expect(failed == set(ways), f"failures: {sorted(failed)}")

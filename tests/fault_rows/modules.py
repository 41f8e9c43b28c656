"""Modules of the user's that write into every file that is open, or start processes of their own."""

from __future__ import annotations

import signal

from fault_rows.kit import FEW, QUICK_SAMPLES, SMALL, Scene, fault
from fault_rows.resources import NET

FOUR = (*SMALL, "--variants", "relu,mine.py:Net", "--workers", "3")
SHORT = (*FOUR, "--rounds", "2", "--timeout", "20", "-q")
WRITES = """
import os
for number in range(64):
    try:
        os.write(number, {content!r})
    except OSError:
        pass
"""
# a process that does not end by itself
CHILD = """
import subprocess
nothing = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
subprocess.Popen(["sleep", "600"], **nothing)
"""
DEAF = """
import signal
for one in range(1, 32):
    try:
        signal.signal(one, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
"""


@fault("a module that writes text, JSON, bytes into every open file", "exit 2 or 3 and one line, or a row that failed",
       0, 2, 3)  # fmt: skip
def writes(scene: Scene) -> None:
    for content in (b"some words\n", b"[1]\n", b'{"x": 1}\n', b'{"hello": 99}\n', b"\xff\xfe\n", b"x" * 100_000):
        scene.write("mine.py", WRITES.format(content=content) + NET)
        done = scene.run("compare", *SHORT)
        if done.code:
            scene.one_error(done)


@fault("a module that closes every file, that hangs at import", "exit 2 or 3 and one line, after --timeout", 2, 3)
def closes_or_hangs(scene: Scene) -> None:
    for text in ("import os\nos.closerange(0, 64)\n", "import time\ntime.sleep(1000)\n"):
        scene.write("mine.py", text + NET)
        scene.one_error(scene.run("compare", *SHORT, "--timeout", "5", seconds=60))


@fault("a module that starts a process, also beside a worker that dies", "exit 0; it ends with its worker", 0)
def children(scene: Scene) -> None:
    dies = "\nlast = Net.forward\ndef forward(self, x):\n    if x.device.type == 'cpu' and x.shape[1] > 8:\n"
    dies += "        os._exit(7)\n    return last(self, x)\nNet.forward = forward\n"
    for more in ("", dies):
        scene.write("mine.py", CHILD + NET + more)
        scene.run("compare", *SHORT, "-o", "a.json")
        scene.nobody()
        failed = [f["kind"] for f in scene.whole("a.json", None if more else QUICK_SAMPLES).get("failures", ())]
        scene.expect(failed == ["crash"] * bool(more), f"failures: {failed}")


@fault("a module that starts a process or hears no signal, and SIGINT; and SIGKILL", "no process lives 2 s later",
       130, -9, leaves=True)  # fmt: skip
def ended(scene: Scene) -> None:
    # a child of the module's outlives a parent that is killed by SIGKILL
    for number, code, texts in ((signal.SIGINT, 130, (CHILD, DEAF)), (signal.SIGKILL, -9, (DEAF,))):
        for text in texts:
            scene.write("mine.py", text + NET)
            running = scene.start("compare", *FOUR, "--rounds", "5000", "-o", "a.json")
            running.measuring()
            running.send(number)
            scene.ends(running.end(20), code)
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
    scene.run("compare", *SMALL, *FEW, "--variants", names, "-q", "-o", "a.json")
    failed = {f["case"] for f in scene.whole("a.json", QUICK_SAMPLES).get("failures", ())}
    scene.expect(failed == set(ways), f"failures: {sorted(failed)}")

"""What runs on another machine: it unpacks the sources that a parent has sent there, and starts workers as it is told.

Sent as text (run/elsewhere.py) to whatever Python stands there: the standard library alone, nothing of ffnbench's, and
the syntax of old ones. A line is `NUMBER VERB REST`; when no more come it ends all workers and leaves no folder.
"""

import base64
import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import zipfile

OLDEST = (3, 11)
SPEAKS = "ffnbench:"  # before a line of a worker: shells print too
TAIL = 2000  # bytes of what it printed, told when it ends
SPEAKING = threading.Lock()


def say(number: str, verb: str, rest: str) -> None:
    """One line to the parent."""
    with SPEAKING:
        sys.stdout.write(f"{SPEAKS} {number} {verb} {rest}\n")
        sys.stdout.flush()


def end(*leaders: int) -> None:
    """Kill processes and their groups."""
    for leader in leaders:
        for kill in (os.killpg, os.kill):
            try:
                kill(leader, signal.SIGKILL)
            except OSError:
                continue


def started(boot: str, number: str) -> subprocess.Popen:  # type: ignore[type-arg]  # old syntax
    """A worker, and a thread that passes on what it says, and how it has ended."""
    log = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the worker is there
    worker = subprocess.Popen(
        [sys.executable, "-u", boot], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
        encoding="utf-8", errors="replace", start_new_session=True, env={**os.environ, "FFNBENCH_WORKER": "1"},
    )  # fmt: skip

    def pass_on() -> None:
        for line in worker.stdout:  # type: ignore[union-attr]
            say(number, "said", line.rstrip("\n"))
        code = worker.wait()
        log.seek(max(0, log.seek(0, os.SEEK_END) - TAIL))
        say(number, "ended", json.dumps([code, log.read().decode("utf-8", "replace")]))

    threading.Thread(target=pass_on, daemon=True).start()
    return worker


def arrive(archive: str) -> None:
    """Do what the parent says, until it has gone."""
    print()  # behind whatever a shell has printed
    if sys.version_info < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        told = f"{sys.executable} is Python {sys.version.split()[0]}, and {oldest} is the oldest that will do"
        return say("1", "said", json.dumps({"error": told}))
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, lambda *_: sys.exit(1))
    folder, workers = tempfile.mkdtemp(prefix="ffnbench-"), {}
    try:
        zipfile.ZipFile(io.BytesIO(base64.b64decode(archive))).extractall(folder)
        for line in sys.stdin:
            number, verb, rest = line.rstrip("\n").split(" ", 2)
            if verb == "start":
                workers[number] = started(os.path.join(folder, "ffnbench", "worker", "boot.py"), number)
            elif verb == "ask":
                with contextlib.suppress(OSError):  # how it has ended is told by its thread
                    print(rest, file=workers[number].stdin, flush=True)
            elif verb == "kill":
                end(int(rest))
            elif workers[number].poll() is None:
                end(workers[number].pid)
    finally:
        end(*(worker.pid for worker in workers.values() if worker.poll() is None))
        shutil.rmtree(folder, ignore_errors=True)

"""What runs first on another machine: it unpacks the sources that a parent has sent there, and runs a worker of them.

Sent as text (run/elsewhere.py) to whatever Python stands there: the standard library alone, nothing of ffnbench's, and
the syntax of old ones. The first process only waits: it ends the worker when the parent has gone, and leaves no folder.
"""

import base64
import io
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import zipfile

OLDEST = (3, 11)
WAKING = ("SIGCHLD", "SIGTERM", "SIGHUP")


def arrive(archive: str) -> str:
    """In the process of the worker: the file to run. The one that waits for it does not come back."""
    os.write(1, b"\n")  # behind whatever a shell has printed
    if sys.version_info < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        told = f"{sys.executable} is Python {sys.version.split()[0]}, and {oldest} is the oldest that will do"
        print(json.dumps({"error": told}))
        sys.exit(1)
    sys.path[:] = [path for path in sys.path if path]  # as a file that is run has no current folder there
    folder = tempfile.mkdtemp(prefix="ffnbench-")
    zipfile.ZipFile(io.BytesIO(base64.b64decode(archive))).extractall(folder)
    woken, waking = os.pipe()
    os.set_blocking(waking, False)
    signal.set_wakeup_fd(waking)
    before = [signal.signal(getattr(signal, name), lambda *_: None) for name in WAKING]
    child = os.fork()
    if not child:
        signal.set_wakeup_fd(-1)
        for name, handler in zip(WAKING, before):  # noqa: B905 - old syntax
            signal.signal(getattr(signal, name), handler)
        os.setpgid(0, 0)
        os.environ["FFNBENCH_WORKER"] = "1"
        return os.path.join(folder, "ffnbench", "worker", "boot.py")
    look = select.poll()
    look.register(woken, select.POLLIN)
    look.register(0, getattr(select, "POLLRDHUP", 0))  # the worker reads it; here only that the parent has gone
    look.poll()
    for kill in (os.killpg, os.kill):
        try:
            kill(child, signal.SIGKILL)
        except OSError:
            continue
    status = os.waitpid(child, 0)[1]
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))

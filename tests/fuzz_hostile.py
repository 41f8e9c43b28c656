"""What tests/fuzz.py gives to real workers: modules that nobody should write, and small command lines around them."""

from __future__ import annotations

import random

from fuzz_inputs import MODULE, File, Input, Maker

HEAD = """
import os
import signal
import sys
import threading
import time

import torch
from torch import nn

"""
PLAIN = """

class Net(nn.Module):
    def __init__(self, dim, hidden_dim):
        super().__init__()
        self.up, self.down = nn.Linear(dim, hidden_dim), nn.Linear(hidden_dim, dim)
        self.calls = 0
        {in_init}

    def forward(self, x):
        self.calls += x.device.type == "cpu"
        {in_forward}
        y = self.down(torch.relu(self.up(x)))
        {after}
        return y


def act(x):
    {in_act}
    return x * torch.sigmoid(x)
"""
EVIL_TEXT = r'"\x1b]0;owned\x07\x1b[31m\n::error file=x::boo\r\u202e[/red] \x9b31m \u2028 " + "x" * 3000'
# at import, in the constructor, in forward, of the result, in an activation
AT_IMPORT = (
    f"raise ValueError({EVIL_TEXT})", "raise SystemExit(3)", "sys.exit('bye\\x1b[31m')", "os._exit(7)",
    "raise KeyboardInterrupt", "import not_there_at_all", "os.kill(os.getpid(), 11)", "os.kill(os.getpid(), 37)",
    f"print({EVIL_TEXT})", f"os.write(1, ({EVIL_TEXT}).encode())", "os.write(1, b'{\"value\": 1}\\n[1]\\n3\\n')",
    "time.sleep(1000)", "os.close(1); os.close(2)", "sys.stdout = None; sys.stderr = None", "os.chdir('/')",
    "os.environ.clear()", "sys.path.clear()", "torch.set_default_dtype(torch.float64)", "sys.modules.clear()",
    "class E(Exception):\n    def __str__(self): raise ValueError\nraise E",
    "raise type('\\x1b[31mE', (BaseException,), {})",
    "import warnings; warnings.warn('\\x1b[31m a warning')", "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
    "threading.Thread(target=time.sleep, args=(1000,)).start()", "sys.setrecursionlimit(60)", "x = input('? ')",
    "if os.fork() == 0: time.sleep(1000)", "torch.set_grad_enabled(False)", "__builtins__ = {}", "del nn",
    "def __getattr__(name): raise RuntimeError('no ' + name)", "raise RecursionError", "raise MemoryError",
    "this is no code",
)  # fmt: skip
IN_CALL = (
    f"raise ValueError({EVIL_TEXT})", "raise SystemExit(0)", "os._exit(0)", "os.kill(os.getpid(), 9)",
    "torch.ones(10**13)", "bytearray(10**13)", "time.sleep(1000)", f"print({EVIL_TEXT})", "return None", "return x",
    "raise KeyboardInterrupt", "raise StopIteration", "x.zero_()", "return self.forward(x)", "assert False",
    "os.write(1, b'\\xff\\xfe\\x00\\n')", "raise type('\\x1b[31mE', (Exception,), {})('x')", "torch.manual_seed(0)",
    "torch.set_num_threads(7)", "raise NotImplementedError('\\u202e')", "sys.stdout.close()",
    "raise torch.OutOfMemoryError",
    "signal.raise_signal(signal.SIGINT)", "if self.calls > 8: os._exit(5)",
    "if self.calls > 8: raise OSError(28, 'x\\ny')",
    "if self.calls > 8: time.sleep(1000)",
)  # fmt: skip
AFTER = (
    "return y / 0", "return y * float('nan')", "return y, y", "return y.double()", "return y[:, :1]",
    "return y.detach()",
    "return 3", "return [y]", "return y.to_sparse()", "return y.expand(2, *y.shape)", "y.x = y",
    "return y.requires_grad_()", "return torch.rand_like(y)",
)  # fmt: skip
TARGETS = (
    "bad.py:Net", "bad.py:act", "bad.py:act@gate=inner", "bad.py:nothing", "bad.py:Net@x=1", "bad.py:torch", "bad:Net",
    "bad.py:nn.Linear", "bad.py:Net.forward", "bad.py:Net@d_ff=7@mode=train", "ünï çödé=bad.py:Net",
    "\x1b[31m=bad.py:Net",
    "bad.py:Net@device=cuda:²", "bad.py:Net@threads=1000000000000", "\udcff=bad.py:Net", "bad.py:Net@env=A:\udcff",
    "bad.py:Net@python=fake-python", "bad.py:Net@source=.", "relu@python=mine.py", "bad.py:Net@dtype=float16",
)  # fmt: skip
FAKES = ("echo 3", "echo '[1]'", "echo '{}'", "echo '{\"hello\": 1}'", "exit 3", "printf '\\033[31m\\n'", "kill -9 $$")


def hostile_module(dice: random.Random) -> str:
    """A module with one thing wrong, or none."""
    place = dice.choice(("import", "import", "init", "forward", "forward", "after", "act", "none"))
    parts = {"in_init": "pass", "in_forward": "pass", "after": "pass", "in_act": "pass"}
    start = ""
    if place == "import":
        start = dice.choice(AT_IMPORT) + "\n"
    elif place == "after":
        parts["after"] = dice.choice(AFTER)
    elif place != "none":
        parts[f"in_{place}"] = dice.choice(IN_CALL)
    body = PLAIN
    for name, text in parts.items():
        body = body.replace("{" + name + "}", text)
    return HEAD + start + body


def real_input(dice: random.Random, maker: Maker) -> Input:
    """A small command line for real workers."""
    command = dice.choice(("compare", "compare", "compare", "activations", "ab", "plot-activations", "block", "check"))
    given = Input(command=command, encoding=dice.choice(("utf-8", "utf-8", "ascii")))
    given.files["mine.py"] = File("text", MODULE.encode())
    given.files["bad.py"] = File("text", hostile_module(dice).encode())
    fake = f"#!/bin/sh\n{dice.choice(FAKES)}\n"
    given.files["fake-python"] = File("script", fake.encode())
    target = dice.choice(TARGETS) if dice.random() < 0.7 else "mine.py:Net"
    given.meant = False
    timeout = dice.choice(("5", "5", "8"))
    if command == "compare":
        given.flag("--variants", f"relu,{target}" if dice.random() < 0.7 else f"{target},relu@d_ff=64")
        given.flag("--match", "none")
    elif command == "ab":
        given.words.append(dice.choice(("bad.py:Net", "bad.py:act", "mine.py:Net", "relu")))
        given.flag(*dice.choice((("--base-env", "A:1"), ("--base-source", "."), ("--base-python", "./fake-python"),
                                 ("--base-env", "PATH:"), ("--base-env", "PYTHONPATH:/nowhere"))))  # fmt: skip
        given.flag("--budget", "5")
    elif command in ("activations", "plot-activations"):
        given.flag("--activations", f"relu,{dice.choice(('bad.py:act', 'mine.py:act', 'bad.py:Net'))}")
        if command == "activations" and dice.random() < 0.5:
            for flag in (("--time",), ("--elements", "16"), ("--workers", "3"), ("--rounds", "2")):
                given.flag(*flag)
    elif command == "block":
        for flag in (("--variant", target), ("--heads", "2"), ("--seq-len", "4")):
            given.flag(*flag)
    else:
        given.words.append(maker.file(given, "own"))
        given.files["mine.py"] = given.files["bad.py"]
        given.flag("--budget", "5")
        if dice.random() < 0.7:
            given.flag("--trust", target)
        if dice.random() < 0.4:
            given.flag("--exact-only")
            given.flags.pop(0)
    if command in ("compare", "block"):
        for flag in (("--workers", "3"), ("--rounds", "2")):
            given.flag(*flag)
    if command in ("compare", "block", "ab"):
        for flag in (("--d-model", "16"), ("--threads", "1")):
            given.flag(*flag)
        if command != "block":
            given.flag("--seq-len", "4")
    if command != "check":
        given.flag("--timeout", dice.choice((timeout, timeout, timeout, timeout, "1e300")) if "1000" not in
                   str(given.files["bad.py"].data) else timeout)  # fmt: skip
    if dice.random() < 0.4:
        given.flag("-o", "out.json" if command != "plot-activations" else "out.csv")
    if command != "plot-activations" and dice.random() < 0.4:
        given.flag("--format", dice.choice(("csv", "json", "markdown")))
    return given

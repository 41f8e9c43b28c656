"""stdout and stderr, whatever they are: closed, full, without a reader, or of an encoding that can't show a sign."""

from __future__ import annotations

import codecs
import os
import sys

FALLBACK = "ffnbench"
PLAIN = {
    "±": "+-", "…": "...", "─": "-", "×": "x", "→": "->", "µ": "u", "˒": ",", "≥": ">=", "≤": "<=", "—": "-", "–": "-",
    "¹": "^1", "²": "^2", "³": "^3", "⁰": "^0", "⁴": "^4", "⁵": "^5", "⁶": "^6", "⁷": "^7", "⁸": "^8", "⁹": "^9",
}  # fmt: skip


def prepare() -> None:
    """Make both writable before anything is: a closed one is nowhere, a sign that can't be shown is plain ASCII.

    Descriptors 0 to 2 are taken, so that no file of ours, or of a worker's, ever gets the number of a closed stream.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) < 3:
        os.set_inheritable(number, True)
    os.close(number)
    codecs.register_error(FALLBACK, _plain)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - for the rest of the process
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=FALLBACK)


def _plain(problem: UnicodeError) -> tuple[str, int]:
    """What stands for signs that an encoding does not have."""
    assert isinstance(problem, UnicodeEncodeError)
    signs = problem.object[problem.start : problem.end]
    return "".join(PLAIN.get(sign) or _escaped(sign) for sign in signs), problem.end


def _escaped(sign: str) -> str:
    return sign.encode("ascii", "backslashreplace").decode()


def hush() -> None:
    """The reader of stdout has gone: nothing more to say, and no complaint at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)

"""stdout and stderr, whatever they are: closed, full, without a reader, or of an
encoding that can't show a sign.

And text from elsewhere (labels, paths, messages of exceptions, values of a config): it
is shown, and never obeyed.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import sys
from contextlib import suppress
from typing import Any, TextIO

FALLBACK = "ffnbench"
ASCII_SIGNS = {
    "±": "+-",
    "…": "...",
    "─": "-",
    "×": "x",
    "→": "->",
    "µ": "u",
    "˒": ",",
    "≥": ">=",
    "≤": "<=",
    "—": "-",
    "–": "-",
    "¹": "^1",
    "²": "^2",
    "³": "^3",
    "⁰": "^0",
    "⁴": "^4",
    "⁵": "^5",
    "⁶": "^6",
    "⁷": "^7",
    "⁸": "^8",
    "⁹": "^9",
}


# C0 and C1 controls, half surrogates, line and paragraph separators, marks that turn
# the direction of writing, and the two that are no characters, which XML may not hold
UNSEEN = re.compile(
    r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff]"
)
LONGEST_MESSAGE = 500  # characters of a message


def visible(text: str) -> str:
    """A text with what a terminal would obey, or hide, made visible: an escape is
    `\\x1b`, a line break `\\n`.
    """
    if text.isascii() and text.isprintable():
        return text
    return UNSEEN.sub(
        lambda sign: sign[0].encode("unicode_escape").decode("ascii"), text
    )


def say(text: str) -> None:
    """One line on stderr."""
    with suppress(OSError):  # nobody reads stderr
        print(visible(text), file=sys.stderr, flush=True)


def short(text: str) -> str:
    """A message in one line of a bearable length, its beginning and its end kept."""
    text = visible(text)
    if len(text) <= LONGEST_MESSAGE:
        return text
    return f"{text[: LONGEST_MESSAGE * 2 // 3]}...{text[-LONGEST_MESSAGE // 4 :]}"


def prepare_streams() -> None:
    """Make both writable before anything is: a closed one is nowhere, a sign that can't
    be shown is plain ASCII.

    Descriptors 0 to 2 are taken, so that no file of ours, or of a worker's, ever gets
    the number of a closed stream. A terminal of no width is one that has not told its
    own.
    """
    if os.environ.get("COLUMNS") == "0":
        del os.environ["COLUMNS"]
    while (number := os.open(os.devnull, os.O_RDWR)) < 3:
        os.set_inheritable(number, True)
    os.close(number)
    codecs.register_error(FALLBACK, _ascii_sign)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - for the rest of the process
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=FALLBACK)
    if not isinstance(sys.stderr, Forgiving):
        sys.stderr = Forgiving(sys.stderr)  # type: ignore[assignment]


class Forgiving:
    """stderr, whatever it is: where it is full, or its reader has gone, the rest is
    dropped and nothing else is.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """As a stream does; what can't be written is dropped."""
        try:
            return self._stream.write(text)
        except OSError:
            hush(2)
            return len(text)

    def flush(self) -> None:
        """As a stream does; what can't be written is dropped."""
        try:
            self._stream.flush()
        except OSError:
            hush(2)


def _ascii_sign(problem: UnicodeError) -> tuple[str, int]:
    """What stands for signs that an encoding does not have; where there is none JSON's
    escape, for it may be JSON.
    """
    assert isinstance(problem, UnicodeEncodeError)
    signs = problem.object[problem.start : problem.end]
    return "".join(
        ASCII_SIGNS.get(sign) or json.dumps(sign)[1:-1] for sign in signs
    ), problem.end


def hush(number: int = 1) -> None:
    """The reader of stdout has gone: nothing more to say, and no complaint at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)

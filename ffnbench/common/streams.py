"""Writes to stdout and stderr, whatever they are: closed, full, without a reader, or of
an encoding that can't show a character.

Text from elsewhere (labels, paths, messages of exceptions, values of a config) is made
harmless: a terminal shows it, and does not obey it.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import sys
from contextlib import suppress
from typing import Any, TextIO

ASCII_FALLBACK = "ffnbench"  # the name under which codecs knows _ascii_sign
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
# a word, or a text in quotes, of more than 80 characters: its first 60 and its last 15;
# what has a slash is a path, and stays whole
LONG_INPUT = re.compile(
    r"((?<!\w)'[^'/]{60})[^'/]{6,}([^'/]{15}'(?!\w))|([^\s/]{60})[^\s/]{6,}([^\s/]{15})"
)
LONGEST_MESSAGE = 500  # characters of a message


def visible(text: str) -> str:
    """The text with the characters that a terminal would obey or hide made visible: an
    escape becomes `\\x1b`, a line break `\\n`.
    """
    if text.isascii() and text.isprintable():
        return text
    return UNSEEN.sub(
        lambda sign: sign[0].encode("unicode_escape").decode("ascii"), text
    )


def say(text: str) -> None:
    """Write a line to stderr."""
    with suppress(OSError):  # nobody reads stderr
        print(visible(text), file=sys.stderr, flush=True)


def short(text: str) -> str:
    """A message as one line; of a long one the beginning and the end."""
    text = visible(text)
    if len(text) <= LONGEST_MESSAGE:
        return text
    return f"{text[: LONGEST_MESSAGE * 2 // 3]}...{text[-LONGEST_MESSAGE // 4 :]}"


def with_short_inputs(text: str) -> str:
    """The message with the middle of each long word, and of each long text in quotes,
    left out.
    """
    if len(text) <= 80:
        return text
    return LONG_INPUT.sub(lambda match: "...".join(filter(None, match.groups())), text)


def prepare_streams() -> None:
    """Make stdout and stderr writable before anything is written to them.

    A closed stream becomes /dev/null, and a character that can't be shown is written in
    ASCII. Descriptors 0 to 2 are taken, so that no file of this process, or of a
    worker, ever gets the number of a closed stream. A width of 0 means that the
    terminal has not told its width.
    """
    if os.environ.get("COLUMNS") == "0":
        del os.environ["COLUMNS"]
    while (number := os.open(os.devnull, os.O_RDWR)) < 3:
        os.set_inheritable(number, True)
    os.close(number)
    codecs.register_error(ASCII_FALLBACK, _ascii_sign)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - for the rest of the process
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=ASCII_FALLBACK)
    if not isinstance(sys.stderr, ForgivingStderr):
        sys.stderr = ForgivingStderr(sys.stderr)  # type: ignore[assignment]


class ForgivingStderr:
    """A stderr that drops the rest of what is written where it is full, or has no
    reader any more.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text, or drop it; gives its length, as a stream does."""
        try:
            return self._stream.write(text)
        except OSError:
            hush(2)
            return len(text)

    def flush(self) -> None:
        """Flush the stream, or drop what can't be written."""
        try:
            self._stream.flush()
        except OSError:
            hush(2)


def _ascii_sign(problem: UnicodeError) -> tuple[str, int]:
    """The ASCII for characters that an encoding does not have, and the place behind
    them: JSON's escape where there is no other, since the text may be JSON.
    """
    assert isinstance(problem, UnicodeEncodeError)
    signs = problem.object[problem.start : problem.end]
    return "".join(
        ASCII_SIGNS.get(sign) or json.dumps(sign)[1:-1] for sign in signs
    ), problem.end


def hush(number: int = 1) -> None:
    """Send what is still written to this descriptor to /dev/null: its reader has gone,
    and Python must not complain of it at exit.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)

"""The text that a model is trained on: the bytes of files, some of which it never sees. No torch.

The default is the source of Python's standard library, which every machine has; its hash says which one.
"""

from __future__ import annotations

import hashlib
import os
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.jsonable import least

SKIPPED = {"site-packages", "dist-packages", "test", "tests", "__pycache__"}  # folders of the standard library
HELD_OUT, CHOOSING = 0.1, 0.1  # of the files: what losses are reported of, and what rates are chosen by
MOST_BYTES = 1 << 30
TEXT = bytes((9, 10, 13, *range(32, 127), *range(128, 256)))
LEAST_BATCHES = 2  # of each part
VOCABULARY = 256  # a token is a byte


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Which text it was. `path` is as it was typed, empty for the standard library; `printable` is the share of its
    bytes that are text; `sha256` is of all of them, in order.
    """

    path: str
    files: int = field(metadata=least(1))
    bytes: int = field(metadata=least(1))
    held_out_bytes: int = field(metadata=least(1))
    sha256: str
    printable: float


@dataclass(frozen=True, slots=True)
class Parts:
    """The bytes to train on, to choose rates by, and to report. `by_place`: the last bytes are held out, whichever file
    they are of.
    """

    train: bytes
    choosing: bytes
    held_out: bytes
    by_place: bool = False

    @property
    def shortest(self) -> int:
        """Bytes of the smallest part."""
        return min(len(self.train), len(self.choosing), len(self.held_out))


def read_text(path: str, least_bytes: int) -> tuple[Text, Parts]:
    """The parts of a file or a folder, each with at least so many bytes; of the .py files of the standard library where
    none is named.

    Files are split by the hash of their names; one, or so few that a part would be too short, by place: the last bytes
    are held out. Raises FfnbenchError where there is none, it can't be read, or is too short.
    """
    try:
        root = Path(path or sysconfig.get_path("stdlib")).expanduser()
    except RuntimeError as problem:  # ~name of nobody
        raise FfnbenchError(
            f"--text {path!r} is in the home of a user that is not there", "is the path right?"
        ) from problem
    try:
        names = [root] if root.is_file() else sorted(_files(root, library=not path))
        if sum(name.stat().st_size for name in names) > MOST_BYTES:
            raise FfnbenchError(f"--text {path!r} holds more than 1 GiB", "name a part of it")
        contents = {name: name.read_bytes() for name in names}
    except OSError as problem:
        raise FfnbenchError(f"--text {path!r} can't be read: {problem.strerror}", "is the path right?") from problem
    whole = b"".join(contents.values())
    parts = _cut(whole)
    if len(names) > 1:
        by_name = _split({str(name.relative_to(root)): content for name, content in contents.items()})
        parts = by_name if by_name.shortest >= least_bytes else parts
    if parts.shortest < least_bytes:
        named = f"--text {path!r}" if path else "the default text, the standard library's .py files,"
        raise FfnbenchError(
            f"{named} has {len(whole):,} bytes: too short for parts of {least_bytes:,}, "
            f"{LEAST_BATCHES} batches, to be held out",
            "a longer text, a smaller --batch or a smaller --context",
        )
    told = Text(
        path=path, files=len(names), bytes=len(whole), held_out_bytes=len(parts.held_out),
        sha256=hashlib.sha256(whole).hexdigest(), printable=1 - len(whole.translate(None, TEXT)) / len(whole),
    )  # fmt: skip
    return told, parts


def _files(root: Path, *, library: bool) -> Iterator[Path]:
    if not root.is_dir():
        raise FfnbenchError(f"--text {str(root)!r} is no file and no folder", "is the path right?")
    for folder, inner, names in os.walk(root):
        inner[:] = [name for name in inner if not name.startswith(".") and not (library and name in SKIPPED)]
        yield from (Path(folder, name) for name in names if not name.startswith(".") and
                    (not library or name.endswith(".py")) and Path(folder, name).is_file())  # fmt: skip


def _cut(whole: bytes) -> Parts:
    end, held = int(len(whole) * (1 - HELD_OUT - CHOOSING)), int(len(whole) * (1 - HELD_OUT))
    return Parts(whole[:end], whole[end:held], whole[held:], by_place=True)


def _split(files: dict[str, bytes]) -> Parts:
    """By the hash of each name: a file that is added moves no other one."""
    found: dict[str, list[bytes]] = {"train": [], "choosing": [], "held_out": []}
    for name, content in files.items():
        place = int(hashlib.sha256(os.fsencode(name)).hexdigest()[:8], 16) / 2**32
        part = "held_out" if place < HELD_OUT else "choosing" if place < HELD_OUT + CHOOSING else "train"
        found[part].append(content)
    train, choosing, held_out = (b"".join(contents) for contents in found.values())
    return Parts(train, choosing, held_out)


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """How a model is trained: so many steps with AdamW at a rate that warms up and falls, what is drawn by `seed`."""

    text: Text
    steps: int = field(metadata=least(1))
    rate: float = field(metadata=least(0.0))
    seed: int = field(metadata=least(0))

"""The text that models learn, and how it is split. No torch.

The default text is the source of Python's standard library, which every machine has;
its hash says which version it was.
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

# folders of the standard library without sources of its own
SKIPPED_FOLDERS = {"site-packages", "dist-packages", "test", "tests", "__pycache__"}
# shares of the text that losses are reported of, and that rates are chosen by
HELD_OUT_SHARE, CHOOSING_SHARE = 0.1, 0.1
MOST_TEXT_BYTES = 1 << 30
LEAST_BATCHES = 2  # of each part
# bytes of characters: white space, ASCII, and all bytes of UTF-8's longer ones
PRINTABLE = bytes((9, 10, 13, *range(32, 127), *range(128, 256)))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingText:
    """Which text it was. `path` is as it was typed, empty for the standard library;
    `printable` is the share of its bytes that are characters; `sha256` is the hash of
    all bytes in order.
    """

    path: str
    files: int = field(metadata=least(1))
    bytes: int = field(metadata=least(1))
    held_out_bytes: int = field(metadata=least(1))
    sha256: str
    printable: float


@dataclass(frozen=True, slots=True)
class Parts:
    """The bytes to train on, to choose rates by, and to report losses of.

    `by_place`: the last bytes are held out, whichever file they are of.
    """

    train: bytes
    choosing: bytes
    held_out: bytes
    by_place: bool = False

    @property
    def shortest(self) -> int:
        """Bytes of the smallest part."""
        return min(len(self.train), len(self.choosing), len(self.held_out))


def read_text(path: str, batch: int, context: int) -> tuple[TrainingText, Parts]:
    """Read a file or a folder, or the standard library's .py files for an empty path,
    and split it into parts; `batch` sequences of `context` + 1 bytes are a batch.

    Files are split by the hash of their names. One file, or so few that a part would be
    too short, are split by place. Raises FfnbenchError for a text that can't be read,
    or with which a part would be shorter than LEAST_BATCHES batches.
    """
    root = Path(path or sysconfig.get_path("stdlib"))
    try:
        if not root.exists():
            raise FfnbenchError(
                f"--text {path!r} is no file and no folder", "is the path right?"
            )
        files = [root] if root.is_file() else sorted(_files_in(root, library=not path))
        if sum(file.stat().st_size for file in files) > MOST_TEXT_BYTES:
            raise FfnbenchError(
                f"--text {path!r} holds more than 1 GiB", "name a part of it"
            )
        contents = {str(file.relative_to(root)): file.read_bytes() for file in files}
    except OSError as problem:
        raise FfnbenchError(
            f"--text {path!r} can't be read: {problem.strerror}", "is the path right?"
        ) from problem
    content = b"".join(contents.values())
    least_bytes = LEAST_BATCHES * batch * (context + 1)
    parts = _split_by_name(contents)
    if parts.shortest < least_bytes:
        parts = _split_by_place(content)
    if parts.shortest < least_bytes:
        if path:
            named = f"--text {path!r}"
        else:
            named = "the default text, the standard library's .py files,"
        raise FfnbenchError(
            f"{named} has {len(content):,} bytes: too short for parts of {least_bytes:,}, "
            f"{LEAST_BATCHES} batches, to be held out",
            "a longer text, a smaller --batch or a smaller --context",
        )
    text = TrainingText(
        path=path,
        files=len(files),
        bytes=len(content),
        held_out_bytes=len(parts.held_out),
        sha256=hashlib.sha256(content).hexdigest(),
        printable=1 - len(content.translate(None, PRINTABLE)) / len(content),
    )
    return text, parts


def _files_in(root: Path, *, library: bool) -> Iterator[Path]:
    """The files below a folder that are not hidden; with `library` only the standard
    library's own sources, without their tests.
    """
    for folder, inner, names in os.walk(root):
        inner[:] = [
            name
            for name in inner
            if not name.startswith(".") and not (library and name in SKIPPED_FOLDERS)
        ]
        for name in names:
            file = Path(folder, name)
            if (
                not name.startswith(".")
                and file.is_file()
                and (name.endswith(".py") or not library)
            ):
                yield file


def _split_by_place(content: bytes) -> Parts:
    """Cut the text in two places: its last bytes are held out."""
    choosing_at = int(len(content) * (1 - HELD_OUT_SHARE - CHOOSING_SHARE))
    held_out_at = int(len(content) * (1 - HELD_OUT_SHARE))
    return Parts(
        content[:choosing_at],
        content[choosing_at:held_out_at],
        content[held_out_at:],
        by_place=True,
    )


def _split_by_name(contents: dict[str, bytes]) -> Parts:
    """Sort the files into parts by the hash of their names: a file that is added moves
    no other one to another part.
    """
    train, choosing, held_out = bytearray(), bytearray(), bytearray()
    for name, content in contents.items():
        # evenly distributed between 0 and 1
        place = int(hashlib.sha256(os.fsencode(name)).hexdigest()[:8], 16) / 2**32
        if place < HELD_OUT_SHARE:
            held_out += content
        elif place < HELD_OUT_SHARE + CHOOSING_SHARE:
            choosing += content
        else:
            train += content
    return Parts(bytes(train), bytes(choosing), bytes(held_out))

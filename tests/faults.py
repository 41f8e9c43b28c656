"""What is promised for each fault, provoked for real: `python tests/faults.py [--only NAME] [--markdown]`.

Prints a table, and ends with 1 if something is not as promised. Each fault has a folder of its own, real processes and
real signals; a look at the processes and at what is left behind belongs to every one. Some minutes; Linux.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from fault_rows import data, files, modules, resources, signals, streams, trust
from fault_rows.kit import FAULTS, Fault, Scene, Shared, Skip

ROOMS = {
    "Streams and terminals": streams, "Files, places, the clock": files, "Signals": signals,
    "Disk, memory, checkouts": resources, "Modules of the user's": modules, "Data": data, "Code of others": trust,
}  # fmt: skip
HEADER = ("fault", "what is promised", "what happened", "as promised?")
LONGEST = 100  # characters of what happened


@dataclass(frozen=True, slots=True)
class Row:
    """What became of a fault; `skipped` is why it was not provoked."""

    fault: Fault
    codes: tuple[int, ...]
    happened: tuple[str, ...]
    broken: tuple[str, ...]
    seconds: float
    skipped: str = ""

    @property
    def kept(self) -> bool:
        """Whether all is as promised."""
        return not self.broken

    @property
    def cells(self) -> tuple[str, ...]:
        """The row as text."""
        if self.skipped:
            return (self.fault.name, self.fault.promise, f"skipped: {self.skipped}", "-")
        broken = "; ".join(self.broken).encode("utf-8", "backslashreplace").decode()
        codes = "exit " + ", ".join(str(code) for code in dict.fromkeys(self.codes))
        said = "; ".join(dict.fromkeys((codes, *self.happened)))
        shown = said if len(said) <= LONGEST else said[: LONGEST - 3] + "..."
        return (self.fault.name, self.fault.promise, shown, "yes" if self.kept else f"**no**: {broken}")


def provoked(fault: Fault, base: Path, shared: Shared) -> Row:
    """Provoke one fault, and hold what every fault promises: no process and no file is left."""
    scene, began, skipped = Scene(base, shared), time.monotonic(), ""
    try:
        fault.provoke(scene)
    except Skip as reason:
        skipped = str(reason)
    except Exception as problem:  # of the fault itself: it could not be provoked, so nothing is shown
        scene.broken.append(f"the fault itself: {type(problem).__name__}: {problem}"[:200])
    for code in dict.fromkeys(scene.codes):
        scene.expect(code in fault.codes, f"exit {code}")
    scene.nobody()
    if not fault.leaves:
        scene.nothing_left()
    broken = tuple(dict.fromkeys(scene.broken)) if not skipped else ()
    return Row(fault, tuple(scene.codes), tuple(scene.happened), broken, time.monotonic() - began, skipped)


def rows_of(chosen: list[Fault], base: Path) -> list[Row]:
    """One fault after the other, each told on stderr as it ends."""
    shared, rows = Shared(base / "shared"), []
    for number, fault in enumerate(chosen):
        try:
            row = provoked(fault, base / str(number), shared)
        except KeyboardInterrupt:  # what is known by then is shown
            break
        shutil.rmtree(base / str(number), ignore_errors=True)
        rows.append(row)
        how = f"skipped: {row.skipped}" if row.skipped else "ok" if row.kept else "NOT: " + "; ".join(row.broken)
        print(f"{row.seconds:6.1f} s  {fault.name}: {how}", file=sys.stderr, flush=True)
    return rows


def markdown(rows: list[Row]) -> str:
    """The file results/faults.md."""
    kept, skipped = sum(row.kept and not row.skipped for row in rows), sum(bool(row.skipped) for row in rows)
    missing = f", {skipped} could not be provoked here" if skipped else ""
    lines = [
        "# Faults", "",
        "Each was provoked for real: real processes, real signals, small sizes. Every row promises three things more:",
        "no process of it lives 2 s later; no temporary file is left, unless a result was rescued or a process killed;",
        "and there is no traceback. `python tests/faults.py --markdown` makes this file, in some minutes.", "",
        f"{kept} of {len(rows) - skipped} are as promised{missing}.",
    ]  # fmt: skip
    of = {id(row.fault): title for title, room in ROOMS.items() for row in rows if _stands_in(row.fault, room)}
    for title in ROOMS:
        mine = [row for row in rows if of[id(row.fault)] == title]
        if mine:
            lines += ["", f"## {title}", "", _pipe(HEADER), _pipe((":--",) * 4), *(_pipe(row.cells) for row in mine)]
    return "\n".join(lines) + "\n"


def _stands_in(fault: Fault, room: ModuleType) -> bool:
    return fault.provoke.__module__ == room.__name__


def plain(rows: list[Row]) -> str:
    """The table for a terminal: a fault a paragraph, for no width holds it."""
    lines = []
    for row in rows:
        name, promise, happened, kept = row.cells
        lines += [f"{name}", f"    promised:  {promise}", f"    happened:  {happened}", f"    {kept.replace('**', '')}"]
    return "\n".join([*lines, f"{sum(row.kept for row in rows)} of {len(rows)} are as promised"]) + "\n"


def _pipe(cells: tuple[str, ...]) -> str:
    safe = (cell.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ") for cell in cells)
    return "| " + " | ".join(safe) + " |"


def main() -> int:
    """Provoke what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", metavar="NAME", action="append", help="a part of a fault's name; repeatable")
    parser.add_argument("--markdown", action="store_true", help="as results/faults.md")
    parser.add_argument("--list", action="store_true", help="the names alone")
    asked = parser.parse_args()
    chosen = [f for f in FAULTS if not asked.only or any(part.lower() in f.name.lower() for part in asked.only)]
    if not chosen:
        parser.error(f"no fault is called {', '.join(asked.only)}; --list shows all")
    if asked.list:
        print("\n".join(fault.name for fault in chosen))
        return 0
    base = Path(tempfile.mkdtemp(prefix="faults-"))
    try:
        rows = rows_of(chosen, base)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    print(markdown(rows) if asked.markdown else plain(rows), end="")
    return 0 if all(row.kept for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

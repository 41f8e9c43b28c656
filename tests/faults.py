"""What is promised for each fault, provoked for real: `python tests/faults.py [--only NAME]`.

Prints what is not as promised, and ends with 1 if there is any. Each fault has a folder of its own, real processes and
real signals; a look at the processes and at what is left behind belongs to every one. Some minutes; Linux. Files and
words that are odd: tests/fuzz.py; baselines of somebody else: tests/test_trust_attacks.py.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from fault_rows import files, modules, resources, signals, streams  # noqa: F401 - they are the rows
from fault_rows.kit import FAULTS, Fault, Scene, Shared, Skip


def provoked(fault: Fault, base: Path, shared: Shared) -> tuple[str, ...]:
    """Provoke one fault; gives what is not as promised, be it that a process or a file is left. Raises Skip."""
    scene = Scene(base, shared)
    try:
        fault.provoke(scene)
    except Skip:
        raise
    except Exception as problem:  # of the fault itself: it could not be provoked, so nothing is shown
        scene.broken.append(f"the fault itself: {type(problem).__name__}: {problem}"[:200])
    for code in dict.fromkeys(scene.codes):
        scene.expect(code in fault.codes, f"exit {code}")
    scene.nobody()
    if not fault.leaves:
        scene.nothing_left()
    return tuple(dict.fromkeys(scene.broken))


def main() -> int:
    """Provoke what was asked for, one fault after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", metavar="NAME", action="append", default=[], help="a part of a name; repeatable")
    asked = parser.parse_args().only
    chosen = [one for one in FAULTS if not asked or any(part.lower() in one.name.lower() for part in asked)]
    base, failed = Path(tempfile.mkdtemp(prefix="faults-")), 0
    shared = Shared(base / "shared")
    try:
        for number, fault in enumerate(chosen):
            began = time.monotonic()
            try:
                broken = provoked(fault, base / str(number), shared)
                told = "as promised" if not broken else "NOT: " + "; ".join(broken)
            except Skip as reason:
                broken, told = (), f"skipped: {reason}"
            failed += bool(broken)
            print(f"{time.monotonic() - began:6.1f} s  {fault.name}\n{'':10}{fault.promise}: {told!a}", flush=True)
            shutil.rmtree(base / str(number), ignore_errors=True)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    print(f"{len(chosen) - failed} of {len(chosen)} are as promised")
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())

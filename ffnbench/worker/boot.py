"""Starts a worker under any interpreter that has torch: `PYTHON boot.py`. The ffnbench
that runs there is the package that this file belongs to.

Nothing but this package becomes importable, so that another interpreter finds its own
torch, and an ffnbench in a source folder is not taken for this one.
"""

import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def main() -> None:
    """Load the package that this file belongs to, and run its worker."""
    if sys.path and os.path.abspath(sys.path[0]) == HERE:
        # Python has put the folder of this script there: its files would be modules of
        # the top level
        del sys.path[0]
    package = os.path.dirname(HERE)
    spec = importlib.util.spec_from_file_location(
        "ffnbench",
        os.path.join(package, "__init__.py"),
        submodule_search_locations=[package],
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules["ffnbench"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    from ffnbench.worker.loop import main as run_worker

    run_worker()


if __name__ == "__main__":
    main()

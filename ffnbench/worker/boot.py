"""Starts a worker under any interpreter: `PYTHON boot.py`. That one needs torch;
ffnbench is the one this file is of.

Nothing beside the package becomes importable by it, so that another interpreter finds
its own torch, and a source tree that holds an ffnbench of its own does not come
between.
"""

import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def main() -> None:
    """Load this very package, then be its worker."""
    if sys.path and os.path.abspath(sys.path[0]) == HERE:
        del sys.path[0]  # the folder of a script: its files are no modules of the top
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
    from ffnbench.worker.loop import main as work

    work()


if __name__ == "__main__":
    main()

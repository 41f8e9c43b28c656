"""The features that the core does not need: a folder each, and a row of features.py.
None knows another.

To delete a feature is to delete its row there and its line here, its folder, its folder
of tests (tests/extras/NAME), its page of docs and its script in benchmarks/.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what `ffnbench.inspect` and the like are, for editors
    from ffnbench.extras.models.python import inspect as inspect

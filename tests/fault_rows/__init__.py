"""The faults that `python tests/faults.py` provokes, by what they are about."""

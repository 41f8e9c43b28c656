"""Rows of saved runs over time: where they step from one level to another, and at which commits."""

from ffnbench.features import Feature

FEATURE = Feature(name="history", commands=("history",))

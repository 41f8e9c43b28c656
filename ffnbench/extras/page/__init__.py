"""The page of an answer, `-o run.html`: one file to read and share."""

from ffnbench.features import Feature

FEATURE = Feature(name="page", suffixes=(".html",))

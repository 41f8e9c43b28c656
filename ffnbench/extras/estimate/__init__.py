"""Bounds on the time of variants on machines that are not here, by published peaks."""

from ffnbench.features import Feature

FEATURE = Feature(
    name="estimate", commands=("estimate",), calls=("estimate",), listings=("hardware",), completes=("hardware",)
)

"""What a small language model learns with each variant, beside the time of a step and of a token."""

from ffnbench.features import Feature

FEATURE = Feature(name="train", commands=("train",), calls=("train",), kinds=("train",), requests=("Train",))

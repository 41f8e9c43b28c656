"""How often ffnbench is wrong on this machine, by runs whose true ratios are known."""

from ffnbench.features import Feature

FEATURE = Feature(name="selftest", commands=("selftest",), calls=("selftest",))

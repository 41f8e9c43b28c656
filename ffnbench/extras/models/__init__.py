"""What is in a model: its FFNs by kind of layer, and every parameter by part."""

from ffnbench.features import Feature

FEATURE = Feature(name="models", commands=("inspect",), calls=("inspect",), requests=("CountLayers", "CountWhole"))

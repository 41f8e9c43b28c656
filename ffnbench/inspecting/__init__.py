"""What is in a model: its FFNs by kind of layer, and every parameter by part."""

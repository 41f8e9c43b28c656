"""What is in a model: every parameter by part, its FFNs by kind of layer."""

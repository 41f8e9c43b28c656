"""Features that the core does not need, a folder each; none knows another. features.py finds them."""

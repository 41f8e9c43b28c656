"""What a small language model learns with each variant, beside the time of a step."""

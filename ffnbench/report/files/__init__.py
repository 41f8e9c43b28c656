"""Files of answers: written whole or not at all, and read again with a check."""

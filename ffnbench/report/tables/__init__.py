"""Answers as tables: what stands in them, the words around them, and how they are laid out."""

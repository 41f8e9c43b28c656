"""What do samples allow to say? Pure."""

"""What do I ask? Pure: text in, a Plan out."""

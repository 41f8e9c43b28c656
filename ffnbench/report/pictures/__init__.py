"""Pictures of answers. matplotlib is at home in these files alone."""

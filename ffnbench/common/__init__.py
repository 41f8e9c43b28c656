"""What every room uses: errors, names, units, JSON, streams, files, git and targets."""

"""A rank that has stopped, and the cells that a shell sends it."""

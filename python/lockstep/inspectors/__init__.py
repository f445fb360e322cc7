"""The inspectors that look once."""

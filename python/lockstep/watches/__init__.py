"""Inspectors that look while training runs, and the count of its steps."""

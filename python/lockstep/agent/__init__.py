"""The agent of a rank, which answers a shell."""

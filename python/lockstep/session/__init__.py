"""Sessions whose ranks are Python: `lockstep --python` starts them, and they sit at its prompt
(docs/python-sessions.md)."""

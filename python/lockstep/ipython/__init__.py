"""`%load_ext lockstep` in IPython: magics that drive a session of Python ranks. The session is the program `lockstep`,
as a kernel of Jupyter; this package has its magics, and shows its answers (docs/python-sessions.md)."""

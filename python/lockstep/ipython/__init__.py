"""`%load_ext lockstep` in IPython: magics that drive a session of Python ranks. The session is the program `lockstep`,
as a kernel of Jupyter; here are its magics, and what shows what it answers (docs/python-sessions.md)."""

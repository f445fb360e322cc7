"""`%load_ext lockstep` in an IPython shell of this process: start until all ranks have answered a first cell, then `1+1` on all ranks."""
import contextlib
import io
import os
import sys
import time

from common import leave, milliseconds, options, own_ipython_folder, report

arguments = options(__doc__)
folder = own_ipython_folder()
os.environ["XDG_RUNTIME_DIR"] = folder.name

from IPython.core.history import HistoryManager
from IPython.core.interactiveshell import InteractiveShell

HistoryManager.enabled = False
shell = InteractiveShell.instance()


def run(code):
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
        result = shell.run_cell(code)
    if not result.success:
        raise RuntimeError(f"{code}: {shown.getvalue()}")
    return shown.getvalue()


def cell():
    if (shown := run("%%distributed\n1+1")) != "2\n":  # of all ranks
        raise RuntimeError(f"a cell failed: {shown!r}")


run("%load_ext lockstep")
begin = time.perf_counter()
run(f"%dist_init -n {arguments.ranks}")
try:
    cell()
    report("load_ext", "start", arguments.ranks, "s", [time.perf_counter() - begin])
    report("load_ext", "cell.value", arguments.ranks, "ms", [milliseconds(cell) for _ in range(arguments.cells)])
finally:
    run("%dist_shutdown")
leave(folder)

"""nbdistributed in an IPython shell of this process, on CPU ranks: start until its workers answer a first cell, then `1+1` on all ranks.

Its %dist_init returns after two seconds, whether or not the workers have come; a cell sent before they have is lost and costs 30 s. So the
workers are asked for their status until they answer, which favours it: a person can't do that. Its last resort for ending workers
kills processes by pattern; here that does nothing, and the workers are ended by their process ids."""
import contextlib
import io
import os
import sys
import time

from common import kill, leave, milliseconds, options, own_ipython_folder, report

arguments = options(__doc__)
os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]  # it starts the bare word `python`
folder = own_ipython_folder()

from IPython.core.history import HistoryManager
from IPython.core.interactiveshell import InteractiveShell

HistoryManager.enabled = False
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "nbdistributed")
magic = shell.magics_manager.registry["DistributedMagic"]
type(magic)._nuclear_shutdown = classmethod(lambda cls: None)


def quietly(function, *words):
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        function(*words)
    return shown.getvalue()


def cell():
    shown = quietly(shell.run_cell_magic, "distributed", "", "1+1")
    if "Error" in shown or not all(f"Rank {rank}:" in shown for rank in range(arguments.ranks)):
        raise RuntimeError("a cell failed: " + shown)


workers = []
try:
    begin = time.perf_counter()
    quietly(shell.run_line_magic, "dist_init", f"-n {arguments.ranks}")
    workers = [process.pid for process in magic._process_manager.processes]
    while True:
        try:
            magic._comm_manager.send_to_all("get_status", {}, timeout=0.25)
            break
        except TimeoutError:
            if time.perf_counter() - begin > 120:
                raise
    cell()
    report("nbdistributed", "start", arguments.ranks, "s", [time.perf_counter() - begin])
    report("nbdistributed", "cell.value", arguments.ranks, "ms", [milliseconds(cell) for _ in range(arguments.cells)])
finally:
    kill(workers)
leave(folder)

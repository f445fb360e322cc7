"""ipyparallel with a cluster on this machine: start until all engines have answered (without torch, which it does not need), then `%px 1+1`
and `execute("1+1")` on all engines, in turns."""
import contextlib
import io
import logging
import time

from common import leave, milliseconds, options, own_ipython_folder, report

arguments = options(__doc__)
folder = own_ipython_folder()

import ipyparallel
from IPython.core.history import HistoryManager
from IPython.core.interactiveshell import InteractiveShell

HistoryManager.enabled = False
shell = InteractiveShell.instance()


def px(code):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        shell.run_line_magic("px", code)


begin = time.perf_counter()
cluster = ipyparallel.Cluster(n=arguments.ranks, log_level=logging.ERROR)
cluster.start_cluster_sync()
try:
    client = cluster.connect_client_sync()
    with contextlib.redirect_stderr(io.StringIO()):  # a progress bar
        client.wait_for_engines(arguments.ranks, timeout=120, interactive=False)
    view = client[:]
    view.execute("1+1", block=True)
    report("ipyparallel", "start", arguments.ranks, "s", [time.perf_counter() - begin])
    client.activate()
    px("1+1")
    magic, execute = [], []
    for _ in range(arguments.cells):
        magic.append(milliseconds(px, "1+1"))
        execute.append(milliseconds(view.execute, "1+1", block=True))
    report("ipyparallel", "cell.value", arguments.ranks, "ms", magic)
    report("ipyparallel", "cell.execute", arguments.ranks, "ms", execute)
finally:
    with contextlib.redirect_stderr(io.StringIO()):
        cluster.stop_cluster_sync()
leave(folder)

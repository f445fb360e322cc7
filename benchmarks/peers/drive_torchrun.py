"""torchrun: a Gloo group and one all_reduce, from the command to its end. Not interactive: what a script costs each time it is tried."""
import os
import subprocess
import sys
import tempfile
import time

from common import options, report

arguments = options(__doc__)
HELLO = """import torch, torch.distributed as dist
dist.init_process_group('gloo')
t = torch.ones(1)
dist.all_reduce(t)
assert t.item() == dist.get_world_size()
dist.destroy_process_group()
"""
with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
    script.write(HELLO)
    script.flush()
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(arguments.ranks), script.name],
                   check=True, timeout=120, env=dict(os.environ, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo"),
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    report("torchrun", "start", arguments.ranks, "s", [time.perf_counter() - begin])

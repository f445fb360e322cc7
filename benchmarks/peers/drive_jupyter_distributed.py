"""jupyter-distributed: its proxy kernel as its server extension starts it, driven by a plain Jupyter client. Start until torch and a Gloo group are
up on all ranks (the tool itself makes none), then `1+1` on all ranks."""
import os
import sys
import tempfile
import time
from queue import Empty

import psutil
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager

from common import kill, milliseconds, options, report

arguments = options(__doc__)

GROUP = """import torch, torch.distributed as dist
dist.init_process_group('gloo')
t = torch.ones(1)
dist.all_reduce(t)
t.item()"""


class ProxyManager(KernelManager):
    @property
    def kernel_spec(self):
        return KernelSpec(argv=[sys.executable, "-m", "jupyter_distributed.kernel", "-f", "{connection_file}"],
                          display_name="ranks", language="python", interrupt_mode="message")


def run(client, code, limit_s=120):
    """Returns when the reply is there and the kernel is idle again."""
    deadline = time.perf_counter() + limit_s
    request = client.execute(code)
    idle = False
    while not idle:
        message = client.get_iopub_msg(timeout=max(0.1, deadline - time.perf_counter()))
        idle = (message["parent_header"].get("msg_id") == request and message["msg_type"] == "status"
                and message["content"]["execution_state"] == "idle")
    while True:
        reply = client.get_shell_msg(timeout=max(0.1, deadline - time.perf_counter()))
        if reply["parent_header"].get("msg_id") == request:
            break
    if reply["content"]["status"] != "ok":
        raise RuntimeError(f"{code} failed: {reply['content']}")


with tempfile.TemporaryDirectory(prefix="bench-jupyter-") as folder:
    environment = dict(os.environ, JUPYTER_RUNTIME_DIR=folder, IPYTHONDIR=folder, GLOO_SOCKET_IFNAME="lo",
                       JUPYTER_DISTRIBUTED_BASE_KERNEL="python3", JUPYTER_DISTRIBUTED_WORLD_SIZE=str(arguments.ranks),
                       JUPYTER_DISTRIBUTED_REGISTRY_FILE=os.path.join(folder, "registry.json"))
    begin = time.perf_counter()
    manager = ProxyManager(connection_file=os.path.join(folder, "kernel.json"))
    manager.start_kernel(env=environment)
    proxy = psutil.Process(manager.provisioner.process.pid)
    client, family = manager.client(), []
    try:
        client.start_channels()
        client.wait_for_ready(timeout=120)
        run(client, GROUP)
        report("jupyter-distributed", "start", arguments.ranks, "s", [time.perf_counter() - begin])
        family = proxy.children(recursive=True)
        report("jupyter-distributed", "cell.value", arguments.ranks, "ms",
               [milliseconds(run, client, "1+1") for _ in range(arguments.cells)])
    finally:
        family = family or proxy.children(recursive=True)
        manager.shutdown_kernel()
        client.stop_channels()
        kill(process.pid for process in psutil.wait_procs(family, timeout=2)[1])

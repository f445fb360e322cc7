"""Lockstep's kernel through jupyter_client, and ipykernel beside it in turn: start until ready, `k + 1` (ipykernel: `1+1`), completions, a
flood of output.

With --lockstep PROGRAM. With --python PATH the ranks are Python, and cells alone are timed. The kernel and its spec are in folders of this run."""
import json
import os
import subprocess
import sys
import tempfile
import time

from common import milliseconds, report

import argparse

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--lockstep", required=True)
parser.add_argument("--python")
parser.add_argument("--ranks", type=int, default=2)
parser.add_argument("--cells", type=int, default=30)
arguments = parser.parse_args()

scratch = tempfile.TemporaryDirectory(prefix="bench-jupyter-")
for name in ("JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "XDG_STATE_HOME"):
    os.environ[name] = os.path.join(scratch.name, name.lower())
    os.makedirs(os.environ[name], mode=0o700)
language = [f"--python={arguments.python}"] if arguments.python else []
subprocess.run([arguments.lockstep, "kernel", "install", "-n", str(arguments.ranks), *language], check=True, stdout=sys.stderr)
os.makedirs(os.path.join(os.environ["JUPYTER_DATA_DIR"], "kernels", "ipykernel"))
with open(os.path.join(os.environ["JUPYTER_DATA_DIR"], "kernels", "ipykernel", "kernel.json"), "w") as file:
    json.dump({"argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"], "language": "python",
               "display_name": "ipykernel"}, file)

from jupyter_client.manager import KernelManager  # noqa: E402


class Kernel:
    def __init__(self, name):
        self.manager = KernelManager(kernel_name=name)
        begin = time.perf_counter()
        self.manager.start_kernel()
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=120)
        self.start = time.perf_counter() - begin

    def run(self, code):
        shown = []
        reply = self.client.execute_interactive(code, output_hook=shown.append, timeout=120)
        if reply["content"]["status"] != "ok":
            raise RuntimeError(f"{code}: {reply['content']}")
        return shown

    def complete(self, code):
        self.client.complete(code)
        reply = self.client.get_shell_msg(timeout=120)
        if not reply["content"]["matches"]:
            raise RuntimeError(f"nothing completes {code}")

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel()


begin = time.perf_counter()
mine = Kernel("lockstep-python" if arguments.python else "lockstep")
mine.run("k = 41" if arguments.python else "int k = 41;")
ranks_ready = time.perf_counter() - begin
other = Kernel("ipykernel")
try:
    ranks = arguments.ranks
    report("lockstep", "kernel.start", ranks, "s", [mine.start])
    report("lockstep", "kernel.first_cell", ranks, "s", [ranks_ready])
    report("ipykernel", "kernel.start", ranks, "s", [other.start])
    values, repeated, peers = [], [], []
    mine.run("k + 1")
    for turn in range(arguments.cells):
        values.append(milliseconds(mine.run, f"k + {turn + 2}"))  # a text that was there before is not compiled again
        repeated.append(milliseconds(mine.run, "k + 1"))
        peers.append(milliseconds(other.run, "1+1"))
    report("lockstep", "kernel.value", ranks, "ms", values)
    report("lockstep", "kernel.repeated", ranks, "ms", repeated)
    report("ipykernel", "kernel.value", ranks, "ms", peers)
    if arguments.python:
        sys.exit(0)
    mine.run("struct Net : torch::nn::Module { torch::nn::Linear fc{2, 3}; };\nauto net = std::make_shared<Net>();")
    for what, code in (("member", "net->"), ("namespace", "torch::nn::"), ("name", "ne"), ("magic", "%ver")):
        mine.complete(code)
        report("lockstep", f"kernel.complete.{what}", ranks, "ms",
               [milliseconds(mine.complete, code) for _ in range(arguments.cells)])
    flood = 'for (int i = 0; i < 100000; ++i) std::cout << "line " << i << "\\n";'
    report("lockstep", "kernel.flood", ranks, "s", [milliseconds(mine.run, flood) / 1e3])
finally:
    mine.close()
    other.close()

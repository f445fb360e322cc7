"""A kernel for Jupyter whose ranks are on two hosts, as a frontend on the login node sees it. Run in the environment `client`
of tests/shell/jupyter/environment.py."""

import subprocess
import sys

import hosts as module
from hosts import TREE
from session_support import LIMIT_S, LOCKSTEP, OnHosts

JUPYTER = TREE / "tests" / "shell" / "jupyter"
CLIENT = """
import sys
sys.path.insert(0, sys.argv[1])
from kernel_support import Kernel, install, results_of, use_own_folders
use_own_folders()
install(sys.argv[2], "-n", "4", "--hosts", "node1,node2")
kernel = Kernel()

def run(code):
    reply, published = kernel.run(code)
    return reply.get("ename", "ok"), results_of(published)

print(run("#include <unistd.h>\\nchar name[64]; gethostname(name, 64); std::string(name)"))
request = kernel.client.execute('if (rank == 3) { std::cout << "spins" << std::endl; for (;;) {} } dist::barrier();')
kernel.wait_for(request, lambda message: message["msg_type"] != "execute_input" and "spins" in str(message["content"]))
print(kernel.interrupt()["status"], kernel.finish(request)[0]["ename"])
print(run("auto sum = torch::ones({1}) * rank; dist::all_reduce(sum); sum.item<float>()"))
print(run("%%rank @node2\\nrank * 10"))
kernel.client.stop_channels()
kernel.manager.shutdown_kernel()
print(kernel.manager.is_alive())
"""


class KernelOnHosts(OnHosts):
    def test_cells_an_interrupt_and_the_end(self):
        client = self.hosts.hub.start(sys.executable, "-c", CLIENT, JUPYTER, LOCKSTEP, stdin=subprocess.DEVNULL,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said, _ = client.communicate(timeout=LIMIT_S)
        self.assertEqual((client.returncode, said.splitlines()), (0, [
            "('ok', ['0-1 = \"node1\"\\n2-3 = \"node2\"'])", "ok interrupted", "('ok', ['6'])",
            "('ok', ['2   = 20\\n3   = 30'])", "False"]), said)
        self.assert_nothing_is_left()


if __name__ == "__main__":
    module.main()

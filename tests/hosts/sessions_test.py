"""A session whose ranks are on two hosts: `lockstep … --hosts`, and by itself in an allocation of Slurm."""

import pathlib
import shlex
import signal
import subprocess
import sys

import hosts as module
import launchers
from hosts import TREE
from session_support import LIMIT_S, LOCKSTEP, SAYS_THAT_IT_WAITS, OnHosts


class Sessions(OnHosts):
    def test_the_lesson(self):
        output = self.run_cells(TREE / "scripts" / "lessons" / "01-ddp-from-scratch.cpp")
        self.assertIn("✓ 4 ranks, gloo", output)
        self.assert_nothing_is_left()

    def test_cells(self):
        output = self.run_cells(["#include <unistd.h>\nchar name[64]; gethostname(name, 64); std::string(name)",
                                 "auto sum = torch::ones({1}) * rank; dist::all_reduce(sum); sum.item<float>()",
                                 "%%rank @node2\nrank * 10", "%dist_status", "%sync"])
        self.assertIn(". It and the collectives are not encrypted: who is on that network can read them\n", output)
        self.assertIn('0-1 = "node1"\n2-3 = "node2"\n', output)
        self.assertIn("0-3 = 6", output)
        self.assertIn("2   = 20\n3   = 30\n", output)
        self.assertRegex(output, r"\n1     idle   \d+ +node1 .*\n2     idle   \d+ +node2 ")
        self.assertIn("barrier over ranks 0-3", output)

    def test_python_cells(self):
        output = self.run_cells(
            ["import os, socket\nsocket.gethostname(), os.environ['LOCAL_RANK'], os.environ['LOCAL_WORLD_SIZE']",
             "total = torch.ones(1) * rank\ndist.all_reduce(total)\ntotal.item()",
             "%%rank @node2\nrank * 10",
             "%%cpp\nauto twice = torch::ones({1}) * rank * 2; dist::all_reduce(twice); twice.item<float>()",
             "%collectives", "%memory", "%%rank 3\nos._exit(3)"], f"--python={sys.executable}", code=5)
        self.assertIn("0   = ('node1', '0', '2')\n1   = ('node1', '1', '2')\n2   = ('node2', '0', '2')\n", output)
        self.assertIn("= 6.0\n", output)
        self.assertIn("2   = 20\n3   = 30\n", output)
        self.assertIn("0-3 = 12\n", output)
        self.assertRegex(output, r"all_reduce \[1\] float32 +all_reduce \[1\] float32 +all_reduce \[1\] float32 +all_r")
        self.assertRegex(output, r"process, resident")
        self.assertNotIn("resident (process", output)  # of this machine
        self.assertIn("rank 3: exit in cell", output)
        self.assertIn("ended with exit code 3", output)
        self.assert_nothing_is_left()

    def test_hosts_that_share_no_folder(self):
        """Their homes have LibTorch, and nothing else."""
        for name in ("node1", "node2"):
            node = self.hosts[name]
            node.run("sh", "-c", 'mount -t tmpfs home "$1" && mkdir -p "$1/.cache/lockstep" && '
                                 'ln -s "$2/lockstep/libtorch" "$1/.cache/lockstep/"', "sh", self.hosts.home, module.CACHE)
            self.addCleanup(node.run, "umount", self.hosts.home)
        here = self.hosts["hub"].run("mktemp", "-d").strip()  # in a /tmp that only the hub sees
        self.before["hub"] |= {here}
        net = ("struct Net : torch::nn::Module { torch::nn::Linear fc{4, 2}; Net() { register_module(\"fc\", fc); }"
               " torch::Tensor forward(torch::Tensor x) { return fc(x); } };")
        output = self.run_cells([net, "auto net = std::make_shared<Net>(); ddp::DistributedDataParallel model(net);",
                                 "model.forward(torch::ones({3, 4})).sum().backward();", "%verify net", "%grads net"], cwd=here)
        self.assertIn(f"node2 has no folder {here} (No such file or directory): its ranks start in {self.hosts.home}\n", output)
        self.assertIn("✓ net: equal on ranks 0-3: 2 tensors", output)
        self.assertIn("✓ net: gradients are equal and finite on ranks 0-3", output)
        output = self.run_cells(["total = torch.ones(1) * rank\ndist.all_reduce(total)\ntotal.item()",
                                 "%%cpp\nauto twice = torch::ones({1}) * rank * 2; dist::all_reduce(twice); twice.item<float>()"],
                                f"--python={sys.executable}", cwd=here)
        self.assertIn("0-3 = 6.0\n", output)
        self.assertIn("0-3 = 12\n", output)
        self.assert_nothing_is_left()

    def test_from_a_prompt(self):
        where = "#include <unistd.h>\nchar name[64]; gethostname(name, 64); std::string(name)"
        output = self.run_cells(["%dist_init -n 4 --hosts node1,node2", where, "%dist_init --hosts node1,node2",
                                 "%dist_shutdown", "%dist_init -n 2 --hosts none", where], hosts="")
        self.assertIn('0-1 = "node1"\n2-3 = "node2"\n', output)
        self.assertIn("4 ranks are running already\n", output)
        self.assertIn('0-1 = "hub"\n', output)
        self.assertIn("each has at least one rank", self.run_cells(["%dist_init -n 1 --hosts node1,node2"], hosts="", code=2))
        self.assertIn("ranks on other machines become no more than at the start: for 6 of them: %dist_shutdown, then %dist_init -n 6",
                      self.run_cells(["rank", "%dist_init -n 6"], code=2))
        if launchers.missing(self.hosts, *launchers.OpenMpi.programs):
            return
        mpirun = shlex.join(map(str, launchers.OpenMpi.command(self.hosts, 2)))
        output = self.run_cells([f'%dist_init --launch "{mpirun}"', where], hosts="")
        self.assertIn('0-1 = "node1"\n2-3 = "node2"\n', output)
        self.assert_nothing_is_left()

    def test_from_ipython(self):
        said = self.hosts["hub"].run(sys.executable, "-c", """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for cell in ("%load_ext lockstep", "%dist_init -n 2 --hosts node1,node2", "import socket\\nsocket.gethostname()",
             "%dist_shutdown"):
    shell.run_cell(cell).raise_error()
""")
        self.assertIn("0   = 'node1'\n1   = 'node2'\n", said)
        self.assert_nothing_is_left()

    def test_a_hang_is_proven(self):
        output = self.run_cells(["if (rank != 3) dist::barrier();"], code=4)
        self.assertIn("ranks 0-2 wait in barrier #1 (cell 1, line 1), and rank 3 has finished without entering it", output)

    def test_calls_that_do_not_match(self):
        output = self.run_cells(["auto some = torch::ones({rank < 2 ? 4 : 5}); dist::all_reduce(some);"], code=1)
        self.assertIn("collectives: ranks 0-1 called all_reduce float32 [4] SUM as #1 of group default (cell 1, line 1), "
                      "ranks 2-3 all_reduce float32 [5] SUM (cell 1, line 1)", output)

    def test_calls_that_gloo_takes_for_the_same(self):
        cells = ["auto of_a_kind = torch::ones({4}, rank < 2 ? torch::kFloat32 : torch::kInt32);\n"
                 "dist::all_reduce(of_a_kind);", "dist::barrier();",
                 "auto part = torch::ones({4}, rank < 3 ? torch::kFloat32 : torch::kInt32);\n"
                 "if (rank == 0) dist::send(part, 3);\nif (rank == 3) dist::recv(part, 0);", "dist::barrier();"]
        output = self.run_cells(cells, "--keep-going", code=1)
        self.assertIn("collectives: ranks 0-1 called all_reduce float32 [4] SUM (cell 1, line 2), ranks 2-3 called "
                      "all_reduce int32 [4] SUM (cell 1, line 2) as #1 of group default", output)
        self.assertIn("rank 0 sends 16 bytes of float32 to rank 3 (cell 3, line 2), which expects 16 bytes of int32 "
                      "(cell 3, line 3): message #1 between them with tag 0 of group default", output)
        self.assertEqual(output.count("✗ collectives"), 2, output)
        cells = ["total = torch.ones(4, dtype=torch.float32 if rank < 2 else torch.int32)\ndist.all_reduce(total)"]
        output = self.run_cells(cells, f"--python={sys.executable}", code=1)
        self.assertIn("ranks 0-1 called all_reduce float32 [4] SUM (cell 1, line 2), ranks 2-3 called all_reduce int32 [4] "
                      "SUM (cell 1, line 2) as #1 of group", output)

    def test_a_rank_dies(self):
        output = self.run_cells(["#include <signal.h>",
                                 'if (rank == 3) { std::cout << "last words"; raise(SIGKILL); }\ndist::barrier();',
                                 "%%rank 0-2\nrank"], "--keep-going", code=5)
        self.assertIn("3   │ last words\n", output)
        self.assertIn("rank 3: SIGKILL in cell 2\n    the process was killed by SIGKILL", output)
        self.assertIn("rank 3 left the collective barrier, #1 of group default: the process has died", output)
        self.assertIn("0   = 0\n1   = 1\n2   = 2\n", output)

    def test_a_rank_comes_back(self):
        total = 'auto sum = torch::ones({1}) * kept; dist::all_reduce(sum); std::cout << "sum " << sum.item<float>() << std::endl;'
        output = self.run_cells(["#include <signal.h>\nset_seed(1); torch::nn::Linear net(4, 4); "
                                 "auto model = ddp::DistributedDataParallel(net); int kept = rank;",
                                 "if (rank == 3) raise(SIGKILL);", "%restart --from 0", total, "%verify net",
                                 "if (rank == 0) raise(SIGKILL);", "%dist_continue",
                                 'std::cout << "now " << rank << "/" << world_size << std::endl;',
                                 "%restart 0 --from 1", "{ " + total + " }", "%dist_status"], "--keep-going", code=5)
        self.assertIn("rank 3 is back: 1 cell ran again", output)
        self.assertIn("\n    it was on host node2\n    its last collective was broadcast #", output)
        self.assertIn("0-3 │ sum 6\n", output)
        self.assertIn("net: equal on ranks 0-3", output)
        self.assertIn("ranks 1-3 are the default group of 3 now", output)
        self.assertIn("1   │ now 0/3\n2   │ now 1/3\n3   │ now 2/3\n", output)
        self.assertIn("rank 0 is back", output)
        self.assertEqual(output.count("0-3 │ sum 6\n"), 2, output)
        self.assertRegex(output, r"\n0     idle   [1-9]\d* +node1 .*\n1     idle .*\n2     idle .*\n3     idle   [1-9]\d* +node2 ")
        self.assert_nothing_is_left()

    def test_a_relay_is_killed(self):
        process = self.running()
        node2 = self.hosts["node2"]
        self.kill(node2, ".*/lockstep relay --hub")
        output, _ = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 5, output)
        self.assertIn("ranks 2-3: exit in cell 1\n    the process can't be seen any more: host node2: its relay ended", output)
        # Its ranks end with it. What it could not remove goes with the next session there, or by hand.
        self.run_cells(["rank"])
        node2.run(LOCKSTEP, "sessions", "clean")
        self.assert_nothing_is_left()

    def test_connections_of_ssh_end(self):
        """The client of one is killed, then the server's end of the other."""
        process = self.running("--keep-going", then=["%%rank 0-1\nrank", f"%%rank 0-1\n{SAYS_THAT_IT_WAITS}pause();"])
        hub, node1, node2 = self.hosts.by_name.values()
        self.kill(hub, "ssh -T .* node2 ")
        said = self.read_until_it_waits(process)
        self.assertIn("ranks 2-3: exit in cell 1\n    the process can't be seen any more: host node2: its relay ended "
                      "(ssh was killed by SIGKILL)", said)
        self.assertIn("0   = 0\n1   = 1\n", said)
        self.assert_nothing_is_left(node2)
        self.kill(node1, "sshd.*: root@")
        output, _ = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 5, output)
        self.assertIn("the store's process is lost with host node1", output)
        self.assertIn("ranks 0-1: exit in cell 3\n    the process can't be seen any more: host node1: its relay ended "
                      "(ssh exited with code 255)", output)
        self.assert_nothing_is_left()

    def test_the_shell_is_killed(self):
        process = self.running()
        process.send_signal(signal.SIGKILL)
        process.communicate()
        self.hosts["hub"].run(LOCKSTEP, "sessions", "clean")
        self.assert_nothing_is_left()

    def test_hosts_that_do_not_answer(self):
        output = self.run_cells(["1"], hosts="node1,nowhere", code=3)
        self.assertIn("the session could not start: host nowhere: its relay ended (ssh exited with code 255)", output)
        self.assertNotIn("host node1", output)
        output = self.run_cells(["1"], "--remote-program", "/no/such/lockstep", code=3)
        self.assertIn("host node1: its relay ended (ssh exited with code 127)", output)
        self.assertIn("each has at least one rank", self.run_cells(["1"], ranks="1", code=2))

    def test_a_firewall_between_the_hosts(self):
        node1, node2 = self.hosts["node1"], self.hosts["node2"]
        # Packets to node1 go to a card that nobody has.
        node2.run("ip", "neigh", "replace", node1.address, "lladdr", "02:00:00:00:00:99", "dev", "eth0")
        try:
            output = self.run_cells(["1"], code=3)
        finally:
            node2.run("ip", "neigh", "del", node1.address, "dev", "eth0")
        self.assertIn(f"host node2: node2 can't reach the store of the session at {node1.address}:", output)
        self.assertIn("does a firewall between the hosts drop their packets?", output)

    def test_a_launcher_brings_the_ranks(self):
        if missing := launchers.missing(self.hosts, *launchers.OpenMpi.programs):
            self.skipTest(missing)
        mpirun = shlex.join(map(str, launchers.OpenMpi.command(self.hosts, 2)))
        output = self.run_cells(["rank * 10 + local_rank", "node_rank", "if (rank != 3) dist::barrier();"],
                                "--launch", mpirun, hosts="", code=4)
        self.assertIn("ranks 0-1 are on node1 by eth0\nranks 2-3 are on node2 by eth0\n", output)
        self.assertIn("0   = 0\n1   = 11\n2   = 20\n3   = 31\n", output)
        self.assertIn("0-1 = 0\n2-3 = 1\n", output)
        self.assertIn("hang: ranks 0-2 wait in barrier #1", output)
        self.assert_nothing_is_left()
        output = self.run_cells(["1"], "--launch", "sh -c 'exit 7'", hosts="", code=3)
        self.assertIn("exited with code 7; ranks 0-3 are missing", output)
        output = self.run_cells(["1"], "--launch", mpirun, hosts="", ranks="3", code=3)
        self.assertIn("-n 3: the launcher starts 4 processes", output)
        self.assertEqual(list(self.hosts.home.glob(".lockstep-ticket-*")), [])

    def test_ranks_that_come_with_a_ticket(self):
        ticket = self.hosts.folder / "ticket"
        process = self.start(["import os, socket\nsocket.gethostname(), rank", "%%rank 3\nos._exit(3)"], "--ticket", ticket,
                             f"--python={sys.executable}")
        self.assertIn("In [1]", process.stdout.readline())
        self.assertIn(f"relay --ticket {ticket}` once for each", process.stdout.readline())
        self.assertEqual(ticket.stat().st_mode & 0o777, 0o600)
        agents = [host.start(*launchers.torchrun(self.hosts, 2, number), "--log-dir", self.hosts.folder / "logs",
                             "--no-python", LOCKSTEP, "relay", "--ticket",
                             ticket, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                  for number, host in enumerate(self.hosts)]
        output, _ = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 5, output)
        self.assertIn("0   = ('node1', 0)\n1   = ('node1', 1)\n2   = ('node2', 2)\n3   = ('node2', 3)\n", output)
        self.assertIn("rank 3: exit in cell", output)
        for each in agents:
            said, _ = each.communicate(timeout=LIMIT_S)
            self.assertEqual(each.returncode, 0, said)
        self.assertFalse(ticket.exists())
        self.assert_nothing_is_left()

    def relay_of(self, rank, ticket, host=None):
        """One of two ranks, on its host. Nothing else is running there."""
        numbers = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
        return self.hosts[host or f"node{rank + 1}"].start(LOCKSTEP, "relay", "--ticket", ticket, env=numbers,
                                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                                   stderr=subprocess.STDOUT, text=True)

    def assert_it_ends(self, relay, words=""):
        said, _ = relay.communicate(timeout=LIMIT_S)
        self.assertEqual(relay.returncode, 0, said)
        self.assertEqual(said.partition(" has ended: ")[2].strip() if words else said, words)

    def test_a_relay_that_comes_again(self):
        """One that has ended leaves its place to another, as long as the session waits for ranks; a rank has no second relay;
        also who has the ticket can't have its place; and one whose connections end connects again. One that is killed is
        missed."""
        ticket = self.hosts.folder / "ticket"
        wait = f"{SAYS_THAT_IT_WAITS}if (rank == 0) dist::barrier(); else {{ while (access(\"{ticket}.go\", 0)) usleep(10000);"\
               " dist::barrier(); }"
        session = self.start([f"#include <unistd.h>\n{wait}", "rank * 10", "while (true) usleep(10000);"], "--ticket", ticket, ranks="2")
        self.read_until(session, "relay --ticket")
        first = self.relay_of(1, ticket)
        self.read_until(session, "rank 1 has come; rank 0 is missing")
        self.assert_it_ends(self.relay_of(1, ticket), "rank 1 has come already, from node2")
        self.read_until(session, f"another relay, from {self.hosts['node2'].address}, which calls itself node2, is turned away")
        first.terminate()
        self.assert_it_ends(first)
        relays = [self.relay_of(rank, ticket) for rank in (1, 0)]
        self.read_until_it_waits(session)
        self.assert_it_ends(self.relay_of(1, ticket, host="node1"), "rank 1 has come already, from node2")
        self.read_until(session, f"another relay, from {self.hosts['node1'].address}, which calls itself node1, is turned away")
        cut = self.hosts["node2"].run("ss", "--kill", "dst", self.hosts.hub.address)
        self.assertIn(self.hosts.hub.address, cut, "no connection was ended")
        pathlib.Path(f"{ticket}.go").touch()
        self.read_until(session, "1   = 10\n")
        self.kill(self.hosts["node2"], ".*lockstep relay")
        self.read_until(session, "host node2: its relay ended")
        output, _ = session.communicate(timeout=LIMIT_S)
        self.assertEqual(session.returncode, 5, output)
        relays[0].communicate(timeout=LIMIT_S)
        self.assert_it_ends(relays[1])
        self.hosts["node2"].run(LOCKSTEP, "sessions", "clean")
        self.assert_nothing_is_left()

    def test_ranks_that_do_not_come(self):
        process = self.start(["rank"], "--ticket", self.hosts.folder / "ticket", "--start-timeout", "0.5", ranks="2")
        output, _ = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 3, output)
        self.assertIn("not all ranks have come in 0.5 s; ranks 0-1 are missing; --start-timeout S waits longer", output)

    def test_processors_of_different_kinds(self):
        kinds = self.hosts.folder / "cpuinfo"
        kinds.write_text("processor\t: 0\nmodel name\t: Another Processor\n")
        node2 = self.hosts["node2"]
        node2.run("mount", "--bind", kinds, "/proc/cpuinfo")
        self.addCleanup(node2.run, "umount", "/proc/cpuinfo")
        output = self.run_cells(["rank"], ranks="2")
        self.assertIn("the hosts have processors of different kinds", output)
        self.assertIn("node2 has Another Processor", output)

    def test_preempted_sessions(self):
        """Slurm signals the ranks and relays of a step, and at the end of a batch script all of its processes."""
        self.hosts_with_slurm()
        output = self.run_preempted(1, lambda hub, job: hub.run("scancel", job))
        self.assertRegex(output, "SIGTERM: Slurm ends job [0-9]+, which has run for .*; [0-9]+ s are left")
        output = self.run_preempted(2, lambda hub, job: hub.start("srun", "--partition=urgent", "-N2", "--exclusive",
                                                                  "true", stderr=subprocess.DEVNULL))
        self.assertRegex(output, "SIGTERM: Slurm preempts job [0-9]+; [0-9]+ s (are|is) left")
        output = self.run_preempted(2, lambda hub, job: hub.run("scancel", "--signal=USR2", job))
        self.assertRegex(output, "SIGUSR2: job [0-9]+ of Slurm is to end; [0-9]+ s are left")
        self.run_preempted(2, lambda hub, job: hub.run("scancel", "--signal=USR2", job), f"--python={sys.executable}")

    def run_preempted(self, nodes, preempt, *python):
        """A session in a batch script on so many nodes, whose ranks are in a cell when `preempt` is called. They save what
        they have, and the session ends with 130."""
        cells = ['# %%\non_preempt(lambda: print("saved on", rank, "\\n", end="", flush=True))', 'import time\n'
                 'if rank == 0: print("waits", flush=True)\nwhile True: time.sleep(1)'] if python else [
            'on_preempt([] { auto sum = torch::ones({1}); dist::all_reduce(sum); '
            'std::cout << "saved on " << rank << " of " << sum.item<int>() << "\\n"; });',
            '#include <unistd.h>\nif (rank == 0) std::cout << "waits" << std::endl;\nwhile (true) sleep(1);']
        mark, name = ("# %%", "cells.py") if python else ("// %%", "cells.cpp")
        session, script, said = (self.hosts.folder / each for each in (name, "batch.sh", "said"))
        session.write_text("".join(f"{mark}\n{cell}\n" for cell in cells))
        run = shlex.join([LOCKSTEP, "run", "-n", "2", *python, str(session)])
        script.write_text(f"#!/bin/sh\n{run}\necho it ended with $?\n" if nodes == 2 else f"#!/bin/sh\nexec {run}\n")
        said.write_text("")
        hub = self.hosts["hub"]
        job = hub.run("sbatch", "--parsable", f"-N{nodes}", "-o", said, script).strip()
        self.wait_until(lambda: "waits\n" in said.read_text(), said.read_text)
        preempt(hub, job)
        self.wait_until(lambda: not hub.run("squeue", "-h", "-j", job, check=False).strip(), said.read_text)
        output = said.read_text()
        for rank in range(2):
            self.assertIn(f"saved on {rank} {'' if python else 'of 2'}", output)
        self.assertIn("(exit code 130)", output)
        self.assert_nothing_is_left()
        return output

    def test_an_allocation_of_slurm(self):
        self.hosts_with_slurm()
        salloc = ("salloc", "--quiet", "-N2")
        output = self.run_cells(["rank", "%dist_status"], hosts="", command=salloc)
        self.assertRegex(output, r"\n0     idle   \d+ +node1 ")
        self.assertRegex(output, r"\n3     idle   \d+ +node2 ")
        output = self.run_cells(["rank", "%dist_status"], hosts="none", command=salloc)
        self.assertRegex(output, r"\n3     idle   \d+ +hub ")
        output = self.run_cells(["rank * 10 + local_rank"], "--launch", "srun -n 4", hosts="",
                                command=(*salloc, "--ntasks-per-node=2"))
        self.assertIn("ranks 0-1 are on node1 by eth0\nranks 2-3 are on node2 by eth0\n", output)
        self.assertIn("0   = 0\n1   = 11\n2   = 20\n3   = 31\n", output)
        self.assert_nothing_is_left()


if __name__ == "__main__":
    module.main()

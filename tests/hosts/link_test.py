"""A relay that has come over the network with a ticket (`lockstep relay --ticket`), and the cable between."""

import json
import pathlib
import re
import subprocess
import sys
import time
import unittest

import hosts as module
from hosts import BUILD, Hosts

# A rank by its file alone: nobody asks it anything.
RANK = """
import json, os, pathlib, socket, sys
rank = int(sys.argv[1])
folder = pathlib.Path(os.environ["XDG_RUNTIME_DIR"], "lockstep", "job-1-test")
for each in (folder.parent, folder):
    each.mkdir(mode=0o700, exist_ok=True)
start = int(pathlib.Path("/proc/self/stat").read_text().rsplit(")")[-1].split()[19])
facts = {"rank": rank, "world_size": 100, "pid": os.getpid(), "start_time": start, "host": socket.gethostname()}
fresh = folder / f"new-{rank}"
fresh.write_text(json.dumps(facts))
fresh.rename(folder / f"rank-{rank}.json")
print("ready", flush=True)
sys.stdin.read()
"""
CUT_S = 5  # long enough for TCP to begin to wait, and shorter than what is told as a silence


class Link(unittest.TestCase):
    def setUp(self):
        self.hosts = self.enterContext(Hosts("node1", "node2"))
        self.node1, self.node2 = self.hosts
        self.ticket = self.hosts.folder / "ticket.json"
        self.said = []
        self.probe = self.hosts.hub.start(BUILD / "bin" / "link_probe", self.hosts.hub.address, self.ticket,
                                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (self.probe.kill(), self.probe.communicate()))
        self.read_until("listening")

    def relay(self, host):
        relay = host.start(BUILD / "bin" / "lockstep", "relay", "--ticket", self.ticket, stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(lambda: relay.poll() is None and (relay.kill(), relay.communicate()))
        return relay

    def read_until(self, line):
        while not re.fullmatch(line, self.said[-1] if self.said else ""):
            self.said.append(self.probe.stdout.readline().rstrip("\n"))
            self.assertTrue(self.said[-1], f"the probe ended: {self.said}")

    def rank(self, number):
        rank = self.node1.start(sys.executable, "-c", RANK, str(number), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                text=True)
        self.addCleanup(lambda: rank.poll() is None and (rank.kill(), rank.communicate()))
        self.assertEqual(rank.stdout.readline(), "ready\n")
        return rank

    def ask(self):
        self.probe.stdin.write("\n")
        self.probe.stdin.flush()

    def test_a_cable_that_is_cut_for_a_while(self):
        ranks = [self.rank(number) for number in range(3)]
        relay = self.relay(self.node1)
        self.read_until("node1 came from 10.9.0.11")
        self.read_until("node1 answers")
        self.node1.cut()
        ranks += [self.rank(number) for number in range(3, 6)]
        for each in ranks[:2]:
            each.communicate("")
        self.ask()
        time.sleep(CUT_S)
        self.node1.restore()
        # Each is told once, in the order in which it came about on the host.
        self.read_until(r"\d of \d ranks answer")
        while sum("has ended" in each for each in self.said) < 2 or sum("is there" in each for each in self.said) < 6:
            self.read_until(r"rank \d (is there|has ended|came twice)")
            self.said.append("next")
        self.assertEqual(sorted(each for each in self.said if each.startswith("rank")),
                         sorted([f"rank {number} is there" for number in range(6)] +
                                [f"rank {number} has ended" for number in range(2)]), self.said)
        self.assertNotIn("lost", str(self.said))
        self.ask()
        self.read_until("4 of 4 ranks answer")
        output, _ = self.probe.communicate("")  # with the session the relay ends
        self.assertEqual(self.probe.returncode, 0, output)
        output, _ = relay.communicate(timeout=60)
        self.assertEqual((relay.returncode, output), (0, ""))

    def test_a_key_of_another_session(self):
        other = self.hosts.folder / "other.json"
        with self.hosts.hub.start(BUILD / "bin" / "link_probe", self.hosts.hub.address, other, stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True) as probe:
            self.assertEqual(probe.stdout.readline(), "listening\n")
            # The right session, and a key that it does not know.
            forged = json.loads(self.ticket.read_text()) | {"key": json.loads(other.read_text())["key"]}
            probe.stdin.close()
        good = self.ticket.read_text()
        self.ticket.write_text(json.dumps(forged))
        stranger = self.relay(self.node2)
        output, _ = stranger.communicate(timeout=60)
        self.assertIn("the session does not admit the key of this ticket", output)
        self.read_until("a connection from 10.9.0.12 was refused: it has no key of this session")
        self.ticket.write_text(good)
        relay = self.relay(self.node1)
        self.read_until("node1 answers")
        # Nothing that can be read is on the command line or in the environment.
        for process in (self.probe, relay):
            for file in ("cmdline", "environ"):
                text = pathlib.Path(f"/proc/{process.pid}/{file}").read_bytes()
                for key in ("key", "server_key"):
                    self.assertNotIn(json.loads(good)[key].encode(), text)
        self.ticket.chmod(0o644)
        output, _ = self.relay(self.node2).communicate(timeout=60)
        self.assertIn("other users can read it", output)


if __name__ == "__main__":
    module.main()

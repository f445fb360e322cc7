"""What docs/security.md says of the network of a training, on two hosts with the torch of these tests."""

import os
import select
import socket
import subprocess
import sys
import threading
import unittest

import hosts as module
from hosts import Hosts

TEXT = "sent from rank to rank"
JOB = f"""
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
tensor = torch.frombuffer(bytearray({TEXT.encode()!r} * 40), dtype=torch.uint8)
dist.broadcast(tensor, src=0)
dist.destroy_process_group()
"""
SERVE = """
import sys
import torch.distributed as dist

store = dist.TCPStore("node1", 29500, 1, True, wait_for_workers=False)
store.set("key", "of the job")
print("ready", flush=True)
sys.stdin.read()
print(store.get("key").decode())
"""
ASK = """
import torch.distributed as dist

store = dist.TCPStore("node1", 29500, 1, False, wait_for_workers=False)
print(store.get("key").decode())
store.set("key", "of a stranger")
"""


class Sniffer:
    """Sees what comes to a host and leaves it, until its end."""

    def __init__(self, host):
        self.packets = []
        self.socket = host.call(socket.socket, socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))  # ETH_P_ALL
        self.socket.bind(("eth0", 0))
        self.read_end, self.write_end = os.pipe()
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        while True:
            ready, _, _ = select.select([self.socket, self.read_end], [], [])
            if self.socket in ready:
                self.packets.append(self.socket.recv(65536))
            elif ready:
                return

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.write_end)
        self.thread.join()
        os.close(self.read_end)
        self.socket.close()

    def with_text(self):
        return [each for each in self.packets if TEXT.encode() in each]


class Network(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.hosts = cls.enterClassContext(Hosts("node1", "node2"))

    def run_job(self, **more):
        """What a sniffer sees of it."""
        variables = {"MASTER_ADDR": "node1", "MASTER_PORT": "29500", "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1",
                     "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **more}
        with Sniffer(self.hosts["node2"]) as sniffer:
            ranks = [host.start(sys.executable, "-c", JOB, env={**variables, "RANK": str(rank)},
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                     for rank, host in enumerate(self.hosts)]
            outputs = [each.communicate()[0] for each in ranks]
        self.assertEqual([each.returncode for each in ranks], [0, 0], "\n".join(outputs))
        return sniffer

    def test_tensors_are_plain_text(self):
        self.assertGreater(len(self.run_job().with_text()), 0)

    def test_tls_of_gloo_does_not_encrypt(self):
        """It has to, of course. When it does, the page has to say so, and since which torch."""
        def openssl(*arguments):
            self.hosts.hub.run("openssl", *arguments)

        for name in ("rank", "stranger"):  # who signs for himself
            openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}", "-keyout",
                    f"{name}.key", "-out", f"{name}.pem")
        prefix = "GLOO_DEVICE_TRANSPORT"
        sniffer = self.run_job(**{prefix: "TCP_TLS", f"{prefix}_TCP_TLS_PKEY": "rank.key",
                                  f"{prefix}_TCP_TLS_CERT": "rank.pem", f"{prefix}_TCP_TLS_CA_FILE": "stranger.pem"})
        self.assertGreater(len(sniffer.with_text()), 0)

    def test_a_stranger_reads_and_writes_the_store(self):
        server = self.hosts["node1"].start(sys.executable, "-c", SERVE, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                           text=True)
        self.assertEqual(server.stdout.readline(), "ready\n")
        self.assertEqual(self.hosts["node2"].run(sys.executable, "-c", ASK), "of the job\n")
        self.assertEqual(server.communicate("")[0], "of a stranger\n")


if __name__ == "__main__":
    module.main()

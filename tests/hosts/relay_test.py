"""A relay whose judge does not read ends all the same, although it waits in a write."""

import fcntl
import json
import os
import pathlib
import struct
import subprocess
import tempfile
import termios
import unittest

from hosts import BUILD

LIMIT_S = 60  # ends what hangs; judges nothing


class Relay(unittest.TestCase):
    def test_it_can_be_ended_while_nobody_reads(self):
        with tempfile.TemporaryDirectory(prefix="ls-") as folder:
            relay = subprocess.Popen([BUILD / "bin" / "lockstep", "relay"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     env={**os.environ, "XDG_RUNTIME_DIR": folder})
            self.addCleanup(lambda: (relay.kill(), relay.wait(), relay.stdin.close(), relay.stdout.close()))
            header = json.dumps({"kind": "ping", "number": 1}).encode()
            while not (self.bytes_in(relay.stdin) > 0 and self.sleeps(relay)):  # in a write, since it has what to read
                if self.bytes_in(relay.stdin) == 0:
                    relay.stdin.write((struct.pack("<IQ", 0, len(header)) + header) * 100)
                    relay.stdin.flush()
            relay.terminate()
            self.assertEqual(relay.wait(LIMIT_S), 0)

    def sleeps(self, process):
        return pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"

    def bytes_in(self, pipe):
        return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]


if __name__ == "__main__":
    unittest.main()

"""A relay whose judge does not read ends all the same, although it waits in a write."""

import fcntl
import json
import os
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
            size = fcntl.fcntl(relay.stdout, fcntl.F_GETPIPE_SZ)
            while self.bytes_in(relay.stdout) < size - 4096:  # a ping for each answer that still fits, and more
                if self.bytes_in(relay.stdin) == 0:
                    relay.stdin.write((struct.pack("<IQ", 0, len(header)) + header) * 100)
                    relay.stdin.flush()
            relay.terminate()
            self.assertEqual(relay.wait(LIMIT_S), 0)

    def bytes_in(self, pipe):
        return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]


if __name__ == "__main__":
    unittest.main()

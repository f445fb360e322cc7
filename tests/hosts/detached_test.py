"""A session over two hosts that outlives its terminal on the hub: cells go on, another terminal comes back to it, and nothing is left on any
host when it ends."""

import os
import re
import signal
import subprocess
import sys

import hosts as module
from session_support import LIMIT_S, LOCKSTEP, OnHosts
from waiting import wait_until

ON_BOTH = ("-n", "4", "--hosts", "node1,node2")
CELLS = {
    (): ("auto weight = torch::full({2}, 1.5);",
         'while (::access("{go}", F_OK)) ::usleep(1000); std::cout << "meanwhile" << std::endl;',
         'dist::all_reduce(weight); std::cout << "sum " << weight.sum().item<float>() << std::endl;',
         'std::cout << "spins" << std::endl; for (;;) {}'),
    (f"--python={sys.executable}",):
        ("weight = torch.full((2,), 1.5)",
         'import os; [os.sched_yield() for _ in iter(lambda: os.path.exists("{go}"), True)]; print("meanwhile")',
         'dist.all_reduce(weight); print("sum", int(weight.sum()))',
         'if rank >= 0:\n    print("spins", flush=True)\n    while True: pass\n\n'),
}


class Detached(OnHosts):
    def left_on(self, host):
        """Less the user's folder of sessions, which is in /tmp where /run/user goes with the last login."""
        return {each for each in super().left_on(host) if not re.fullmatch(r"/tmp/lockstep-0-\w+", each)}

    def journal(self):
        return self.hosts["hub"].start(LOCKSTEP, "sessions", "show", self.id, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                       text=True).communicate(timeout=LIMIT_S)[0]

    def begin(self, *options):
        """A detachable session, whose terminal has answered."""
        session = self.terminal(*options, *ON_BOTH)
        said = session.settle()
        found = re.search(r"lockstep --resume (\S+)", said)
        self.assertTrue(found, said)
        self.id = found[1]
        return session

    def leave_terminal(self, session):
        os.kill(session.pid, signal.SIGKILL)
        session.wait_end()

    def test_another_terminal_comes_back(self):
        for options, (keeps, waits, uses, spins) in CELLS.items():
            with self.subTest(options=options):
                go = self.hosts.folder / f"go-{len(options)}"
                first = self.begin("--detachable=10m", *options)
                first.type(keeps)
                first.settle(set(range(4)))
                first.type(waits.replace("{go}", str(go)))
                wait_until(lambda: "access" in self.journal() or "sched_yield" in self.journal())
                self.leave_terminal(first)
                go.touch()
                wait_until(lambda: "0-3 │ meanwhile" in self.journal())
                second = self.terminal("--resume", self.id)
                said = second.settle(set(range(4)))
                self.assertEqual(said.count("0-3 │ meanwhile\n"), 1, said)
                second.type(uses)
                second.type(spins)
                second.wait_for_text("0-3 │ spins\n")
                self.assertIn("0-3 │ sum 12\n", second.screen.text())
                second.send("\x03")
                self.assertIn("variables are kept", second.settle(set(range(4))))
                second.send("\x04")
                self.assertEqual(second.wait_end(), 0)
                self.assert_nothing_is_left()

    def test_nobody_comes_back(self):
        session = self.begin("--detachable=1s")
        session.type(CELLS[()][3])
        session.wait_for_text("0-3 │ spins\n")
        self.leave_terminal(session)
        self.assert_nothing_is_left()
        self.assertIn("nobody has come back since", self.journal())

    def test_the_session_is_killed_while_nobody_is_there(self):
        session = self.begin("--detachable=10m")
        session.type(CELLS[()][3])
        session.wait_for_text("0-3 │ spins\n")
        self.leave_terminal(session)
        hub, pattern = self.hosts["hub"], rf"{LOCKSTEP} --detachable=10m"
        killed = {pid for pid, line in hub.processes().items() if re.match(pattern, line)}
        self.kill(hub, pattern)
        wait_until(lambda: not killed & hub.processes().keys())
        hub.run(LOCKSTEP, "sessions", "clean")
        self.assert_nothing_is_left()


if __name__ == "__main__":
    module.main()

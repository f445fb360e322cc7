"""The kernel without a page: `jupyter console` runs cells in a terminal. python3 convert_test.py LOCKSTEP"""
import os
import sys
import unittest

from kernel_support import install, use_own_folders

use_own_folders()
LOCKSTEP = os.path.abspath(sys.argv.pop(1))
install(LOCKSTEP, "-n", "2")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../terminal"))

from tmux import Terminal  # noqa: E402


class WithoutAPage(unittest.TestCase):
    def test_jupyter_console(self):
        environment = {name: value for name, value in os.environ.items()
                       if name.startswith(("JUPYTER", "XDG", "IPYTHON"))}
        terminal = Terminal([sys.executable, "-m", "jupyter_console", "--kernel", "lockstep"], columns=100, rows=30,
                            environment=environment)
        self.addCleanup(terminal.close)
        terminal.wait_for(r"In \[1\]:")
        terminal.type("int a = 20;")
        terminal.press("Enter")
        terminal.wait_for(r"In \[2\]:")
        terminal.type("a * 2 + rank")
        terminal.press("Enter")
        screen = terminal.wait_for(r"In \[3\]:")
        self.assertRegex(screen, r"0   = 40\n *1   = 41")
        terminal.type('std::cout << "begun\\n" << std::flush; for (;;) {}')
        terminal.press("Enter")
        terminal.wait_for(r"│ begun")
        terminal.press("C-c")
        terminal.wait_for(r"In \[4\]:")
        terminal.type("a")
        terminal.press("Enter")
        terminal.wait_for(r"Out\[4\]: 20")
        terminal.type("exit")
        terminal.press("Enter")


if __name__ == "__main__":
    unittest.main(verbosity=2)

"""`%load_ext lockstep` in IPython: what its magics do, and that nothing is left when it ends."""

import contextlib
import io
import os
import select
import sys
import tempfile
import unittest
import unittest.mock

try:
    from IPython.core.history import HistoryManager
    from IPython.core.interactiveshell import InteractiveShell
except ImportError:
    print("IPython is not there: tools/python sets it up, and tools/test does so")
    sys.exit(77)

FOLDER = tempfile.TemporaryDirectory(prefix="ls", dir="/tmp")  # a socket's path is short
os.environ.update(IPYTHONDIR=FOLDER.name, XDG_RUNTIME_DIR=FOLDER.name, OMP_NUM_THREADS="1")
HistoryManager.enabled = False


class Extension(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shell = InteractiveShell.instance()
        assert "%dist_init" in cls.run_cell("%load_ext lockstep")
        assert "no ranks are running: %dist_init -n 2 starts them" in cls.run_cell("%sync", fails=True)
        assert "2 ranks" in cls.run_cell("%dist_init -n 2")

    @classmethod
    def tearDownClass(cls):
        pids = [int(each.split()[2]) for each in cls.run_cell("%dist_status").splitlines()[1:]]
        ends = [os.pidfd_open(each) for each in pids]
        assert len(ends) == 2
        cls.run_cell("%dist_shutdown")
        for end in ends:
            assert select.select([end], [], [], 60)[0], "a rank outlives %dist_shutdown"
            os.close(end)
        cls.run_cell("%unload_ext lockstep")

    def setUp(self):
        self.run_cell("%dist_mode -e")

    @classmethod
    def run_cell(cls, text, fails=False):
        written = io.StringIO()
        with contextlib.redirect_stdout(written), contextlib.redirect_stderr(written):
            result = cls.shell.run_cell(text)
        assert result.success != fails, written.getvalue()
        return written.getvalue()

    def test_cells_run_on_the_ranks(self):
        self.run_cell("x = torch.ones(1) * rank")
        self.assertEqual(self.run_cell("x.item()"), "0   = 0.0\n1   = 1.0\n")
        self.assertEqual(self.run_cell("%%rank [1]\nx.item()"), "1   = 1.0\n")
        self.assertEqual(self.run_cell("# comment\n%%rank[0]\nx.item()"), "0   = 0.0\n")
        self.run_cell("# comment\n%%check answer\nassert x.item() < 1")
        self.assertIn("check answer: not yet", self.run_cell("%check answer", fails=True))
        self.assertEqual(self.run_cell("%rank 1 x.item()"), "1   = 1.0\n")
        self.run_cell("%rank all")
        self.assertEqual(self.run_cell("print('written')"), "0-1 │ written\n")
        self.assertIn("barrier over ranks 0-1", self.run_cell("%sync"))
        self.assertIn("ranks 0-1 differ", self.run_cell("%verify x"))

    def test_cells_run_here(self):
        self.run_cell("here = 1")
        self.assertEqual(self.run_cell("%%local\nfound = 'here' in globals()\nprint(found)"), "False\n")
        self.run_cell("%dist_mode -d")
        self.assertEqual(self.run_cell("print(found)"), "False\n")
        self.assertEqual(self.run_cell("%%distributed\nworld_size"), "2\n")
        self.run_cell("%dist_mode -e")
        self.assertEqual(self.run_cell("world_size"), "2\n")

    def test_magics_that_ipython_has_too(self):
        for text in ("%timeit sum(range(10))", "%%timeit\nsum(range(10))"):
            self.assertRegex(self.run_cell(text), r"^rank 0 .* per loop.*\nrank 1 .*\n.*runs")
        self.run_cell("there = 1")
        self.assertIn("there", self.run_cell("%who"))
        self.run_cell("%dist_mode -d")
        self.assertNotIn("there", self.run_cell("%who"))
        self.assertRegex(self.run_cell("%timeit -n 1 -r 1 sum(range(10))"), r"per loop|loops? each")
        self.run_cell("%dist_mode -e")

    def test_failures(self):
        shown = self.run_cell("1 / 0", fails=True)
        self.assertEqual(shown.count("ZeroDivisionError: division by zero"), 1)
        self.assertIn("a rank that is not in the session", self.run_cell("%%rank 5\n1", fails=True))
        self.assertIn("say -e", self.run_cell("%dist_mode -x", fails=True))

    def test_the_debugger_after_an_exception(self):
        self.run_cell("(lambda inner: inner / (rank - 1))(7)", fails=True)
        self.assertIn("nobody types here", self.run_cell("%debug", fails=True))
        prompts = []
        with unittest.mock.patch("builtins.input", side_effect=["p inner * 100", EOFError]) as asked, \
                unittest.mock.patch("lockstep.ipython._extension.Extension._has_person", return_value=True):
            shown = self.run_cell("%debug")
            prompts = [each.args[0] for each in asked.call_args_list]
        self.assertEqual(prompts, ["(Pdb) rank 1> "] * 2)
        self.assertIn("1   │ 700\n", shown)
        self.run_cell("%dist_mode -d")
        with unittest.mock.patch.object(self.shell, "debugger") as debugger:
            self.run_cell("%debug")  # IPython's own
        debugger.assert_called_once()

    def test_names_of_the_ranks_are_completed(self):
        self.run_cell("only_there = torch.ones(1)")
        self.assertIn("only_there", self.shell.complete("only_t", "only_t", 6)[1])
        self.assertIn("only_there.shape", self.shell.complete("only_there.sha", "only_there.sha", 14)[1])


if __name__ == "__main__":
    unittest.main(argv=sys.argv)

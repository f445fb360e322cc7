"""Calls of ranks on two hosts that do not match, in sessions: the ranks raise it while the cell runs."""

import sys

import hosts as module
from session_support import OnHosts

UNENDING = "for (;;) dist::barrier();"  # until somebody is told
UNENDING_PYTHON = "while True: dist.barrier()"


class Calls(OnHosts):
    def test_a_cell_that_would_not_end(self):
        """The next cell works: the groups are connected again."""
        cells = [f"auto some = torch::ones({{4}}, rank < 2 ? torch::kFloat32 : torch::kInt32);\ndist::all_reduce(some);\n{UNENDING}",
                 "auto sum = torch::ones({1}); dist::all_reduce(sum); sum.item<float>()"]
        output = self.run_cells(cells, "--keep-going", code=1)
        words = ("ranks 0-1 called all_reduce float32 [4] SUM as #1 of group default (cell 1, line 2), ranks 2-3 all_reduce "
                 "int32 [4] SUM (cell 1, line 2). All ranks of a group must make the same calls in the same order")
        self.assertEqual(output.count(f"✗ collectives: {words}"), 1, output)
        self.assertNotIn("cell 2", output.replace("In [2]", ""))
        self.assertIn("0-3 = 4\n", output)

    def test_ranks_that_wait(self):
        output = self.run_cells(["if (rank < 2) dist::barrier(); else { auto one = torch::ones({1}); dist::broadcast(one, 0); }"],
                                code=1)
        self.assertIn("✗ collectives: ranks 0-1 called barrier as #1 of group default (cell 1, line 1), ranks 2-3 broadcast",
                      output)

    def test_a_group_that_not_all_ranks_are_in(self):
        cells = [f"auto pair = dist::new_group({{1, 2}});\nif (rank == 1 || rank == 2) {{\n  auto some = torch::ones({{rank}});\n"
                 "  if (rank == 1) dist::barrier(pair); else dist::broadcast(some, 1, pair);\n}"]
        output = self.run_cells(cells, code=1)
        self.assertIn("rank 1 called barrier as #1 of group group_1 (cell 1, line 4), rank 2 broadcast", output)

    def test_python(self):
        cells = ["total = torch.ones(4, dtype=torch.float32 if rank < 2 else torch.int32)\ndist.all_reduce(total)\n"
                 + UNENDING_PYTHON, "one = torch.ones(1)\ndist.all_reduce(one)\none.item()"]
        output = self.run_cells(cells, f"--python={sys.executable}", "--keep-going", code=1)
        self.assertIn("ranks 0-1 called all_reduce float32 [4] SUM as #1 of group", output)
        self.assertIn("ranks 2-3 all_reduce int32 [4] SUM (cell 1, line 2)", output)
        self.assertIn("0-3 = 4.0", output)

    def test_calls_that_differ_on_one_host(self):
        """Ranks 2 and 3 find it themselves, and the others hear that they have left: there is one fault."""
        output = self.run_cells(["auto some = torch::ones({4}, rank < 3 ? torch::kFloat32 : torch::kInt32);\n"
                                 f"dist::all_reduce(some);\n{UNENDING}"], code=1)
        self.assertEqual(output.count("✗ collectives"), 1, output)


if __name__ == "__main__":
    module.main()

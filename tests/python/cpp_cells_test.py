"""C++ cells at the prompt over a job."""

import sys
import unittest

from attached_job import Job, of, values


class CppCells(unittest.TestCase):
    def test_cpp_cells_share_tensors_with_python(self):
        with Job("once") as job:
            job.wait_for("waits in breakpoint", times=2)
            events = job.run_cells(
                '%%cpp\nauto& w = py::tensor("model.weight");\nint calls = 0;\nw.requires_grad()',
                "%%cpp\ntorch::NoGradGuard no_grad;\nw.fill_(rank + 2);\n++calls;\nshow(calls);\nw.sum().item<float>()",
                "model.weight.sum().item(), model.weight.requires_grad and torch.is_grad_enabled()",
                "%%cpp\nw.sum().backward();\n(w * 2).sum().backward();",
                "model.weight.grad.sum().item()",
                '%%cpp\nstd::cout << "of C++" << std::endl;\npy::set("extra", torch::ones(3) * rank);\npy::number("factor")',
                "extra, extra.sum().item()",
                "%%cpp\n%%rank 1\nstruct Point { int x, y; };\nPoint{1, calls}",
                "%cpp rank * 10 + world_size",
                "%%cpp\nint calls(int x) { return x + 100; }\ncalls(1)",
                '%%cpp\ninspect::verify(py::tensor("model.bias").detach().abs() * 0);',
                "%%cpp\nauto sum = torch::ones(1) * (rank + 1);\ndist::all_reduce(sum);\nsum.item<float>()",
                "%%cpp\nstd::atomic<int> right = 0;\n{\n  std::vector<std::thread> threads;\n"
                "  for (int i = 0; i < 4; ++i)\n    threads.emplace_back([i] {\n"
                "      for (int k = 0; k < 50; ++k)\n"
                '        right += py::tensor("extra[0] * 0 + " + std::to_string(50 * i + k)).item<float>() == 50 * i + k;\n'
                "    });\n  for (auto& each : threads) each.join();\n}\nright.load()",
                "import torch\ntorch.set_num_threads(3)",  # OpenMP in C++ runs on the threads of torch
                "%%cpp\n#include <omp.h>\nint seen = 0;\n#pragma omp parallel reduction(+ : seen)\n"
                "seen += 1 + 100 * omp_get_thread_num();\nseen",
                "[each.split()[1] for each in open('/proc/self/maps') if '[stack]' in each]")  # not executable by a cell
            self.assertEqual(of(events, "error"), [])
            self.assertEqual(values(events), [
                ([0, 1], "true"), ([0, 1], "1"), ([0], "16"), ([1], "24"),
                ([0], "(16.0, True)"), ([1], "(24.0, True)"), ([0, 1], "24.0"),
                ([0], "10"), ([1], "20"), ([0], "(tensor([0., 0., 0.]), 0.0)"), ([1], "(tensor([1., 1., 1.]), 3.0)"),
                ([1], "Point{.x = 1, .y = 1}"), ([0], "2"), ([1], "12"), ([0, 1], "101"), ([0, 1], "3"), ([0, 1], "200"),
                ([0, 1], "303"), ([0, 1], "['rw-p']")])
            self.assertEqual([(each["ranks"], each["text"]) for each in of(events, "output")], [([0, 1], "of C++\n")])
            (finding,) = of(events, "finding")
            self.assertEqual((finding["verdict"], finding["where"]), ("ok", "cell 11, line 2"))
            self.assertEqual([each["total"] for each in job.results()], [30, 60])

    def test_errors_of_cpp_cells(self):
        with Job("once") as job:
            job.wait_for("waits in breakpoint", times=2)
            events = job.run_cells(
                "%%cpp\nint half(int x) {\n  if (x > 0) throw std::runtime_error(\"too much\");\n  return x;\n}\nint kept = 5;\n"
                "half(rank)",
                "%%cpp\nhalf(", "%%cpp\nunknown + 1", "%%cpp\nkept", "%%cpp\ntorch::ones(2).matmul(torch::ones(3))",
                '%%cpp\npy::tensor("no_such")', '%%cpp\npy::tensor("factor")', '%%cpp\npy::tensor("model")',
                '%%cpp\npy::set("model.weight", torch::ones(1))', '%%cpp\npy::number("seen")', "factor",
                "%%cpp\ninspect::data(torch::ones({1, 1, 1}, torch::kLong));",
                "import lockstep\nlockstep.grads(model, threshold=0.5)",
                code=1, options=["--keep-going"])
            thrown, *rest, of_cpp, of_python = of(events, "error")
            self.assertEqual((thrown["ranks"], thrown["type"], thrown["message"], thrown["where"]),
                             ([1], "std::runtime_error", "too much", "cell 1, line 3"))
            self.assertIn("inspect::data: indices are integers", of_cpp["message"])  # each names its own functions
            self.assertIn("lockstep.grads: a threshold of 0.5?", of_python["message"])
            self.assertIn("half(int) at cell 1, line 3", thrown["stack"][0])
            said = [(each["type"], each["ranks"], each["message"]) for each in rest]
            self.assertEqual([each[0] for each in said], ["compile_error"] * 2 + ["c10::Error"] + ["lockstep::py::Error"] * 6)
            self.assertEqual([each[1] for each in said[3:]], [[0, 1]] + [[0], [1]] + [[0, 1]] * 3)
            job.results()

    def test_interrupt_of_a_cpp_cell_and_one_that_crashes(self):
        # The launcher leaves rank 1 as it died, so that the shell can see how.
        with Job("every", LAUNCH_GOES_ON="1") as job:
            job.wait_for("waits in breakpoint", times=2)
            code, rest = job.interrupt("%%cpp\nvolatile int turns = 0;\nputs(\"loops\");\nfor (;;) ++turns;", '"loops')
            self.assertEqual(code, 130)
            (done,) = of(rest, "cell")
            self.assertEqual(done["rank_status"], {"0": "interrupted", "1": "interrupted"})
            job.wait_for("waits in breakpoint", times=4)
            # Another shell, which has no names yet. Its own live on beyond `continue`; what they hold of Python does not.
            events = job.run_cells(
                '%%cpp\nint turns = 7;\nauto& w = py::tensor("model.weight");\nturns', "continue",
                "%%cpp\n++turns", "%%cpp\nw.defined()", '%%cpp\npy::tensor("model.weight").is_same(w)',
                "%%cpp\nif (rank == 1) *(volatile int*)nullptr = 1;\nrank", code=5)
            self.assertEqual(values(events)[:4], [([0, 1], "7"), ([0, 1], "8"), ([0, 1], "false"), ([0, 1], "true")])
            errors = [(each["type"], each["ranks"], each["where"]) for each in of(events, "error")]
            self.assertIn(("SIGSEGV", [1], "cell 5"), errors, of(events, "error"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv)

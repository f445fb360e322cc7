"""jupyter_kernel_test, the suite of the protocol's authors, complete: python3 suite_test.py LOCKSTEP"""
import sys
import unittest

from kernel_support import install, use_own_folders

use_own_folders()
LOCKSTEP = sys.argv.pop(1)
install(LOCKSTEP, "-n", "2")

import jupyter_kernel_test  # noqa: E402


class Suite(jupyter_kernel_test.KernelTests):
    kernel_name = "lockstep"
    language_name = "c++"
    file_extension = ".cpp"
    # Ranks that write at the same time have their output merged before it is shown on trial, as a display.
    code_hello_world = 'dist::barrier();\nstd::cout << "hello, world\\n";'
    code_stderr = 'dist::barrier();\nstd::cerr << "careful\\n";'
    completion_samples = [
        {"text": "torch::nn::BatchNorm2dO", "matches": {"BatchNorm2dOptions"}},
        {"text": "%time_s", "matches": {"%time_sync"}},
    ]
    complete_code_samples = ["1", "int k = 1;", "void f() {\n}\n", "%who", "// a comment"]
    incomplete_code_samples = ["int f() {", "f(1,", "/* open", "%%rank 0", 'R"(text']
    invalid_code_samples = [")"]
    code_page_something = "rank?"
    code_generate_error = 'throw std::runtime_error("as asked");'
    code_execute_result = [
        {"code": "1 + 2 + 3", "result": "6"},
        {"code": "rank", "result": "0   = 0\n1   = 1"},
        {"code": 'std::string("text")'},
        {"code": "torch::ones(2)"},
    ]
    code_display_data = [
        {"code": "%verify rng", "mime": "text/html"},
        {"code": "%verify rng", "mime": "text/plain"},
        {"code": "%verify rng", "mime": "application/vnd.lockstep.finding+json"},
    ]
    code_history_pattern = "1 +*"
    supported_history_operations = ("tail", "range", "search")
    code_inspect_sample = "torch::zeros"
    code_clear_output = "%clear_output"


class Welcome(jupyter_kernel_test.IopubWelcomeTests):
    kernel_name = "lockstep"
    support_iopub_welcome = True


class NothingIsSkipped(unittest.TestCase):
    def test_every_test_of_the_suite_runs(self):
        result = unittest.TestResult()
        tests = unittest.defaultTestLoader
        unittest.TestSuite([tests.loadTestsFromTestCase(Suite), tests.loadTestsFromTestCase(Welcome)]).run(result)
        self.assertEqual([], [text for _, text in result.errors + result.failures])
        self.assertEqual([], [(str(test), why) for test, why in result.skipped])
        self.assertEqual(result.testsRun, 13)


if __name__ == "__main__":
    unittest.main(defaultTest="NothingIsSkipped", verbosity=2)

"""run_page.py notices pages that are not true: python3 run_page_test.py"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
sys.path.insert(0, str(HERE))
from page import blocks_of, steps_of  # noqa: E402
from transcript import same_on_all_pages  # noqa: E402


class Pages(unittest.TestCase):
    def run_page(self, text, *arguments):
        """The exit code, what was printed, and the page afterwards. Any program can be in a transcript, so no session
        is needed."""
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "page.md"
            page.write_text(text)
            run = subprocess.run([sys.executable, str(HERE / "run_page.py"), "/no/lockstep", str(page), *arguments],
                                 capture_output=True, text=True, timeout=300)
            return run.returncode, run.stdout + run.stderr, page.read_text()

    def test_a_page_that_is_true_passes(self):
        code, said, _ = self.run_page("<!-- transcript -->\n```\n$ echo hello\nhello\n$ echo 3 ms\n17.5 ms\n```\n")
        self.assertEqual((code, "transcripts: 1 run, 0 not run; blocks that fail: 0" in said), (0, True), said)

    def test_another_output_is_an_error_and_update_writes_what_was_seen(self):
        page = "before\n<!-- transcript -->\n```\n$ echo hello\nhallo\n```\nafter\n"
        code, said, text = self.run_page(page)
        self.assertEqual((code, text), (1, page), said)
        self.assertIn("-hallo", said)
        self.assertIn("+hello", said)
        code, said, text = self.run_page(page, "--update")
        self.assertEqual(text, page.replace("hallo", "hello"))

    def test_update_leaves_what_differs_in_every_run(self):
        page = "<!-- transcript -->\n```\n$ echo 'pid 7, 12.5 ms'\npid 99, 1 ms\n```\n"
        self.assertEqual(self.run_page(page, "--update")[2], page)

    def test_a_transcript_without_a_marker_is_an_error(self):
        for line in ("$ lockstep -n 2", "In [1] ranks 0-1 ▸ rank", "0-1 = 3", "0   │ text", "✗ rank 1: SIGSEGV",
                     "cell 2:1:1: error: x", '{"event":"end"}'):
            for page in (f"```\n{line}\n```\n", f"text\n\n    {line}\n\ntext\n",
                         f"<!-- transcript -->\n\n```\n{line}\n```\n"):
                code, said, _ = self.run_page(page)
                self.assertEqual((code, "this looks like a transcript" in said), (1, True), page + said)

    def test_other_blocks_need_no_marker(self):
        for block in ("```sh\ntools/test  # what CI runs\n```", "```cpp\nint x = 1;\n```", "```\na ─▶ b\n```",
                      "    lockstep run FILE"):
            self.assertEqual(self.run_page(f"text\n\n{block}\n")[0], 0, block)

    def test_what_is_not_run_is_counted_and_printed(self):
        code, said, _ = self.run_page("<!-- not run: needs two GPUs -->\n```\n$ lockstep --gpu-ids 0,1\n```\n")
        self.assertEqual(code, 0, said)
        self.assertIn("page.md, line 3: not run: needs two GPUs", said)
        self.assertIn("transcripts: 0 run, 1 not run", said)

    def test_a_block_that_can_not_be_run_is_an_error(self):
        for block, why in (("0-1 = 3", "nothing is typed"), ("In [1] ranks 0-1 ▸ rank", "and no session")):
            code, said, _ = self.run_page(f"<!-- transcript -->\n```\n{block}\n```\n")
            self.assertEqual((code, why in said), (1, True), said)
        code, said, _ = self.run_page("<!-- transcript: nothing.cpp, a cell -->\n```\n0-1 = 3\n```\n")
        self.assertEqual((code, "there is no tests/docs/scripts/nothing.cpp" in said), (1, True), said)

    def test_a_program_is_interrupted_where_the_page_says_so(self):
        # Not `read`: a shell whose trap is due just before its system call does not come back from it.
        command = "stty -echo; trap 'echo caught; exit 1' INT; echo ready; while :; do sleep 0.1; done"
        code, said, _ = self.run_page(f"<!-- transcript -->\n```\n$ {command}\nready\n^C\ncaught\n```\n")
        self.assertEqual(code, 0, said)


class Parts(unittest.TestCase):
    def test_what_was_typed(self):
        block = ["$ echo |", "> lockstep", "✓ 2 ranks", "In [1] ▸ %verify net", "  table", "In [2] ranks 0-1 ▸ int x = 1;",
                 "", "x", "0-1 = 1", "In [3] ranks 0,2 ▸ for (;;) {}", "^C", "■ interrupted", "In [4] rank 0 ▸ ^C"]
        self.assertEqual(steps_of(block), [("command", "echo |\nlockstep"), ("cell", "%verify net"),
                                           ("cell", "int x = 1;\n\nx"), ("cell", "for (;;) {}"),
                                           ("interrupt", "In [3] ranks 0,2 ▸ for (;;) {}"),
                                           ("interrupt", "In [4] rank 0 ▸ ^C")])

    def test_wrapped_lines_and_columns(self):
        self.assertEqual(same_on_all_pages("✗ net: ranks\n  0-1 differ\n    at cell 1\n"),
                         "✗ net: ranks 0-1 differ\n    at cell 1\n")
        self.assertEqual(same_on_all_pages("a   12.5 ms  b"), same_on_all_pages("a  7 ms      b"))

    def test_what_depends_on_time_is_left_out(self):
        self.assertEqual(same_on_all_pages("• rank 0: waits 0.1 s in barrier #4\n✗ hang: x\n"), "✗ hang: x\n")
        error = "• rank 1: std::exception in cell 4\n"
        self.assertEqual(same_on_all_pages(error), error)

    def test_a_block_without_an_end(self):
        with self.assertRaisesRegex(Exception, "line 2: a block without an end"):
            blocks_of("text\n```\n$ echo\n")


if __name__ == "__main__":
    unittest.main()

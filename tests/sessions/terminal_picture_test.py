#!/usr/bin/env python3
"""A session in a real terminal, whose picture is in the README: what ranks are at is shown while a cell runs.

    terminal_picture_test.py LOCKSTEP [--update]

The screen is compared with tests/shell/terminal/captures/session.ansi, but for times; the picture docs/pictures/terminal.svg
is made from that file. --update writes both anew."""
import os
import pathlib
import re
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests/shell/terminal"), str(ROOT / "tests/support")]
from picture import svg  # noqa: E402
from tmux import Terminal  # noqa: E402

LOCKSTEP = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""
UPDATE = "--update" in sys.argv and not sys.argv.remove("--update")
CAPTURE = ROOT / "tests/shell/terminal/captures/session.ansi"
PICTURE = ROOT / "docs/pictures/terminal.svg"

NET = """\
struct Net : torch::nn::Module {
  torch::nn::Linear fc{register_module("fc", torch::nn::Linear(3, 2))};
};
set_seed(rank);   // a slip: each rank draws its own weights
Net net;"""


COLOUR = re.compile(r"\x1b\[[\d;]*m|\x0e|\x0f")


def without_times(text):
    """And without versions, and the note about a wait that comes when the machine is busy."""
    text = re.sub(r"(LibTorch|clang) [\d.]+", r"\1", text)
    text = re.sub(r"(?m)^(\x1b\[[\d;]*m)*• .*\n", "", text)
    text = re.sub(r"\d+:\d\d|\b[\d.]+ (ms|s|it/s|s/it|µs)\b", "T", text)
    return re.sub(r" +$", "", text, flags=re.MULTILINE)


class Picture(unittest.TestCase):
    maxDiff = None

    def test_a_session(self):
        state = tempfile.mkdtemp(prefix="ls-")
        terminal = Terminal([LOCKSTEP, "-n", "2"], columns=104, rows=32, environment={"XDG_STATE_HOME": state})
        self.addCleanup(terminal.close)

        def run(text, number):
            terminal.wait_for(rf"^In \[{number}\] ranks 0-1 ▸ *\n?\Z")
            terminal.paste(text)
            terminal.press("Enter")

        run('for (auto step : progress(200, "epoch 1")) usleep(2000 + 8000 * rank);', 1)
        run("auto loss = torch::full({2}, 1.25 + 0.5 * rank);\nloss", 2)
        run(NET, 3)
        run("%verify net", 4)
        run("if (rank == 1) std::this_thread::sleep_for(std::chrono::seconds(60));\ndist::barrier();", 5)
        at = (r"^… cell 5 running for \d:\d\d\n    rank 0: in barrier #\d+ for \d:\d\d\n"
              r"    rank 1: running, in no collective$")
        screen = ""
        while not re.search(at, COLOUR.sub("", screen), re.MULTILINE):  # a note about the wait may take its place
            terminal.wait_for(at)
            screen = terminal.screen(colours=True)
        terminal.press("C-c")
        after = terminal.wait_for(r"^In \[6\]")
        self.assertNotIn("running for", after)
        if UPDATE:
            CAPTURE.write_text(screen)
            PICTURE.parent.mkdir(exist_ok=True)
            PICTURE.write_text(svg(screen))
        self.assertEqual(without_times(screen), without_times(CAPTURE.read_text()),
                         "captures/session.ansi differs from the screen; --update writes it anew")

    def test_the_picture_is_that_of_the_capture(self):
        self.assertEqual(PICTURE.read_text(), svg(CAPTURE.read_text()), "--update draws it anew")


if __name__ == "__main__":
    unittest.main()

"""Notebooks without a page: `nbconvert --execute` with the kernel and `lockstep run --write` store the same text, and
`jupyter console` runs cells in a terminal, and Jupyter's server comes back to a kernel. python3 convert_test.py LOCKSTEP"""
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

from kernel_support import SCRATCH, install, use_own_folders

use_own_folders()
LOCKSTEP = os.path.abspath(sys.argv.pop(1))
install(LOCKSTEP, "-n", "2")

import nbformat  # noqa: E402
from processes import descendants, wait_gone  # noqa: E402
from tmux import Terminal  # noqa: E402
from tornado.websocket import websocket_connect  # noqa: E402
from waiting import LIMIT_S, wait_until  # noqa: E402

CELLS = [
    ("int shared = 20;\nshared + 1", []),
    ("rank * 10", []),
    ('std::cout << "rank " << rank << "\\n"; dist::barrier(); std::cerr << "aside\\n";', []),
    ("auto drifted = torch::ones(3) * rank;\n%verify drifted", []),
    ('throw std::out_of_range("here");', ["raises-exception"]),
    ("int x = missing;", ["raises-exception"]),
    ('show::plot({{"loss", std::vector<double>{3, 2, 1.5}}});', []),
    ("torch::arange(4)", []),
    ('show(rank, "here"); show(rank + 10); show(rank + 20);', []),
    ('%%check answer\nTORCH_CHECK(shared == 7, "seven");', []),
    ("%check answer", ["raises-exception"]),
    ("%rank 0\nshow(shared);\n%clear_output\nshared + 2", []),
]


def notebook():
    cells = [nbformat.v4.new_code_cell(source, metadata={"tags": tags}) for source, tags in CELLS]
    return nbformat.v4.new_notebook(cells=cells, metadata={
        "kernelspec": {"name": "lockstep", "display_name": "Lockstep", "language": "c++"}})


def text_of(output):
    if output.output_type == "stream":
        return output.text
    if output.output_type == "error":
        return f"{output.ename}: {output.evalue}\n"
    return output.data["text/plain"] + "\n"


def texts(path):
    """Of each cell what people read, by ranks: the order of two ranks' lines, and of two streams, is nobody's promise."""
    result = []
    for cell in nbformat.read(path, 4).cells:
        lines = "".join(text_of(output) for output in cell.outputs).splitlines()
        result.append(sorted(re.sub(r"\d+(\.\d+)? [mµ]?s\b", "TIME", line).rstrip() for line in lines))
    return result


def kinds(path):
    """Of each cell the outputs in their order, but for output of ranks, whose lines may have been on trial first."""
    return [[output.output_type for output in cell.outputs] for cell in nbformat.read(path, 4).cells
            if "std::c" not in cell.source]


class WithoutAPage(unittest.TestCase):
    def test_nbconvert_and_run_store_the_same(self):
        with tempfile.TemporaryDirectory(dir=SCRATCH.name) as folder:
            path, run, converted = (os.path.join(folder, name) for name in ("a.ipynb", "run.ipynb", "converted.ipynb"))
            nbformat.write(notebook(), path)
            subprocess.run([LOCKSTEP, "run", path, "-n", "2", "--keep-going", "--write", run], stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
            subprocess.run([sys.executable, "-m", "nbconvert", "--execute", "--to", "notebook", "--output", converted,
                            path], check=True, stderr=subprocess.DEVNULL, cwd=folder)
            for saved in (run, converted):
                nbformat.validate(nbformat.read(saved, 4))
            for (source, _), mine, theirs in zip(CELLS, texts(run), texts(converted), strict=True):
                self.assertEqual(mine, theirs, source)
            self.assertEqual(kinds(run), kinds(converted))
            shown = [output.data["text/plain"] for output in nbformat.read(run, 4).cells[8].outputs]
            self.assertEqual(shown, ["0   = here: 0\n1   = here: 1", "0   = 10\n1   = 11", "0   = 20\n1   = 21"])

    def test_jupyter_console(self):
        environment = {name: value for name, value in os.environ.items()
                       if name.startswith(("JUPYTER", "XDG", "IPYTHON"))}
        terminal = Terminal([sys.executable, "-m", "jupyter_console", "--kernel", "lockstep"], columns=100, rows=30,
                            environment=environment)
        self.addCleanup(terminal.close)
        terminal.wait_for(r"In \[1\]:")
        terminal.enter("int a = 20;")
        terminal.wait_for(r"In \[2\]:")
        terminal.enter("a * 2 + rank")
        screen = terminal.wait_for(r"In \[3\]:")
        self.assertRegex(screen, r"0   = 40\n *1   = 41")
        terminal.enter('std::cout << "begun\\n" << std::flush; for (;;) {}')
        terminal.wait_for(r"│ begun")
        terminal.press("C-c")
        terminal.wait_for(r"In \[4\]:")
        terminal.enter("a")
        terminal.wait_for(r"Out\[4\]: 20")
        terminal.enter("exit")


class Server:
    """Jupyter's server, which lists the kernels of a folder that it has not started."""

    def __init__(self, kernels):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "jupyter_server", "--allow-root", "--no-browser", "--IdentityProvider.token=secret",
             "--ServerApp.ip=127.0.0.1", "--ServerApp.port=0", "--ServerApp.root_dir=" + SCRATCH.name,
             "--ServerApp.allow_external_kernels=True", "--ServerApp.external_connection_dir=" + kernels],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        path = os.path.join(os.environ["JUPYTER_RUNTIME_DIR"], f"jpserver-{self.process.pid}.json")

        def address():
            try:
                with open(path) as file:
                    return json.load(file)["url"]
            except (FileNotFoundError, json.JSONDecodeError):  # not there yet, or half of it
                return None
        self.url = wait_until(address)

    def kernels(self):
        """Their names; none where the server does not answer yet."""
        try:
            with urllib.request.urlopen(f"{self.url}api/kernels?token=secret") as answer:
                return [each["id"] for each in json.load(answer)]
        except urllib.error.URLError:
            return []

    async def run(self, kernel, code):
        """What is published for a cell, as a page sees it."""
        page = await websocket_connect(f"{self.url.replace('http', 'ws', 1)}api/kernels/{kernel}/channels?token=secret")
        await page.write_message(json.dumps({
            "header": {"msg_id": "1", "msg_type": "execute_request", "username": "", "session": "1", "version": "5.4"},
            "parent_header": {}, "metadata": {}, "channel": "shell", "content": {"code": code, "silent": False}}))
        published = []
        while True:
            message = json.loads(await asyncio.wait_for(page.read_message(), LIMIT_S))
            if message["parent_header"].get("msg_id") == "1":
                published.append(message)
                if message["content"].get("execution_state") == "idle":
                    page.close()
                    return published


class KernelOfItsOwn(unittest.TestCase):
    def test_it_outlives_jupyters_server(self):
        kernels = tempfile.mkdtemp(dir=SCRATCH.name)
        kernel = subprocess.Popen([LOCKSTEP, "kernel", "run", "-n", "2"], stderr=subprocess.PIPE, text=True,
                                  env=dict(os.environ, JUPYTER_RUNTIME_DIR=kernels))
        self.addCleanup(kernel.stderr.close)
        self.addCleanup(kernel.wait)
        self.addCleanup(kernel.kill)
        kernel.stderr.readline()  # its connection file is there
        shown = []
        for code in ("int left = 7; left", "%output 1", "left + 1"):
            server = Server(kernels)
            self.addCleanup(server.process.wait)
            self.addCleanup(server.process.kill)
            (identity,) = wait_until(server.kernels)
            published = asyncio.run(server.run(identity, code))
            shown.append([message["content"]["data"]["text/plain"] for message in published if "data" in message["content"]])
            server.process.kill()
            server.process.wait()
        self.assertEqual(shown, [["7"], ["7"], ["8"]])
        processes = descendants(kernel.pid)
        kernel.send_signal(signal.SIGTERM)
        kernel.wait()
        self.assertEqual(wait_gone(processes), {})


if __name__ == "__main__":
    unittest.main(verbosity=2)

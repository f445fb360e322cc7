#!/usr/bin/env python3
"""`lockstep run`: --junit, --show-code, --answers, `expected` in cell events, --arg of a `parameters` cell, and notebooks
with --write."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

LOCKSTEP = os.path.abspath(sys.argv.pop(1))

SCRIPT = """\
// %% [markdown]
// # A question
// <details><summary>Answer</summary>
//
// Because of the rank.
//
// </details>
// %% a remark
// nothing runs here
// %% parameters tags=["parameters"]
int epochs = 3;
std::string name = "none";
// %% values
std::cout << epochs << name << "\\n";
epochs
// %% on purpose tags=["raises-exception"]
if (rank == 1) throw std::runtime_error("<one> & \\"two\\" \\x1b[1m");
// %% drift tags=["expects-finding=verify:mismatch"]
auto t = torch::ones(2) * rank;
%verify t
// %%
throw std::runtime_error("not expected");
// %% after it
1
"""


def run(*arguments, folder, **environment):
    result = subprocess.run([LOCKSTEP, "run", *arguments, "-n", "2"], cwd=folder, stdin=subprocess.DEVNULL, timeout=300,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env={**os.environ, "NO_COLOR": "1", "LC_ALL": "C.UTF-8", **environment})
    return result.returncode, result.stdout


def cell(source, kind="code", tags=(), **more):
    result = {"cell_type": kind, "id": more.pop("id"), "metadata": {"tags": list(tags)} if tags else {}, "source": source}
    return {**result, **({"outputs": [], "execution_count": None} if kind == "code" else {}), **more}


def notebook_of(script):
    """The same cells as a notebook. Their titles are metadata, as jupytext writes them."""
    cells = []
    for part in script.removeprefix("// %% ").split("\n// %%"):
        marker, _, text = part.partition("\n")
        is_markdown = "[markdown]" in marker
        title, _, tags = marker.strip().partition(" tags=")
        if is_markdown:
            text = "\n".join(line.removeprefix("//").removeprefix(" ") for line in text.split("\n"))
        cells.append(cell(text.rstrip("\n"), "markdown" if is_markdown else "code", json.loads(tags or "[]"),
                          id=f"cell{len(cells)}"))
        if title and not is_markdown:
            cells[-1]["metadata"]["title"] = title
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells})


class RunOptions(unittest.TestCase):
    name = "script.cpp"
    line_of_values = "14"
    annotation = "::error file=script.cpp,line=22,title=std%3A%3Aruntime_error::rank 0, 1: not expected\n"

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        path = pathlib.Path(cls.folder.name)
        (path / cls.name).write_text(SCRIPT if cls.name.endswith(".cpp") else notebook_of(SCRIPT))
        cls.code, cls.out = run(cls.name, "--junit", "out.xml", "--json", "out.json", "--show-code",
                                "--arg", "epochs=7", "--arg", "other=1", folder=path)
        cls.suites = xml.etree.ElementTree.parse(path / "out.xml").getroot()
        cls.events = [json.loads(line) for line in (path / "out.json").read_text().splitlines()]

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_answers_are_folded(self):
        self.assertIn("▸ Answer (hidden: --answers shows it)", self.out)
        self.assertNotIn("Because of the rank", self.out)
        self.assertIn("Because of the rank", [e for e in self.events if e["event"] == "markdown"][0]["text"])

    def test_cells_of_comments_have_no_number(self):
        self.assertIn("In [ ] ▸ a remark", self.out)
        self.assertIn("In [1] ▸ parameters", self.out)
        self.assertEqual(self.out.count("In [1]"), 1)

    def test_code_is_shown(self):
        self.assertIn('    std::cout << epochs << name << "\\n";', self.out)

    def test_arguments_set_parameters(self):
        self.assertIn('    epochs = arg("epochs", epochs);  // 7', self.out)
        self.assertIn("7none", self.out)
        self.assertNotIn("other", self.out)

    def test_what_is_expected_is_marked(self):
        self.assertIn("✓ expected: an exception", self.out)
        self.assertIn("✓ expected: verify:mismatch", self.out)
        cells = [(e["title"], e["status"], e["expected"]) for e in self.events if e["event"] == "cell"]
        self.assertEqual(cells[2:], [("values", "ok", True), ("on purpose", "error", True), ("drift", "ok", True),
                                     ("", "error", False)])
        self.assertEqual(self.code, 1)

    def test_junit(self):
        (suite,) = self.suites
        self.assertEqual({k: suite.get(k) for k in ("name", "tests", "failures", "errors", "skipped")},
                         {"name": self.name, "tests": "7", "failures": "1", "errors": "0", "skipped": "1"})
        cases = {case.get("name"): case for case in suite}
        self.assertEqual(len(cases), 7)
        self.assertIsNone(cases["on purpose"].find("failure"))
        self.assertIn('<one> & "two"', cases["on purpose"].find("system-out").text)
        failure = cases['throw std::runtime_error("not expected");'].find("failure")
        self.assertEqual(failure.get("type"), "error")
        self.assertIn("ranks 0-1: std::runtime_error: not expected", failure.get("message"))
        self.assertIsNotNone(cases["after it"].find("skipped"))
        self.assertEqual(cases["values"].get("line"), self.line_of_values)

    def test_annotations(self):
        tool = pathlib.Path(__file__).resolve().parents[2] / "tools/annotate"
        out = subprocess.run([sys.executable, tool, pathlib.Path(self.folder.name) / "out.json"], text=True, check=True,
                             stdout=subprocess.PIPE, timeout=60).stdout
        self.assertEqual(out, self.annotation)

    def test_a_report_that_cant_be_written(self):
        code, out = run(self.name, "--junit", "/nonexistent/out.xml", folder=self.folder.name)
        self.assertEqual(code, 2)
        self.assertIn("--junit /nonexistent/out.xml can't be written", out)

    def test_an_option_in_place_of_a_value(self):
        code, out = run(self.name, "--json", "--no-journal", folder=self.folder.name)
        self.assertEqual(code, 2)
        self.assertIn("--json needs a value, and --no-journal is another option", out)
        self.assertFalse(pathlib.Path(self.folder.name, "--no-journal").exists())


class RunOptionsOfNotebooks(RunOptions):
    name = "script.ipynb"
    line_of_values = None
    annotation = "::error file=script.ipynb,title=std%3A%3Aruntime_error::rank 0, 1: not expected\n"

    def test_answers_are_shown(self):
        path = pathlib.Path(self.folder.name)
        (path / "answer.ipynb").write_text(notebook_of(SCRIPT[:SCRIPT.index("// %% a remark")]))
        code, out = run("answer.ipynb", "--answers", folder=path)
        self.assertEqual(code, 0)
        self.assertIn("Because of the rank", out)


class Folding(unittest.TestCase):
    def test_how_long_output_of_a_rank_waits_for_that_of_others(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "late.cpp").write_text(
                'std::this_thread::sleep_for(std::chrono::milliseconds(700 * rank));\nstd::cout << "late" << std::endl;\n0\n')
            code, out = run("late.cpp", folder=folder, LOCKSTEP_FOLD_TIME="60000")
            self.assertEqual((code, [line for line in ("0-1 │ late\n", "0-1 = 0\n") if line not in out]), (0, []), out)
            code, out = run("late.cpp", folder=folder, LOCKSTEP_FOLD_TIME="soon")
            self.assertEqual(code, 2)
            self.assertIn("LOCKSTEP_FOLD_TIME is 'soon': it has to be a whole number of at least 1", out)


class Notebooks(unittest.TestCase):
    def test_outputs_are_stored(self):
        notebook = {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": {"name": "lockstep", "display_name": "x",
                    "language": "c++"}, "kept": [1, 2]}, "cells": [
                        cell("# Title\n<details>x</details>", "markdown", id="a"),
                        cell("%dist_init", id="s"),
                        cell(["int epochs = 3;\n", "double rate = 0.5;"], tags=["parameters"], id="b"),
                        cell("old", tags=["injected-parameters"], id="c"),
                        cell('std::cout << "rank " << rank << "\\n";\nstd::cerr << "warn\\n";\nepochs * rate', id="d",
                             outputs=[{"output_type": "stream", "name": "stdout", "text": "old"}], execution_count=9),
                        cell("auto t = torch::ones(2) * rank;\n%verify t", tags=["expects-finding"], id="e"),
                        cell('throw std::runtime_error("end");', id="f"),
                        cell("1", id="g", outputs=[{"output_type": "stream", "name": "stdout", "text": "old"}])]}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "in.ipynb"
            path.write_text(json.dumps(notebook))
            path.chmod(0o640)
            code, _ = run("in.ipynb", "--write", "in.ipynb", "--arg", "epochs=8", folder=folder)
            written = json.loads(path.read_text())
            self.assertEqual(path.stat().st_mode & 0o777, 0o640)
            self.assertEqual(os.listdir(folder), ["in.ipynb"])
        self.assertEqual(code, 1)
        self.assertEqual(written["metadata"], notebook["metadata"])
        ids = [each["id"] for each in written["cells"]]
        self.assertEqual([*ids[:3], *ids[4:]], ["a", "s", "b", "d", "e", "f", "g"])
        self.assertEqual(len(set(ids)), 8)
        _, start, _, injected, values, drift, error, rest = written["cells"]
        self.assertIn("✓ 2 ranks, shared_memory", "".join(start["outputs"][0]["text"]))
        self.assertEqual("".join(injected["source"]), 'epochs = arg("epochs", epochs);  // 8')
        self.assertEqual(values["execution_count"], 3)
        streams = {name: "".join("".join(o["text"]) for o in values["outputs"] if o.get("name") == name)
                   for name in ("stdout", "stderr")}
        self.assertIn("rank 0", streams["stdout"])
        self.assertIn("warn", streams["stderr"])
        shown = [o for o in values["outputs"] if o["output_type"] == "execute_result"]  # one, or one for each rank
        for value in shown:
            self.assertRegex("".join(value["data"]["text/plain"]), r"^([01]   = )?4$")
            self.assertEqual(value["execution_count"], 3)
        self.assertTrue(shown)
        (finding,) = [o for o in drift["outputs"] if o["output_type"] == "display_data"]
        self.assertEqual(finding["data"]["application/vnd.lockstep.finding+json"]["verdict"], "mismatch")
        (raised,) = error["outputs"]
        self.assertEqual((raised["output_type"], raised["ename"], raised["evalue"]),
                         ("error", "std::runtime_error", "ranks 0-1: end"))
        self.assertEqual((rest["outputs"], rest["execution_count"]), ([], None))
        try:
            import nbformat
        except ImportError:
            return  # what it checks is checked above for these cells
        nbformat.validate(nbformat.from_dict(written))

    def test_only_notebooks_are_written(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "script.cpp").write_text("// %%\n1\n")
            code, out = run("script.cpp", "--write", "out.ipynb", folder=folder)
        self.assertEqual(code, 2)
        self.assertIn("--write stores the outputs of one notebook", out)


class Hosts(unittest.TestCase):
    def test_one_that_does_not_answer_is_named_while_it_is_waited_for(self):
        with tempfile.TemporaryDirectory() as folder:
            ssh = pathlib.Path(folder, "ssh")
            ssh.write_text("#!/bin/sh\nexec sleep 1000\n")
            ssh.chmod(0o700)
            pathlib.Path(folder, "one.cpp").write_text("1\n")
            with subprocess.Popen([LOCKSTEP, "run", "one.cpp", "--hosts", "far"], cwd=folder, text=True,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  env={**os.environ, "NO_COLOR": "1", "PATH": f"{folder}:{os.environ['PATH']}"}) as process:
                self.assertTrue(any("host far: its relay has not answered for" in line for line in process.stdout))
                process.send_signal(signal.SIGINT)
                process.stdout.read()
        self.assertEqual(process.returncode, 130)


if __name__ == "__main__":
    unittest.main()

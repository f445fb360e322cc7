#!/usr/bin/env python3
"""tools/notebooks: lessons become notebooks and come back without loss. Usage: notebooks_test.py TREE. Skipped (77) where
jupytext is neither in the active Python nor where tools/test puts it."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TREE = pathlib.Path(sys.argv.pop(1)).resolve()
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")


def notebooks(*arguments):
    return subprocess.run([TREE / "tools/notebooks", *map(str, arguments)], stdout=subprocess.PIPE, timeout=300,
                          stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True)


class Notebooks(unittest.TestCase):
    def test_lessons_come_back_as_they_were(self):
        run = notebooks("--check", *TREE.glob("scripts/*/*.cpp"), *TREE.glob("scripts/lessons/python/[0-9]*.py"))
        self.assertEqual((run.returncode, run.stdout), (0, ""))

    def test_python_there_and_back(self):
        script = ('# head\n\n# %% [markdown]\n# # Title ü\n#\n# text\n\n# %% a title tags=["raises-exception"]\n'
                  '%verify net\n# %ranks\nnet?\n\n# %%\n%%rank [0]\nprint(rank)\n')
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            (path / "one.py").write_text(script)
            self.assertEqual(notebooks("--to", path / "made", path / "one.py").returncode, 0)
            notebook = json.loads((path / "made/one.ipynb").read_text())
            self.assertEqual(notebook["metadata"]["kernelspec"]["name"], "python3")
            self.assertEqual("".join(notebook["cells"][2]["source"]), "# a title\n%verify net\n# %ranks\nnet?")
            self.assertEqual(notebooks("--back", path / "made/one.ipynb").returncode, 0)
            self.assertEqual((path / "made/one.py").read_text(), script)

    def test_there_and_back(self):
        script = ('#include_like_head\n\n// %% [markdown]\n// # Title ü\n//\n// text\n\n// %% a title tags=["raises-exception"]\n'
                  '%verify net\n// %who\nint i = 7 % 3;\n\n// %%\n%%rank [0]\nshow(i);\n').replace("#include_like_head", "// head")
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            (path / "one.cpp").write_text(script)
            run = notebooks("--to", path / "made", path / "one.cpp")
            self.assertEqual(run.returncode, 0, run.stdout)
            notebook = json.loads((path / "made/one.ipynb").read_text())
            kinds = [cell["cell_type"] for cell in notebook["cells"]]
            self.assertEqual(kinds, ["markdown", "markdown", "code", "code"])
            cell = notebook["cells"][2]
            self.assertEqual((cell["metadata"]["title"], cell["metadata"]["tags"]), ("a title", ["raises-exception"]))
            self.assertEqual("".join(cell["source"]), "// a title\n%verify net\n// %who\nint i = 7 % 3;")
            # What a run adds is no part of the script.
            cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "out"}]
            cell["execution_count"] = 4
            notebook["cells"].insert(3, {"cell_type": "code", "id": "x", "source": "i = 8;", "outputs": [],
                                         "execution_count": None, "metadata": {"tags": ["injected-parameters"]}})
            (path / "made/one.ipynb").write_text(json.dumps(notebook))
            self.assertEqual(notebooks("--back", path / "made/one.ipynb").returncode, 0)
            self.assertEqual((path / "made/one.cpp").read_text(), script)

    def test_a_loss_is_reported_and_nothing_is_written(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            (path / "odd.cpp").write_text("// %% %title that reads as a level\n1\n")
            run = notebooks("--to", path, path / "odd.cpp")
            self.assertEqual(run.returncode, 1)
            self.assertIn("does not give the same script back", run.stdout)
            self.assertEqual(os.listdir(folder), ["odd.cpp"])


if __name__ == "__main__":
    pythons = ["python3", CACHE / "lockstep/python/jupytext/bin/python3"]
    if not any(os.path.exists(p) or p == "python3" for p in pythons) or not any(
            subprocess.run([p, "-c", "import jupytext"], stderr=subprocess.DEVNULL).returncode == 0
            for p in pythons if p == "python3" or os.path.exists(p)):
        print("jupytext is not installed: tools/notebooks --setup")
        sys.exit(77)
    unittest.main()

"""The first lesson in Python in JupyterLab, in a headless Chromium, by `%load_ext lockstep` in IPython's own kernel.

python3 python_lab_test.py LOCKSTEP TREE PICTURES PYTHON     PYTHON has torch; skipped (77) where there is none, or no
Chromium"""
import json
import os
import subprocess
import sys
import sysconfig
import unittest

PYTHON = sys.argv.pop(4)
VERSION = "import sys; print(sys.version_info[:2])"
if not os.access(PYTHON, os.X_OK):
    print(f"{PYTHON} is not there: tools/python sets it up, and tools/test does so")
    sys.exit(77)
if subprocess.run([PYTHON, "-c", VERSION], stdout=subprocess.PIPE, text=True, check=True).stdout != f"{sys.version_info[:2]}\n":
    print(f"{PYTHON} is of another version than {sys.executable}, whose ipykernel it is to use")
    sys.exit(77)

import lab_test  # noqa: E402  skips where there is no Chromium

import nbformat  # noqa: E402

LESSON, KERNEL = "01-ddp-from-scratch.py", "ipython-with-torch"
folder = os.path.join(os.environ["JUPYTER_DATA_DIR"], "kernels", KERNEL)
os.makedirs(folder)
with open(os.path.join(folder, "kernel.json"), "w") as file:
    json.dump({"argv": [PYTHON, "-m", "ipykernel_launcher", "-f", "{connection_file}"], "language": "python",
               "display_name": "IPython with torch",
               "env": {"PYTHONPATH": f"{os.environ['PYTHONPATH']}:{sysconfig.get_path('purelib')}"}}, file)


class LessonInPython(lab_test.InJupyterLab):
    def test_by_the_extension(self):
        subprocess.run([os.path.join(lab_test.TREE, "tools/notebooks"), "--to", lab_test.NOTEBOOKS,
                        os.path.join(lab_test.TREE, "scripts/lessons/python", LESSON)], check=True,
                       env=dict(os.environ, PATH=os.path.dirname(sys.executable) + ":" + os.environ["PATH"]))
        content = nbformat.read(os.path.join(lab_test.NOTEBOOKS, LESSON.replace(".py", ".ipynb")), 4)
        content.metadata.kernelspec = {"name": KERNEL, "display_name": KERNEL, "language": "python"}
        content.cells = [*(nbformat.v4.new_code_cell(each) for each in ("%load_ext lockstep", "%dist_init -n 2")),
                         *content.cells]
        self.lab.open("by-extension.ipynb", content)
        self.lab.do("notebook:run-all-cells")
        self.lab.wait_until_run()
        saved = self.lab.saved()
        self.assert_ran(saved)
        text = json.dumps(saved)
        self.assertIn("0   = 0\\n1   = 1", text)  # a value that differs
        self.assertIn("different seeds", text)  # what %verify says


if __name__ == "__main__":
    unittest.main(verbosity=2, defaultTest="LessonInPython.test_by_the_extension")

"""Notebooks in JupyterLab, in a headless Chromium: a lesson from its beginning to its end, and what the page shows and
lets people do. Leaves pictures in PICTURES; docs/pictures are copies of them.

python3 lab_test.py LOCKSTEP TREE PICTURES [TEST...]    skipped (77) where there is no Chromium"""
import ctypes
import json
import os
import signal
import subprocess
import sys
import unittest

import browser
from kernel_support import SCRATCH, install, use_own_folders
from waiting import wait_until

if not browser.path():
    print("chromium is not installed (Debian's package: tools/setup installs it)")
    sys.exit(77)
use_own_folders()
LOCKSTEP, TREE, PICTURES = (sys.argv.pop(1) for _ in range(3))
install(LOCKSTEP, "-n", "2")

import nbformat  # noqa: E402

NOTEBOOKS = os.path.join(SCRATCH.name, "notebooks")
PANEL = "window.jupyterapp.shell.currentWidget"
KERNEL = f"{PANEL}?.context?.sessionContext?.session?.kernel"


def notebook(*sources):
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in sources], metadata={
        "kernelspec": {"name": "lockstep", "display_name": "Lockstep (C++20, 2 ranks)", "language": "c++"}})


def end_with_parent():
    """Also where the test is killed: PR_SET_PDEATHSIG."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


class Lab:
    """A JupyterLab with a page in a browser."""

    def __init__(self):
        os.makedirs(NOTEBOOKS)
        settings = os.path.join(os.environ["JUPYTER_CONFIG_DIR"], "lab/user-settings/@jupyterlab/apputils-extension")
        os.makedirs(settings)
        with open(os.path.join(settings, "notification.jupyterlab-settings"), "w") as file:
            json.dump({"fetchNews": "false", "checkForUpdates": False}, file)
        with open(os.path.join(SCRATCH.name, "server.log"), "w") as log:
            self.server = subprocess.Popen(
                [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--expose-app-in-browser",
                 "--ServerApp.ip=127.0.0.1", "--ServerApp.port=0", "--ServerApp.root_dir=" + NOTEBOOKS],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=end_with_parent)
        try:
            self.url, self.token = self.wait_for_server()
            self.page = browser.Page(width=1180, height=900)
        except BaseException:
            self.server.kill()
            self.server.wait()
            raise

    def wait_for_server(self):
        path = os.path.join(os.environ["JUPYTER_RUNTIME_DIR"], f"jpserver-{self.server.pid}.json")

        def written():
            try:
                with open(path) as file:
                    return json.load(file)
            except (FileNotFoundError, json.JSONDecodeError):  # not there yet, or half of it
                return self.server.poll() is not None

        info = wait_until(written)
        if info is True:
            with open(os.path.join(SCRATCH.name, "server.log")) as log:
                raise AssertionError("JupyterLab does not start:\n" + log.read())
        return info["url"], info["token"]

    def close(self):
        self.page.close()
        self.server.terminate()
        self.server.wait()

    def open(self, name, content=None):
        """A notebook as the only one, with its kernel."""
        self.path = os.path.join(NOTEBOOKS, name)
        if content:
            nbformat.write(content, self.path)
        self.page.complaints.clear()
        self.page.go(f"{self.url}lab/workspaces/{name.split('.')[0]}/tree/{name}?token={self.token}")
        self.page.wait_for(f"window.jupyterapp && {KERNEL}?.status === 'idle'", "a kernel that is idle")
        # The cells alone: the file browser has nothing that matters here.
        self.page.evaluate("window.jupyterapp.shell.collapseLeft()")

    def do(self, command, **arguments):
        """Begins a command of JupyterLab, as its menus give it."""
        self.page.evaluate(
            f"void window.jupyterapp.commands.execute({json.dumps(command)}, {json.dumps(arguments)})")

    def wait_until_run(self):
        """Until every code cell has run, or one that was to succeed has failed, after which the others don't run."""
        self.page.wait_for(f"""(() => {{
            const cells = {PANEL}.content.widgets.map(cell => cell.model).filter(model => model.type === "code");
            const hasFailed = model => !(model.getMetadata("tags") ?? []).includes("raises-exception") &&
                model.sharedModel.getOutputs().some(output => output.output_type === "error");
            return {KERNEL}?.status === "idle" && cells.every(model => model.executionState !== "running") &&
                (cells.every(model => model.executionCount) || cells.some(hasFailed));
        }})()""", "all cells have run")

    def saved(self):
        self.page.evaluate("window.jupyterapp.commands.execute('docmanager:save').then(() => null)")
        return nbformat.read(self.path, 4)

    def theme(self, name):
        self.do("apputils:change-theme", theme=name)
        is_light = json.dumps(str("Light" in name).lower())
        self.page.wait_for(f"document.body.dataset.jpThemeLight === {is_light}")
        self.page.wait_for("!document.getElementById('jupyterlab-splash')")

    def show(self, index):
        """Cell `index` at the top of the page."""
        self.page.evaluate(f"{PANEL}.content.activeCellIndex = {index}")
        self.page.evaluate(f"{PANEL}.content.scrollToItem({index}, 'start').then(() => null)")

    def picture(self, name):
        os.makedirs(PICTURES, exist_ok=True)
        self.page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(null))))")
        self.page.picture(os.path.join(PICTURES, name + ".png"))


def code_cells(of):
    return [cell for cell in of.cells if cell.cell_type == "code"]


def errors_of(cell):
    return [output for output in cell.outputs if output.output_type == "error"]


class InJupyterLab(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lab = Lab()
        cls.page = cls.lab.page
        cls.addClassCleanup(cls.lab.close)

    def tearDown(self):
        """Every test: nothing was written to the console of the browser as an error. What a failed test saw is kept."""
        result = self._outcome.result
        if any(test is self for test, _ in result.errors + result.failures):
            self.lab.picture("failed-" + self._testMethodName)
        self.page.evaluate("null")  # reads what has come
        self.assertEqual(self.page.complaints, [])

    def assert_ran(self, saved):
        """All cells have run; those that are to fail have, and no others."""
        nbformat.validate(saved)
        for cell in code_cells(saved):
            self.assertIsNotNone(cell.execution_count, cell.source)
            is_to_fail = "raises-exception" in cell.metadata.get("tags", [])
            self.assertEqual(bool(errors_of(cell)), is_to_fail, (cell.source, cell.outputs))

    def test_a_lesson_runs_to_its_end_and_again_after_a_restart(self):
        subprocess.run([os.path.join(TREE, "tools/notebooks"), "--to", NOTEBOOKS,
                        os.path.join(TREE, "scripts/lessons/01-ddp-from-scratch.cpp")], check=True,
                       env=dict(os.environ, PATH=os.path.dirname(sys.executable) + ":" + os.environ["PATH"]))
        self.lab.open("01-ddp-from-scratch.ipynb")
        self.lab.do("notebook:run-all-cells")
        self.lab.wait_until_run()
        first = self.lab.saved()
        self.assert_ran(first)
        fails = next(i for i, cell in enumerate(first.cells) if "raises-exception" in cell.metadata.get("tags", []))
        self.lab.show(fails)
        self.lab.picture("lesson")
        self.lab.theme("JupyterLab Dark")
        self.lab.picture("lesson-dark")
        self.lab.theme("JupyterLab Light")
        # Restart, and all again: the dialog asks first.
        self.lab.do("notebook:clear-all-cell-outputs")
        self.lab.do("notebook:restart-run-all")
        self.page.click(".jp-Dialog .jp-mod-accept")
        self.page.wait_for("!document.querySelector('.jp-Dialog')")
        self.lab.wait_until_run()
        second = self.lab.saved()
        self.assert_ran(second)
        self.assertEqual([cell.execution_count for cell in code_cells(second)],
                         [cell.execution_count for cell in code_cells(first)])

    def test_the_stop_button_interrupts_and_state_stays(self):
        self.lab.open("interrupt.ipynb", notebook("int kept = 41;", 'std::cout << "begun\\n" << std::flush;\nfor (;;) {}',
                                                  "kept + 1"))
        self.lab.do("notebook:run-all-cells")
        self.page.wait_for(f"{PANEL}.content.widgets[1].outputArea.node.innerText.includes('begun')")
        self.page.click('jp-button[data-command="notebook:interrupt-kernel"]')
        self.page.wait_for(f"{PANEL}.content.widgets[1].outputArea.node.innerText.includes('interrupted')")
        self.page.wait_for(f"{KERNEL}.status === 'idle'")
        self.page.evaluate(f"{PANEL}.content.activeCellIndex = 2")
        self.lab.do("notebook:run-cell")
        self.page.wait_for("document.querySelector('.jp-OutputArea-executeResult pre')?.innerText === '42'")
        self.assertEqual([error.ename for cell in code_cells(self.lab.saved()) for error in errors_of(cell)],
                         ["interrupted"])

    def test_findings_are_tables_and_code_is_completed(self):
        self.lab.open("findings.ipynb", notebook(
            "rank", 'std::cout << "step " << 1 << "\\n"; std::cerr << "careful\\n";',
            "auto net = torch::nn::Linear(4, 2);\n{\n  torch::NoGradGuard no_grad;\n  if (rank == 1) net->weight[1][2] += 1;\n}\n"
            "%verify net",
            "undefined + 1"))
        page = self.page
        self.lab.do("notebook:run-all-cells")
        page.wait_for(f"{PANEL}.content.widgets[3].outputArea.node.innerText.includes('undeclared identifier')")
        self.assertEqual(page.evaluate("document.querySelector('.jp-OutputArea-executeResult pre').innerText"),
                         "0   = 0\n1   = 1")
        self.assertIn("careful", page.evaluate(
            "document.querySelector('[data-mime-type=\"application/vnd.jupyter.stderr\"]').innerText"))
        cells = page.evaluate("Array.from(document.querySelectorAll('.lockstep-finding td')).map(e => e.innerText)")
        self.assertIn("float32", cells)
        # C++ is highlighted: a keyword has another colour than a name.
        colours = page.evaluate("""(() => {
            const spans = Array.from(document.querySelectorAll('.cm-content span'));
            const colour = word => getComputedStyle(spans.find(span => span.innerText === word)).color;
            return [colour('auto'), getComputedStyle(document.querySelector('.cm-content')).color];
        })()""")
        self.assertNotEqual(*colours)
        self.lab.picture("finding")
        # Tab offers members; Shift-Tab says what a name is.
        page.evaluate(f"{PANEL}.content.activeCellIndex = 3")
        page.evaluate(f"{PANEL}.content.activeCell.model.sharedModel.setSource('net->weight.siz')")
        page.evaluate(f"{PANEL}.content.mode = 'edit'")
        page.press("End")
        page.press("Tab")
        page.wait_for("Array.from(document.querySelectorAll('.jp-Completer-item')).some(e => e.innerText.includes('sizes'))")
        self.lab.picture("completion")
        page.press("Escape")
        page.wait_for("!document.querySelector('.jp-Completer-item')?.offsetParent")
        page.evaluate(f"{PANEL}.content.activeCell.model.sharedModel.setSource('net')")
        page.press("End")
        page.press("Tab", browser.SHIFT)
        page.wait_for("document.querySelector('.jp-Tooltip')?.innerText.includes('Linear')")
        self.lab.picture("inspection")

    def test_charts_are_drawn_by_jupyterlabs_own_vega_lite(self):
        spec = {"data": {"values": [{"a": 1, "b": 2}, {"a": 2, "b": 3}]}, "mark": "line",
                "encoding": {"x": {"field": "a", "type": "quantitative"}, "y": {"field": "b", "type": "quantitative"}}}

        def shown(version):
            return nbformat.v4.new_output("display_data", data={
                f"application/vnd.vegalite.v{version}+json": dict(
                    spec, **{"$schema": f"https://vega.github.io/schema/vega-lite/v{version}.json"}),
                "text/plain": f"text of version {version}"})

        content = notebook(
            "", "",
            "std::vector<double> losses;\nfor (int step = 0; step < 40; ++step)\n"
            "  losses.push_back(2.3 * std::exp(-step / (10. + 4 * rank)) + 0.05);\n"
            'show::plot({{"loss", losses}}, {.title = "Loss by rank", .x = "step", .y = "loss"});',
            "auto weights = torch::ones({512 + 256 * rank, 512});\nauto moments = torch::zeros({1024, 512});\n"
            "%memory weights moments")
        content.cells[0].outputs, content.cells[1].outputs = [shown(5)], [shown(6)]
        self.lab.open("charts.ipynb", content)
        page = self.page

        def is_drawn(cell):
            return (f"!!{PANEL}.content.widgets[{cell}].node.querySelector('.vega-embed :is(svg, canvas)')")

        # Which version is drawn is measured, not taken from documentation: kVegaLiteMime names it.
        page.wait_for(is_drawn(0), "a chart of Vega-Lite 5")
        page.wait_for(f"{PANEL}.content.widgets[1].node.innerText.includes('text of version 6')", "version 6 as text")
        for cell in (2, 3):
            page.evaluate(f"{PANEL}.content.activeCellIndex = {cell}")
            self.lab.do("notebook:run-cell")
            page.wait_for(is_drawn(cell), "a chart")
        series = [output.data["application/vnd.vegalite.v5+json"]["encoding"]["color"]["scale"]["domain"]
                  for cell in code_cells(self.lab.saved())[2:] for output in cell.outputs
                  if "application/vnd.vegalite.v5+json" in output.data]
        self.assertEqual(series, [["loss · rank 0", "loss · rank 1"],
                                  ["moments", "weights"]])
        self.assertIn("process, resident", page.evaluate(f"{PANEL}.content.widgets[3].node.innerText"))
        self.lab.show(2)
        self.lab.picture("charts")
        self.lab.theme("JupyterLab Dark")
        page.wait_for(is_drawn(2))
        self.lab.picture("charts-dark")
        self.lab.theme("JupyterLab Light")


if __name__ == "__main__":
    unittest.main(verbosity=2)

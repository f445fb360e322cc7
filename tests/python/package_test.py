"""The package itself: what importing it does to a program, which torch it takes, its types, its wheel."""

import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile

import copies
from ranks import TREE, environment

BUILD = pathlib.Path(os.environ["LOCKSTEP_BUILD"])


def run(code, *, arguments=(), copied=True, **more):
    # Not in the tree: Python would take its folder of headers for a package named lockstep.
    python = copies.interpreter() if copied else sys.executable
    done = subprocess.run([python, "-c", code, *arguments], env=environment(**more), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, cwd="/")
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout.strip()


IMPORT = """
import os, signal, sys, threading, torch
def state():
    return (len(os.listdir("/proc/self/task")), {each: signal.getsignal(each) for each in signal.valid_signals()},
            os.environ.copy(), sys.excepthook, threading.excepthook, sys.breakpointhook, torch.get_rng_state().tolist())
before = state()
import lockstep
assert state() == before
assert "liblockstep" not in open("/proc/self/maps").read()
report = lockstep.verify(torch.ones(2))
assert report and report.took_part == [0], report
maps = open("/proc/self/maps").read()
assert "liblockstep.so" in maps and "interpose" not in maps
assert len(os.listdir("/proc/self/task")) == before[0] + 1, "the agent"
assert state()[1] == before[1]
print(report)
"""


# What a CUDA tensor asks for. torch keeps libtorch_cuda.so, which the plug-in for GPUs needs, to itself.
KERNELS = """
import ctypes
(path,) = {line.split()[-1] for line in maps.splitlines() if "liblockstep.so" in line}
find = getattr(ctypes.CDLL(path), "_ZN8lockstep7inspect16device_functionsEN3c1010DeviceTypeE")
find.restype = ctypes.c_void_p
print("kernels:", bool(find(1)))
"""


LOADED = """
import sys, torch
before = set(sys.modules)
import lockstep
loaded = set(sys.modules) - before
for each in ("_prompt", "_stop", "_shell", "_cells", "_scope", "_cpp_cells", "_questions", "_capture", "_zmtp"):
    assert not any(name.endswith("." + each) for name in loaded), each
assert not loaded & {"readline", "rlcompleter", "codeop"}, loaded
stderr, sys.stderr = sys.stderr, None
lockstep.breakpoint(timeout=0)  # has nobody to tell that it goes on
sys.stderr = stderr
assert "lockstep.prompt._prompt" in sys.modules and "readline" not in sys.modules
print(len(loaded), *sorted(loaded))
"""


LOADER = """
import atexit, os, torch, lockstep
class Data(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, index):
        lockstep.breakpoint()
        return index
lockstep.breakpoint(False)
loader = torch.utils.data.DataLoader(Data(), num_workers=1, multiprocessing_context="fork")
assert sum(len(each) for each in loader) == 4
atexit.register(lockstep.breakpoint, timeout=0)  # called by C: there is no frame of Python
"""


NOTHING_LEFT = """
import os, resource, torch, lockstep
from lockstep.agent import _agent
from lockstep.prompt import _capture
def fails(*_): raise OSError(24, "Too many open files")
os.memfd_create = fails
assert lockstep.verify(torch.ones(2))
assert "Too many open files" in _agent.start()
capture = _capture.Capture()
limits = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
try: capture.begin()
except OSError: pass
else: raise AssertionError("begin")
capture.end(); capture.close()
print("still here")
"""


SIGNATURES = """
import inspect, json, sys, lockstep
print(json.dumps({name: {key: each.default for key, each in inspect.signature(getattr(lockstep, name)).parameters.items()
                         if each.kind is each.KEYWORD_ONLY} for name in sys.argv[1:]}))
"""


def default_of(text):
    """Python's word for the default of an option in C++."""
    if named := re.fullmatch(r"\w+::k(\w+)", text):
        return re.sub(r"(?<!^)(?=[A-Z])", "_", named[1]).lower()
    words = {"std::nullopt": None, "false": False, "true": True}
    return words[text] if text in words else float(text.replace("'", ""))


class Package(unittest.TestCase):
    def test_options_are_those_of_the_tables(self):
        own = {"verify": {"model"}, "first_difference": {"repeat"}}  # of Python alone
        of_all = {"name", "ranks", "deadline", "step", "raise_on_fault"}
        tables = {{"lockstep": "first_difference"}.get(path.stem, path.stem): path.read_text()
                  for path in (TREE / "inspectors" / "options").glob("*.def")}
        functions = json.loads(run(SIGNATURES, arguments=tables))
        self.assertGreaterEqual(len(tables), 5)
        for function, table in tables.items():
            rows = re.findall(r"^LOCKSTEP_OPTION\([^,]+, (\w+), ([^,]+), ", table, re.MULTILINE)
            expected = {name: default_of(initial) for name, initial in rows}
            found = {name: default for name, default in functions[function].items()
                     if name not in of_all | own.get(function, set())}
            self.assertEqual(found, expected, function)

    def test_import_changes_nothing(self):
        self.assertIn("• tensor: not compared: rank 0 alone takes part", run(IMPORT))

    def test_import_loads_nothing_that_only_a_prompt_needs(self):
        # readline changes how input() reads, and installs a handler of SIGWINCH that signal.getsignal() does not show.
        loaded = run(LOADED).splitlines()[-1].split()
        self.assertTrue(all(each.startswith("lockstep") for each in loaded[1:]), loaded)

    def test_a_breakpoint_in_the_worker_of_a_data_loader_is_passed(self):
        said = run(LOADER)
        self.assertEqual(said.count("passes breakpoint() at"), 1, said)
        self.assertEqual(said.count("no shell came within 0 s"), 1, said)

    def test_import_in_a_folder_that_has_been_removed(self):
        run("import os, tempfile, torch\nfolder = tempfile.mkdtemp()\nos.chdir(folder)\nos.rmdir(folder)\n"
            "import lockstep\nassert lockstep.verify(torch.ones(2))")

    def test_lines_of_a_script_that_has_left_its_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder) / "script.py"
            script.write_text("import os, torch, lockstep\nos.chdir('/')\n"
                              "for each in lockstep.verify(torch.tensor(float('nan'))): print(each.where)\n")
            done = subprocess.run([sys.executable, "script.py"], env=environment(), text=True, capture_output=True,
                                  cwd=folder)
        self.assertEqual(done.stdout, "script.py, line 3\n", done.stderr)

    def test_without_a_descriptor_a_program_goes_on(self):
        self.assertIn("still here", run(NOTHING_LEFT))

    def test_another_torch_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            package = pathlib.Path(folder) / "lockstep"
            shutil.copytree(TREE / "python" / "lockstep", package, ignore=shutil.ignore_patterns("__pycache__"))
            for each in ("torch2.9", "torch2.100"):
                (package / each / "lib").mkdir(parents=True)
            (package / "lib").mkdir()
            (package / "lib" / "lockstep.version").write_text("0.2.0\n")
            program = "import torch\ntry:\n  import lockstep\nexcept ImportError as error:\n  print(error)"
            said = run(program, PYTHONPATH=folder)
            minor = run("import torch; print('.'.join(torch.__version__.split('.')[:2]))")
            self.assertIn("lockstep 0.2.0 has libraries for torch 2.9, 2.100, and torch " + minor, said)
            self.assertIn("pip install 'torch>=2.9,<2.101'", said)
            self.assertIn(f"tools/wheel --torch {minor}", said)
            for each in ("torch2.9", "torch2.100"):
                shutil.rmtree(package / each)
            self.assertIn("has no libraries for any torch", run(program, PYTHONPATH=folder))

    def test_the_entry_point_never_fails(self):
        path = f"{BUILD / 'python'}:{BUILD / 'python' / 'autoload'}"
        loaded = "import torch, sys\nprint('lockstep' in sys.modules)"
        self.assertEqual(run(loaded, copied=False, PYTHONPATH=path), "False")
        rank = {"PYTHONPATH": path, "RANK": "0", "WORLD_SIZE": "1"}
        self.assertEqual(run(loaded, copied=False, **rank), "False")
        self.assertEqual(run(loaded, LOCKSTEP_JOB="/nonexistent/job", PYTHONPATH=path), "False")  # no rank
        for options in (["-W", "ignore", "-m"], ["-um"], ["-Xfaulthandler", "-mtorch.distributed.run"]):  # a launcher
            module = [] if options[-1].endswith("run") else ["torch.distributed.run"]
            done = subprocess.run([sys.executable, *options, *module, "--help"], text=True, capture_output=True,
                                  env=environment(LOCKSTEP_JOB="/nonexistent/job", **rank))
            self.assertEqual((done.returncode, done.stderr), (0, ""), options)
        said = run(loaded, copied=False, LOCKSTEP_JOB="/nonexistent/job", **rank).splitlines()
        self.assertEqual(said[-1], "True")
        self.assertRegex(said[0], "this rank is not watched: /nonexistent/job can't be looked at")
        said = run(loaded, copied=False, LOCKSTEP_JOB="/nonexistent/job", RANK="0", WORLD_SIZE="1",
                   PYTHONPATH=str(BUILD / "python" / "autoload"))
        self.assertIn("this rank is not watched: No module named 'lockstep'", said)

    def test_types(self):
        done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.devnull, "lockstep",
                               "lockstep_autoload"],
                              cwd=TREE / "python", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_everything_public_has_a_docstring(self):
        run("import lockstep, inspect\nfor name in lockstep.__all__:\n  assert inspect.getdoc(getattr(lockstep, name)), name")

    def test_wheel(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-build-isolation",
                 "--no-deps", "--wheel-dir", folder, str(TREE / "python")],
                env=environment(LOCKSTEP_BUILD=str(BUILD)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            self.assertEqual(done.returncode, 0, done.stdout)
            (wheel,) = pathlib.Path(folder).glob("*.whl")
            major, minor, _ = (BUILD / "lib" / "lockstep" / "libtorch.version").read_text().split(".")
            self.assertRegex(wheel.name, r"^lockstep-[0-9.]+-py3-none-linux_x86_64\.whl$")
            of_torch = f"lockstep/torch{major}.{minor}"
            names = zipfile.ZipFile(wheel).namelist()
            for each in (f"{of_torch}/lib/liblockstep.so.0", f"{of_torch}/lib/liblockstep_python.so", "lockstep/py.typed",
                         "lockstep_autoload/__init__.py", f"{of_torch}/lib/liblockstep_cells.so",
                         f"{of_torch}/lib/liblockstep_interpose.so.0", f"{of_torch}/bin/lockstep-worker",
                         "lockstep/bin/lockstep"):
                self.assertIn(each, names)
            (metadata,) = [each for each in names if each.endswith(".dist-info/METADATA")]
            said = zipfile.ZipFile(wheel).read(metadata).decode().splitlines()
            self.assertIn(f"Requires-Dist: torch<{major}.{int(minor) + 1},>={major}.{minor}", said)
            (cells,) = [each for each in said if each.startswith("Requires-Dist: lockstep-cells")]
            self.assertRegex(cells, f"lockstep-cells=={wheel.name.split('-')[1]}; extra == .cells.$")
            for header in ("worker/cell/cell.h", "python/cells/py.h", "collectives/dist.h", "dist.h"):
                self.assertIn(f"lockstep/include/lockstep/{header}", names)
            self.assertFalse([each for each in names if "operators" in each or "__pycache__" in each])
            (entry_points,) = [each for each in names if each.endswith(".dist-info/entry_points.txt")]
            self.assertIn("[torch.backends]\nlockstep = lockstep_autoload:start",
                          zipfile.ZipFile(wheel).read(entry_points).decode().replace("\r", ""))
            installed = pathlib.Path(folder) / "installed"
            subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
                            "--target", str(installed), str(wheel)], check=True)
            said = run(IMPORT + "print(maps)\nprint(lockstep.__version__)\n" + KERNELS, PYTHONPATH=str(installed))
            self.assertIn(f"{installed}/{of_torch}/lib/liblockstep_python.so", said)
            self.assertIn(wheel.name.split("-")[1], said.splitlines())
            self.assertTrue((installed / "share" / "man" / "man1" / "lockstep.1").is_file())
            self.assertTrue((installed / "share" / "lockstep" / "scripts" / "lessons").is_dir())
            self.check_programs(installed, of_torch)
            has_cuda = run("import torch; print(torch.version.cuda)") != "None"
            if has_cuda and (BUILD / "lib" / "liblockstep_cuda.so").exists():
                self.assertIn(f"{of_torch}/lib/liblockstep_cuda.so", names)
                self.assertIn("kernels: True", said)

    def check_programs(self, installed, of_torch):
        """The program of a wheel, as a command and as a module. torch is in another folder than the package."""
        for command in ([str(installed / "bin" / "lockstep")], [sys.executable, "-m", "lockstep"]):
            done = subprocess.run([*command, "doctor", "--json"], text=True, capture_output=True, cwd="/",
                                  env=environment(PYTHONPATH=str(installed), CUDA_VISIBLE_DEVICES=""))
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            checks = {each["name"]: each for each in json.loads(done.stdout)["checks"]}
            self.assertEqual(checks["lockstep-worker"]["found"], str(installed / of_torch / "bin" / "lockstep-worker"))
            self.assertEqual(checks["libtorch"]["data"]["folder"], run("import torch; print(torch.__path__[0])"))
            self.assertTrue(checks["compiler"]["data"]["wheel"])

    def test_a_program_ends_while_it_is_asked_for_its_collectives(self):
        # Their stacks take the interpreter's lock, and Python ends a thread that waits for it at its end.
        with Asked("ends.py") as program:
            answers = 0
            while program.process.poll() is None:
                answers += len(program.ask("collectives"))
                time.sleep(0.001)
            self.assertEqual(program.process.returncode, 0, program.process.stdout.read())
            self.assertGreater(answers, 0)

    def test_a_program_whose_threads_run_is_asked_for_its_stacks(self):
        # The frames of a thread that runs change while they are read.
        with Asked("threads.py") as program:
            self.assertEqual(program.process.stdout.readline(), "runs\n")
            lines, locks = set(), set()
            for _ in range(300):
                answer = program.ask("stacks")
                self.assertIsNone(program.process.poll(), "the program has ended while it was asked")
                lines.update(json.loads(answer)["python"].splitlines() if answer else [])
                locks.add(json.loads(answer).get("at_lock") if answer else None)
            self.assertIn("free", locks)  # it runs Python, and does not wait for another thread
            self.assertIn("Stack (most recent call first):", lines)
            self.assertTrue([each for each in lines if "threads.py" in each and "in main" in each], lines)
            program.process.stdin.close()
            self.assertEqual(program.process.wait(), 0, program.process.stdout.read())

    def test_a_program_in_one_long_call_is_asked_for_its_stacks(self):
        # It keeps the interpreter's lock.
        with Asked("threads.py", "long call") as program:
            self.assertEqual(program.process.stdout.readline(), "runs\n")
            said = ""
            while "in long_call" not in said:
                said = json.loads(program.ask("stacks"))["python"]


class Asked:
    """A program of jobs/, one rank, whose agent is asked."""

    def __init__(self, name, *arguments):
        self.folder = tempfile.TemporaryDirectory(prefix="ls-")
        os.chmod(self.folder.name, 0o700)
        self.process = subprocess.Popen(
            [copies.interpreter(), str(TREE / "tests" / "python" / "jobs" / name), *arguments],
            env=environment(XDG_RUNTIME_DIR=self.folder.name), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True)

    def ask(self, request):
        """The line of the answer; empty where there is no agent yet, or none any more."""
        answer = b""
        for path in pathlib.Path(self.folder.name).glob("lockstep/job-*/rank-0.sock"):
            with socket.socket(socket.AF_UNIX) as agent:
                try:
                    agent.settimeout(60)
                    agent.connect(str(path))
                    agent.sendall(json.dumps({"request": request}).encode() + b"\n")
                    while not answer.endswith(b"\n") and (more := agent.recv(1 << 16)):
                        answer += more
                except OSError:  # it has ended
                    return b""
        return answer

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        self.folder.cleanup()


if __name__ == "__main__":
    unittest.main(argv=sys.argv)

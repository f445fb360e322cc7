#!/usr/bin/env python3
"""Runs everything that is in this folder, which tools/gpu-bundle has made: tests, benchmarks and session scripts that
are compiled ahead. Needs Python 3.8, LibTorch (the wheel of torch), and for the device parts a GPU with its driver; no
compiler. Writes one JSON file with every result.

    ./run [--libtorch DIR] [--out FILE] [--only REGEX] [--cpu] [--require-gpu] [--limit-factor F] [--list]

    --libtorch DIR    the folder that holds LibTorch's include/ and lib/ (in a Python environment: site-packages/torch).
                      Default, first that has the right version: LOCKSTEP_LIBTORCH, the torch that python3 imports, the
                      user's cache of tools/setup and lockstep-setup, wheels of torch and NVIDIA beside this script
    --out FILE        the JSON file (default: results.json in the current folder)
    --only REGEX      only steps whose names match
    --cpu             only steps that need no GPU
    --require-gpu     exit code 4 where steps were skipped for lack of a GPU
    --python PROGRAM  the Python whose torch runs the job in Python (default: python3)
    --limit-factor F  multiplies every time limit
    --list            prints the steps and their limits, and runs none

A step that fails or exceeds its limit does not stop the others. Exit codes: 0 all steps that can run here have passed;
1 a step has failed; 2 bad usage; 3 nothing can run here (no LibTorch of the right version, an older system); 4 see
above; 130 interrupted.
"""
import argparse
import ctypes
import datetime
import glob
import json
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
KEPT = 6000  # characters of a step's output that the JSON keeps


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def say(text):
    print(text, file=sys.stderr, flush=True)


# ---- LibTorch --------------------------------------------------------------------------------------------------------

def libtorch_version(folder):
    """Of the LibTorch in `folder`: "2.11.0"; nothing where there is none."""
    if not os.path.exists(os.path.join(folder, "lib", "libtorch_cpu.so")):
        return None
    parts = re.findall(r"#define TORCH_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)",
                       read(os.path.join(folder, "include", "torch", "headeronly", "version.h")))
    return ".".join(parts) if len(parts) == 3 else None


def of_python(program="python3"):
    """The folder of its torch."""
    code = ("import importlib.util as u, os; s = u.find_spec('torch'); "
            "print(os.path.dirname(s.origin) if s and s.origin else '')")
    try:
        return subprocess.run([program, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=120,
                              check=False).stdout.decode().strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def of_wheels():
    """Unpacks wheels that lie beside this script, once."""
    wheels = sorted(glob.glob(os.path.join(HERE, "*.whl")))
    if not any(os.path.basename(wheel).startswith("torch-") for wheel in wheels):
        return ""
    folder = os.path.join(HERE, "wheels")
    for wheel in wheels:
        done = os.path.join(folder, os.path.basename(wheel) + ".unpacked")
        if os.path.exists(done):
            continue
        say(f"unpacking {os.path.basename(wheel)}")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        with open(done, "w", encoding="utf-8"):
            pass
    return os.path.join(folder, "torch")


def find_libtorch(named, version):
    """The folder, and where it was not found."""
    def places():
        if named:
            yield "--libtorch", named
            yield "--libtorch", os.path.join(named, "torch")
            return
        yield "LOCKSTEP_LIBTORCH", os.environ.get("LOCKSTEP_LIBTORCH", "")
        yield "python3", of_python()
        cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "lockstep", "libtorch")
        yield "the cache", os.path.join(cache, version + "-gpu", "torch")
        yield "the cache", os.path.join(cache, version, "torch")
        yield "wheels", of_wheels()

    passed = []
    for where, folder in places():
        if not folder:
            passed.append(f"{where}: none")
            continue
        found = libtorch_version(folder)
        if found == version:
            return os.path.abspath(folder), passed
        passed.append(f"{where}: {'LibTorch ' + found if found else 'no LibTorch'} in {folder}")
    return None, passed


def library_folders(libtorch):
    return [os.path.join(libtorch, "lib")] + sorted(
        folder for folder in glob.glob(os.path.join(os.path.dirname(libtorch), "nvidia", "*", "lib"))
        if os.path.isdir(folder))


# ---- The machine -----------------------------------------------------------------------------------------------------

def library_in(folders, name):
    for folder in folders:
        if os.path.exists(os.path.join(folder, name)):
            return os.path.join(folder, name)
    return name


def number_from(library, function, result=ctypes.c_int):
    """What `function(&number)` of a library gives; nothing where that fails."""
    try:
        number = result()
        return number.value if getattr(ctypes.CDLL(library), function)(ctypes.byref(number)) == 0 else None
    except (OSError, AttributeError):
        return None


def cuda_version(number):
    return None if number is None else f"{number // 1000}.{number % 1000 // 10}"


def nccl_version(number):
    return None if number is None else f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def devices():
    """Names and memory of the GPUs that the driver offers to this process, without the CUDA runtime."""
    code = ("import ctypes, json\n"
            "cuda, count, found = ctypes.CDLL('libcuda.so.1'), ctypes.c_int(), []\n"
            "assert cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0\n"
            "for i in range(count.value):\n"
            "    name, size, device = ctypes.create_string_buffer(256), ctypes.c_size_t(), ctypes.c_int()\n"
            "    assert cuda.cuDeviceGet(ctypes.byref(device), i) == 0\n"
            "    assert cuda.cuDeviceGetName(name, 256, device) == 0\n"
            "    assert cuda.cuDeviceTotalMem_v2(ctypes.byref(size), device) == 0\n"
            "    found.append({'name': name.value.decode(), 'memory_bytes': size.value})\n"
            "print(json.dumps(found))\n")
    # In a process of its own: a driver that hangs or crashes ends that one only.
    try:
        ended = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                               timeout=60, check=False)
        return json.loads(ended.stdout) if ended.returncode == 0 else []
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return []


def driver_version():
    found = re.search(r"Kernel Module(?: for \S+)?\s+(\d+\.[\d.]+)", read("/proc/driver/nvidia/version"))
    if found:
        return found.group(1)
    smi = shutil.which("nvidia-smi")
    if not smi:
        return None
    try:
        text = subprocess.run([smi, "--query-gpu=driver_version", "--format=csv,noheader"], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, timeout=60, check=False).stdout.decode().split()
    except (OSError, subprocess.TimeoutExpired):
        return None
    return text[0] if text else None


def machine():
    names = dict(re.findall(r'^(\w+)="?([^"\n]*)', read("/etc/os-release"), re.M))
    cpu = re.search(r"model name\s*:\s*(.*)", read("/proc/cpuinfo"))
    memory = re.search(r"MemTotal:\s*(\d+)", read("/proc/meminfo"))
    return {"system": names.get("PRETTY_NAME", platform.system()), "kernel": platform.release(),
            "glibc": platform.libc_ver()[1], "python": platform.python_version(),
            "cpu": cpu.group(1) if cpu else None, "cores": len(os.sched_getaffinity(0)),
            "memory_bytes": int(memory.group(1)) * 1024 if memory else None}


def too_old(requirements):
    """Why the programs can't start on this system; nothing where they can."""
    def key(text):
        return [int(part) for part in text.split(".")]
    have, need = platform.libc_ver()[1], requirements.get("GLIBC")
    if have and need and key(have) < key(need):
        return f"glibc here is {have}, and the programs need {need} ({', '.join(requirements.get('systems', []))})"
    return None


# ---- Steps -----------------------------------------------------------------------------------------------------------

class Step:
    """`leg`: "cpu" or "device". `skip`: the reason not to run, or nothing. `figures`: from the output to a list."""

    def __init__(self, name, leg, command, limit_s, *, skip=None, environment=None, kind="program", goals=None,
                 events=None):
        self.name, self.leg, self.command, self.limit_s = name, leg, command, limit_s
        self.skip, self.environment, self.kind, self.goals = skip, environment or {}, kind, goals or {}
        self.events = events


def figure(name, value, unit, goals):
    result = {"name": name, "value": value, "unit": unit}
    if name in goals:
        relation, goal = goals[name]
        result["goal"] = f"{relation} {goal}"
        result["met"] = value >= goal if relation == ">=" else value <= goal
    return result


UNITS = (("_ms", "ms"), ("_us", "us"), ("_per_s", "GB/s"), ("bytes", "bytes"), ("_ratio", "x"),
         ("ratio_of_best", "x"), ("ratio_median", "x"), ("_of_plain_read", "x"))


def unit_of(name):
    return next((unit for end, unit in UNITS if name.endswith(end)), "")


def figures_of_lines(text, goals):
    """Of the JSON lines of a benchmark: every number, named CASE.FIELD. A line may say that it was skipped."""
    figures, skipped = [], None
    for line in text.splitlines():
        if not line.startswith("{"):
            continue
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if "skipped" in record:
            skipped = record["skipped"]
        case = ".".join(str(record[part]) for part in ("case", "dtype", "threads") if part in record)

        def add(prefix, value):
            if isinstance(value, dict):
                for key, inner in value.items():
                    add(f"{prefix}.{key}", inner)
            elif isinstance(value, (int, float)) and not isinstance(value, bool):
                figures.append(figure(prefix, value, unit_of(prefix), goals))

        for key, value in record.items():
            if key not in ("case", "dtype", "threads"):
                add(f"{case}.{key}", value)
    return figures, skipped


def figures_of_events(path, goals):
    """Of the lines "figure NAME VALUE UNIT" that cells print."""
    text = ""
    for line in read(path).splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if event.get("event") == "output":
            text += event.get("text") or ""
    return [figure(name, float(value), unit, goals)
            for name, value, unit in re.findall(r"^figure (\S+) (\S+) (\S+)$", text, re.M)]


def tests_of(path):
    """Counts and failures of a GoogleTest program, from the file of --gtest_output."""
    try:
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
    except (OSError, ValueError):
        return None
    counts = {"passed": 0, "failed": 0, "skipped": 0, "failures": [], "reasons": []}
    for suite in report.get("testsuites", []):
        for test in suite.get("testsuite", []):
            if test.get("failures"):
                counts["failed"] += 1
                counts["failures"].append({"name": f"{suite['name']}.{test['name']}",
                                           "message": test["failures"][0].get("failure", "")[:1000]})
            elif test.get("result") == "SKIPPED" or test.get("skipped"):
                counts["skipped"] += 1
                for each in test.get("skipped") or []:
                    reason = each.get("message", "").strip().splitlines()
                    if reason and reason[-1] not in counts["reasons"]:
                        counts["reasons"].append(reason[-1])
            elif test.get("status") == "RUN":
                counts["passed"] += 1
    return counts


def find_sanitizer():
    places = [shutil.which("compute-sanitizer")] + [
        os.path.join(root, "bin", "compute-sanitizer")
        for root in (os.environ.get("CUDA_HOME", ""), os.environ.get("CUDA_PATH", ""), "/usr/local/cuda") if root]
    return next((place for place in places if place and os.access(place, os.X_OK)), None)


def programs(folder):
    return sorted(path for path in glob.glob(os.path.join(HERE, folder, "*")) if os.access(path, os.X_OK))


# Goals of docs/performance.md, by step and figure.
GPU_GOALS = {"BFloat16.fingerprint_of_plain_read": (">=", 0.85),
             "equality check.wall_ms": ("<=", 1.0),
             "step of a transformer.BFloat16.sentinel_ratio": ("<=", 1.01),
             "step of a transformer.BFloat16.nan_watch_ratio": ("<=", 1.01)}


# Session scripts by the fewest ranks with which they mean something: one GPU is enough for the first.
FEWEST_RANKS = {"parity-with-the-cpu": 1, "check-1300-million-parameters": 1, "inspectors-by-events": 1,
                "abort-in-one-of-two-groups": 4}
USUAL_RANKS = 2


def make_steps(found, scratch):
    """All steps in order: what the first hour on a device has to show, what needs none, and the sanitizers, which take
    the longest. `found`: the devices, why there is no plug-in, and the Python with torch or why there is none."""
    lockstep = os.path.join(HERE, "bin", "lockstep")
    data = f"data={os.path.join(HERE, 'share', 'lockstep', 'scripts', 'data')}"
    steps = []
    no_plugin = (None if found["devices"] else "no GPU") or found["no_plugin"]
    count = len(found["devices"])
    on_cpu = {"CUDA_VISIBLE_DEVICES": ""}
    mixed = "cpu:gloo,cuda:nccl"
    sessions = sorted(os.path.basename(path)[:-len(".lockstep")]
                      for path in glob.glob(os.path.join(HERE, "sessions", "*.lockstep")))
    lessons = [each for each in sessions if re.match(r"\d", each)]
    names = [each for each in sessions if each not in lessons] + lessons  # the shorter ones first

    def tests(prefix, path, leg, limit_s, skip=None, before=(), only="*", environment=None):
        report = os.path.join(scratch, prefix + ".json")
        steps.append(Step(prefix, leg, [*before, path, "--gtest_color=no", f"--gtest_filter={only}",
                                        f"--gtest_output=json:{report}"], limit_s,
                          skip=skip, kind="tests", environment=environment, events=report))

    def session(name, leg, file, options, limit_s, skip=None, environment=None, goals=None):
        events = os.path.join(scratch, name.replace("/", "-") + ".events")
        path = os.path.join(HERE, "sessions", file + ".lockstep")
        steps.append(Step(name, leg, [lockstep, "run", path, "--arg", data, "--json", events, *options], limit_s,
                          skip=skip, kind="session", environment=environment, goals=goals, events=events))

    def python_job(name, leg, ranks, where, backend, skip=None, environment=None):
        steps.append(Step(name, leg, [found["python"] or "python3", os.path.join(HERE, "python_job.py"), lockstep,
                                      str(ranks), where, backend], 600, skip=skip or found["no_python"],
                          environment={"PYTHONPATH": os.path.join(HERE, "python"), **(environment or {})}))

    steps.append(Step("doctor", "cpu", [lockstep, "doctor", "--json"], 120))

    # ---- On devices
    for path in programs("device_tests"):
        tests(f"device.{os.path.basename(path)}", path, "device", 1200, skip=no_plugin)
    for name in names:
        # One rank per GPU; tensors of the CPU go through Gloo.
        fewest = FEWEST_RANKS.get(name, USUAL_RANKS)
        too_few = f"this script needs {fewest} GPUs" if 0 < count < fewest else None
        session(f"device.nccl.{name}", "device", name, ["-n", str(count), "--backend", mixed], 1200,
                skip=no_plugin or too_few, goals={"verify": ("<=", 1.0)} if name.startswith("check-") else None)
    python_job("device.nccl.python_job", "device", count, "cuda", "nccl",
               skip=no_plugin or ("this job needs 2 GPUs" if count < 2 else None))
    for name in names:
        # The ranks share the first GPU, and NCCL takes each for a host: it goes over sockets.
        ranks = max(USUAL_RANKS, FEWEST_RANKS.get(name, USUAL_RANKS))
        session(f"device.nccl_on_one_gpu.{name}", "device", name,
                ["-n", str(ranks), "--gpu-ids", "0", "--share-gpu", "--backend", mixed], 1200, skip=no_plugin)
    python_job("device.nccl_on_one_gpu.python_job", "device", USUAL_RANKS, "cuda:0", "nccl", skip=no_plugin)
    steps.append(Step("device.nccl_on_one_gpu.hang_jobs", "device",
                      [found["python"] or "python3", os.path.join(HERE, "hang_jobs.py"), lockstep, "cuda:0", "nccl"], 600,
                      skip=no_plugin or found["no_python"]))
    py_spy = [each for each in [shutil.which("py-spy")] if each]
    steps.append(Step("device.nccl_on_one_gpu.look_jobs", "device",
                      [found["python"] or "python3", os.path.join(HERE, "look_jobs.py"), lockstep, "cuda:0", "nccl",
                       *py_spy], 600, skip=no_plugin or found["no_python"]))
    for name in names:
        # The ranks share the first GPU; Gloo moves CUDA tensors through the host.
        ranks = max(USUAL_RANKS, FEWEST_RANKS.get(name, USUAL_RANKS))
        session(f"device.gloo.{name}", "device", name,
                ["-n", str(ranks), "--gpu-ids", "0", "--share-gpu", "--backend", "gloo"], 1200, skip=no_plugin)
    python_job("device.gloo.python_job", "device", USUAL_RANKS, "cuda:0", "gloo", skip=no_plugin)
    steps.append(Step("device.gpu_benchmark", "device", [os.path.join(HERE, "benchmarks", "gpu_benchmark"), "50"], 1800,
                      skip=no_plugin, kind="benchmark", goals=GPU_GOALS))
    benchmarks = os.path.join(HERE, "benchmarks")
    steps.append(Step("device.ddp_beside_python", "device",
                      [found["python"] or "python3", os.path.join(benchmarks, "compare.py"), "--program",
                       os.path.join(benchmarks, "lockstep-bench-ddp"), "--python", found["python"] or "python3",
                       "--device", "cuda:0", "--ranks", "1,2"], 900, skip=no_plugin or found["no_python"]))

    # ---- On the CPU
    for path in programs("cpu_tests"):
        name = os.path.basename(path)
        tests(f"cpu.{name}", path, "cpu", 1200)
        tests(f"cpu.portable.{name}", path, "cpu", 1200, environment={"LOCKSTEP_SIMD": "portable"})
    for name in names:
        ranks = max(USUAL_RANKS, FEWEST_RANKS.get(name, USUAL_RANKS))
        session(f"cpu.{name}", "cpu", name, ["-n", str(ranks), "--backend", "gloo"], 600, environment=on_cpu)
    python_job("cpu.python_job", "cpu", USUAL_RANKS, "cpu", "gloo", environment=on_cpu)
    steps.append(Step("cpu.fingerprint_benchmark", "cpu",
                      [os.path.join(HERE, "benchmarks", "fingerprint_benchmark"), "4"], 600, kind="benchmark",
                      environment=on_cpu))

    # ---- Under a sanitizer: the tests of our own kernels. The others fail on purpose (allocations, asserts, aborts),
    # and a sanitizer takes that for an error.
    sanitizer = find_sanitizer()
    for path in programs("device_tests"):
        for tool, limit_s in (("memcheck", 1800), ("racecheck", 3600)):
            tests(f"device.{tool}.{os.path.basename(path)}", path, "device", limit_s,
                  skip=no_plugin or (None if sanitizer else "compute-sanitizer is not installed"),
                  before=[sanitizer or "compute-sanitizer", "--tool", tool, "--error-exitcode", "9"],
                  only="Device.*")
    return steps


# ---- Running ---------------------------------------------------------------------------------------------------------

def run_step(step, environment, factor):
    # The command as it can be typed in this folder.
    shown = " ".join([*(f"{name}={shlex.quote(value)}" for name, value in sorted(step.environment.items())),
                      *(shlex.quote(os.path.relpath(part, HERE) if part.startswith(HERE + os.sep) else part)
                        for part in step.command)])
    limit_s = step.limit_s * factor
    result = {"name": step.name, "leg": step.leg, "status": "skipped", "reason": step.skip, "command": shown,
              "limit_s": limit_s, "seconds": 0.0, "exit_code": None, "tests": None, "figures": [], "output": ""}
    if step.skip:
        return result
    started = time.monotonic()
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(step.command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                       env={**environment, **step.environment}, cwd=HERE, start_new_session=True)
        except OSError as error:
            result.update(status="failed", reason=f"it can't be started: {error}")
            return result
        late = False
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            late = True
        finally:
            if process.poll() is None:
                # SIGTERM first: a session ends its ranks.
                for number, patience in ((signal.SIGTERM, 15), (signal.SIGKILL, 60)):
                    try:
                        os.killpg(process.pid, number)
                    except ProcessLookupError:
                        pass
                    try:
                        process.wait(patience)
                        break
                    except subprocess.TimeoutExpired:
                        continue
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
    result["seconds"] = round(time.monotonic() - started, 3)
    result["exit_code"] = process.returncode
    result["output"] = text[-KEPT:]
    skipped = None
    if step.kind == "tests":
        result["tests"] = tests_of(step.events)
        if result["tests"] and result["tests"]["passed"] == 0 and result["tests"]["failed"] == 0:
            skipped = "; ".join(result["tests"]["reasons"]) or "no test ran"
    elif step.kind == "benchmark":
        result["figures"], skipped = figures_of_lines(text, step.goals)
    elif step.kind == "session":
        result["figures"] = figures_of_events(step.events, step.goals)
    if late:
        result.update(status="failed", reason=f"it did not end within {limit_s:g} s")
    elif process.returncode != 0:
        words = [line for line in text.strip().splitlines() if line.strip()]
        ended = (f"signal {-process.returncode}" if process.returncode < 0 else f"exit code {process.returncode}")
        result.update(status="failed", reason=ended + (f": {words[-1].strip()[:500]}" if words else ""))
    elif step.kind == "tests" and not result["tests"]:
        result.update(status="failed", reason="it left no report of its tests")
    elif skipped:
        result.update(status="skipped", reason=skipped)
    else:
        missed = [each for each in result["figures"] if each.get("met") is False]
        result.update(status="passed", reason="goals missed: " + ", ".join(each["name"] for each in missed)
                      if missed else None)
    return result


def summed_up(report, require_gpu, interrupted=False):
    counts = {word: sum(each["status"] == word for each in report["results"])
              for word in ("passed", "failed", "skipped")}
    without_gpu = sum(each["status"] == "skipped" and each["reason"] == "no GPU" for each in report["results"])
    report["summary"] = {**counts, "skipped_without_gpu": without_gpu, "interrupted": interrupted}
    report["exit_code"] = 130 if interrupted else 1 if counts["failed"] else 4 if require_gpu and without_gpu else 0
    return report


def write(path, report):
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1)
        file.write("\n")
    os.replace(path + ".new", path)


def main():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--libtorch")
    parser.add_argument("--out", default="results.json")
    parser.add_argument("--only", default="")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--require-gpu", action="store_true")
    parser.add_argument("--python", default="python3")
    parser.add_argument("--limit-factor", type=float, default=1.0)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("-h", "--help", action="store_true")
    options = parser.parse_args()
    if options.help:
        print(__doc__)
        return 0
    try:
        only = re.compile(options.only)
    except re.error as error:
        parser.error(f"--only {options.only}: {error}")

    with open(os.path.join(HERE, "bundle.json"), encoding="utf-8") as file:
        bundle = json.load(file)
    problem = too_old(bundle["requirements"])
    libtorch, passed = find_libtorch(options.libtorch, bundle["libtorch"])
    if not problem and not libtorch:
        problem = (f"there is no LibTorch {bundle['libtorch']} ({'; '.join(passed)}): install it "
                   f"(pip install torch=={bundle['libtorch']}), name its folder with --libtorch, or put the wheels "
                   "beside this script")
    if problem:
        say(f"error: {problem}")
        return 3

    folders = library_folders(libtorch)
    runtime = f"libcudart.so.{bundle['cuda']}" if bundle["cuda"] else ""
    found = {"devices": [] if options.cpu else devices(), "no_plugin": None, "python": shutil.which(options.python),
             "no_python": None}
    of_torch = libtorch_version(of_python(found["python"])) if found["python"] else None
    if of_torch != bundle["libtorch"]:
        has = f"has torch {of_torch}" if of_torch else "has no torch"
        found["no_python"] = f"{options.python} {has}, and the package is for {bundle['libtorch']} (--python)"
    if not bundle["cuda"]:
        found["no_plugin"] = "this bundle was made without the plug-in for GPUs"
    elif not os.path.exists(os.path.join(libtorch, "lib", "libtorch_cuda.so")):
        found["no_plugin"] = f"the LibTorch in {libtorch} has no CUDA"
    elif library_in(folders, runtime) == runtime:
        found["no_plugin"] = f"this LibTorch is of another CUDA than {bundle['cuda']}: it has no {runtime}"

    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("LOCKSTEP_") and name not in ("COLUMNS", "CLICOLOR_FORCE")}
    environment.update(LOCKSTEP_LIBTORCH=libtorch, NO_COLOR="1", LC_ALL="C.UTF-8",
                       LD_LIBRARY_PATH=":".join(filter(None, [*folders, os.environ.get("LD_LIBRARY_PATH")])))
    began = datetime.datetime.now(datetime.timezone.utc)
    with tempfile.TemporaryDirectory(prefix="lockstep-bundle-") as scratch:
        steps = [step for step in make_steps(found, scratch)
                 if only.search(step.name) and not (options.cpu and step.leg == "device")]
        if options.list:
            for step in steps:
                print(f"{step.name}  ({step.leg}, {step.limit_s * options.limit_factor:g} s"
                      f"{', skipped: ' + step.skip if step.skip else ''})")
            return 0
        cudart = number_from(library_in(folders, runtime), "cudaRuntimeGetVersion") if runtime else None
        report = {
            "bundle": bundle, "began": began.isoformat(timespec="seconds"), "machine": machine(),
            "libtorch": {"folder": libtorch, "version": libtorch_version(libtorch),
                         "wheel": (re.search(r"__version__ = '([^']*)'", read(os.path.join(libtorch, "version.py"))) or
                                   [None, None])[1],
                         "cuda_runtime": cuda_version(cudart)},
            "devices": found["devices"], "driver": driver_version(),
            "driver_cuda": cuda_version(number_from("libcuda.so.1", "cuDriverGetVersion")),
            "nccl": nccl_version(number_from(library_in(folders, "libnccl.so.2"), "ncclGetVersion")),
            "no_plugin": found["no_plugin"], "results": []}
        interrupted = False
        try:
            for step in steps:
                result = run_step(step, environment, options.limit_factor)
                report["results"].append(result)
                say(f"{result['status']:7}  {result['name']}  {result['seconds']:.1f} s"
                    + (f"  ({result['reason']})" if result["reason"] else ""))
                write(options.out, summed_up(report, options.require_gpu))  # what is done stays if this is ended
        except KeyboardInterrupt:
            interrupted = True
    write(options.out, summed_up(report, options.require_gpu, interrupted))
    counts = report["summary"]
    say(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped "
        f"({counts['skipped_without_gpu']}: no GPU); {options.out}")
    return report["exit_code"]


if __name__ == "__main__":
    sys.exit(main())

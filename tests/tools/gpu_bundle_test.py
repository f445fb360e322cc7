#!/usr/bin/env python3
"""Makes the bundle for machines with GPUs out of a build folder, unpacks it in a clean folder, and runs its CPU part
where there is no compiler and no library of Debian that it brings itself.

    gpu_bundle_test.py TREE BUILD LIBTORCH SCRATCH PYTHON [--without-plugin]

PYTHON: one with torch. Where there is none, the job in Python is skipped.
"""
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

TREE, BUILD, LIBTORCH, SCRATCH, PYTHON = (pathlib.Path(each) for each in sys.argv[1:6])
OPTIONS = sys.argv[6:]
failures = []


def check(fact, text):
    if not fact:
        failures.append(text)


def call(command, **more):
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           check=False, **more)
    return ended.returncode, ended.stdout.decode("utf-8", "replace")


def steps_with(bundle, gpus):
    """What `run` would do on a machine with so many GPUs, by name and in order."""
    loader = importlib.machinery.SourceFileLoader("run_of_bundle", str(bundle / "run"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    found = {"devices": [{"name": "a GPU"}] * gpus, "no_plugin": None, "python": "python3", "no_python": None}
    return {each.name: each for each in module.make_steps(found, str(SCRATCH))}


def check_plan(bundle, environment):
    """The order, and on how many GPUs which step runs."""
    steps = steps_with(bundle, 2)
    part = {name: 0 if name == "doctor" else 3 if re.match(r"device\.(memcheck|racecheck)\.", name)
            else 1 if name.startswith("device.") else 2 for name in steps}
    check(list(part.values()) == sorted(part.values()), f"the order is {list(steps)}")
    check(set(part.values()) == {0, 1, 2} | (set() if OPTIONS else {3}), f"the steps are {list(steps)}")
    nccl = {gpus: {name[len("device.nccl."):] for name, each in steps_with(bundle, gpus).items()
                   if name.startswith("device.nccl.") and not each.skip} for gpus in (1, 2, 8)}
    check(nccl[1] == {"parity-with-the-cpu", "check-1300-million-parameters", "inspectors-by-events"},
          f"on one GPU {nccl[1]}")
    check(nccl[8] - nccl[2] == {"abort-in-one-of-two-groups"} and "kill-a-rank-in-a-collective" in nccl[2],
          f"on 8 GPUs {nccl[8]}, on 2 {nccl[2]}")
    for name, each in steps_with(bundle, 8).items():
        if name.startswith("device.nccl.") and each.kind == "session":
            check(" -n 8 --backend cpu:gloo,cuda:nccl" in " ".join(each.command), f"{name}: {each.command}")
    shared = {name for name, each in steps_with(bundle, 1).items()
              if name.startswith("device.nccl_on_one_gpu.") and not each.skip}
    check({f"device.nccl_on_one_gpu.{each}" for each in ("abort-in-one-of-two-groups", "hang_jobs", "look_jobs")} <= shared,
          f"ranks that share one GPU run {shared}")
    for program in (bundle / "device_tests").glob("*"):
        sanitized = [each for name, each in steps.items() if name.endswith(f"check.{program.name}")]
        check(len(sanitized) == 2, f"{program.name} runs under {len(sanitized)} sanitizers")
        for each in sanitized:
            only = next(part for part in each.command if part.startswith("--gtest_filter="))
            text = call([program, "--gtest_list_tests", only], env=environment)[1]
            check("EveryDtype" in text and "Assert" not in text and "FailedAllocation" not in text and
                  "Abort" not in text, f"{each.name} would run\n{text}")


def main():
    shutil.rmtree(SCRATCH, ignore_errors=True)
    clean = SCRATCH / "clean"
    clean.mkdir(parents=True)
    code, text = call([TREE / "tools" / "gpu-bundle", "--build", BUILD, "--out", SCRATCH, *OPTIONS])
    print(text)
    if code != 0:
        print(f"tools/gpu-bundle ended with {code}")
        return 1
    archive = pathlib.Path(text.strip().splitlines()[-1])
    check(archive.stat().st_size <= 60e6, f"the archive has {archive.stat().st_size} bytes")
    with tarfile.open(archive) as opened:
        opened.extractall(clean)
    bundle = next(clean.iterdir())

    # Programs of the system by name, and none that compiles.
    programs = SCRATCH / "bin"
    programs.mkdir()
    for name in ("python3", "sh", "env", "cat", "ls"):
        (programs / name).symlink_to(shutil.which(name, path="/usr/bin:/bin"))
    # What the archive brings is taken from it, also here, where Debian has the same.
    environment = {"PATH": str(programs), "HOME": str(SCRATCH / "home"), "XDG_CACHE_HOME": str(SCRATCH / "cache")}
    (SCRATCH / "home").mkdir()
    paths = {**environment, "LD_LIBRARY_PATH": f"{LIBTORCH}/lib"}
    brought = {path.name for path in (bundle / "lib").iterdir()}
    for program in [*(bundle / "bin").glob("lockstep*"), *(bundle / "cpu_tests").iterdir(),
                    *(bundle / "benchmarks").iterdir()]:
        if program.read_bytes()[:4] != b"\x7fELF":
            continue
        loaded = call(["/lib64/ld-linux-x86-64.so.2", "--list", program], env=paths)[1]
        for line in loaded.splitlines():
            name, _, path = line.strip().partition(" => ")
            if name in brought:
                check(path.startswith(f"{bundle}/lib/") or f"/{bundle.name}/" in path,
                      f"{program.name} takes {name} from {path}, not from the bundle")
            elif "not found" in path:
                check("cuda" in name or "cudart" in name, f"{program.name}: {line.strip()}")

    check_plan(bundle, paths)

    out = SCRATCH / "results.json"
    code, text = call([bundle / "run", "--libtorch", LIBTORCH, "--out", out, "--python", PYTHON, "--only",
                       "doctor|^cpu\\.(cuda_bodies_test|01|abort-a-stuck|parity|kill|python)|^device"], env=environment, cwd=SCRATCH)
    print(text)
    report = json.loads(out.read_text())
    results = {each["name"]: each for each in report["results"]}
    check(code == report["exit_code"] == 0, f"./run ended with {code}")
    for each in results.values():
        check(each["status"] == ("skipped" if each["leg"] == "device" and not report["devices"] else each["status"]),
              f"{each['name']} is {each['status']}")
        if each["status"] == "failed":
            failures.append(f"{each['name']} failed: {each['reason']}\n{each['output']}")
        check(each["command"] and each["limit_s"] > 0, f"{each['name']} has no command or no limit")
    for name in ("doctor", "cpu.cuda_bodies_test", "cpu.01-ddp-from-scratch",
                 "cpu.abort-a-stuck-collective", "cpu.kill-a-rank-in-a-collective", "cpu.parity-with-the-cpu",
                 *(["cpu.python_job"] if PYTHON.exists() else [])):
        check(results.get(name, {}).get("status") == "passed", f"{name} has not passed")
    figures = {each["name"]: each for step in results.values() for each in step["figures"]}
    for name in ("abort_stuck_collective", "parity_float64", "next_collective_after_a_death"):
        check(name in figures, f"there is no figure {name}")
    tests = results.get("cpu.cuda_bodies_test", {}).get("tests") or {}
    check(tests.get("passed", 0) >= 10 and tests.get("failed") == 0, f"cuda_bodies_test: {tests}")
    if not report["devices"]:
        device = [each for each in results.values() if each["leg"] == "device"]
        check(len(device) >= 10 and all(each["reason"] == "no GPU" for each in device),
              f"{[(each['name'], each['reason']) for each in device]}")
        check(report["summary"]["skipped_without_gpu"] == len(device), f"the summary is {report['summary']}")
        code, text = call([bundle / "run", "--libtorch", LIBTORCH, "--out", out, "--only", "device.gpu_benchmark",
                           "--require-gpu"], env=environment, cwd=SCRATCH)
        check(code == 4, f"--require-gpu without a GPU ends with {code}: {text}")

    # What fails is reported, and the next step runs.
    (bundle / "cpu_tests" / "aaa_test").write_text("#!/bin/sh\necho from the broken test\nexit 7\n")
    (bundle / "cpu_tests" / "aab_test").write_text("#!/bin/sh\nsleep=1; while :; do :; done\n")
    for name in ("aaa_test", "aab_test"):
        (bundle / "cpu_tests" / name).chmod(0o755)
    code, text = call([bundle / "run", "--libtorch", LIBTORCH, "--out", out, "--only", "^cpu.aa",
                       "--limit-factor", "0.0025"], env=environment, cwd=SCRATCH)
    results = {each["name"]: each for each in json.loads(out.read_text())["results"]}
    check(code == 1, f"./run with a broken test ended with {code}: {text}")
    check(results["cpu.aaa_test"]["reason"] == "exit code 7: from the broken test", f"{results['cpu.aaa_test']}")
    check("did not end within 3 s" in results["cpu.aab_test"]["reason"], f"{results['cpu.aab_test']}")

    # Refusals.
    code, text = call([bundle / "run", "--libtorch", SCRATCH], env=environment, cwd=SCRATCH)
    check(code == 3 and "there is no LibTorch" in text and "pip install torch==" in text, f"{code}: {text}")
    for option in (["--only", "("], ["--frob"]):
        check(call([bundle / "run", *option], env=environment, cwd=SCRATCH)[0] == 2, f"{option} is not refused")
    for failure in failures:
        print("FAILED:", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""device_sessions.py LOCKSTEP [TEST...]: sessions on the GPUs of this machine; exit code 77, which ctest takes for
skipped, where there is none. The ranks share the first GPU where nothing else is said."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS / "sessions"))
import restart_test  # noqa: E402
from faults_test import LOCKSTEP, check, run_tests  # noqa: E402

# Output of the ranks is folded on a busy machine, too.
os.environ["LOCKSTEP_FOLD_TIME"] = "2000"
SCRIPT = str(TESTS / "cuda" / "device_session.cpp")
SHARE = ("--share-gpu", "--gpu-ids", "0")
NCCL = (*SHARE, "--backend", "cpu:gloo,cuda:nccl")
GLOO = (*SHARE, "--backend", "gloo")


def gpus():
    try:
        return len(os.listdir("/proc/driver/nvidia/gpus"))
    except OSError:
        return 0


def run(*options, script=SCRIPT, code=0):
    result = subprocess.run([LOCKSTEP, "run", script, *options], capture_output=True, text=True, timeout=600)
    check(result.returncode == code, f"{options}: exit code {result.returncode}: {result.stdout}{result.stderr}")
    return result.stdout + result.stderr


def expect(text, part):
    check(part in text, f"{part!r} is not in the output: {text}")


def test_a_rank_per_gpu():
    expect(run(), f"rank 0 of {gpus()} on cuda:0, GPU 0, cpu:gloo,cuda:nccl")
    expect(run("--gpu-ids", "0", "--backend", "gloo"), "rank 0 of 1 on cuda:0, GPU 0, gloo")
    expect(run("-n", str(gpus() + 1), code=2), "--share-gpu")


def test_ranks_share_a_gpu():
    expect(run("-n", "2", *SHARE), "rank 1 of 2 on cuda:0, GPU 0, gloo")
    expect(run("-n", "2", *NCCL), "rank 1 of 2 on cuda:0, GPU 0, cpu:gloo,cuda:nccl")
    expect(run("-n", "2", *NCCL, "--all-gpus-visible"), "rank 1 of 2 on cuda:0, GPU 0, cpu:gloo,cuda:nccl")


def test_a_rank_is_back_on_nccl():
    for optimizer in (restart_test.SGD, restart_test.ADAM):
        restart_test.train_with_a_death(optimizer, *NCCL)


def test_a_rank_is_back_on_gloo():
    restart_test.train_with_a_death(restart_test.ADAM, *GLOO)


CPP = """// %%
on_preempt([] {
  auto sum = torch::ones({1}, device);
  dist::all_reduce(sum);
  std::cout << "saved by " << sum.item<int>() << std::endl;
});
auto t = torch::ones({1 << 20}, device);
dist::all_reduce(t);
// %%
if (rank == 0) std::cout << "waits" << std::endl;
if (rank == 0) dist::all_reduce(t);
while (true) t.sum().item<double>();
"""
PYTHON = """# %%
def save():
    total = torch.ones(1, device=device)
    dist.all_reduce(total)
    print("saved by", int(total), flush=True)
on_preempt(save)
t = torch.ones(1 << 20, device=device)
dist.all_reduce(t)
# %%
if rank == 0:
    print("waits", flush=True)
    dist.all_reduce(t)
while True:
    t.sum().item()
"""


def preempt(name, script, *options):
    """SIGTERM comes while a rank waits in a collective and another one computes."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, name)
        path.write_text(script)
        with subprocess.Popen([LOCKSTEP, "run", str(path), "-n", "2", *options], stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as session:
            said = ""
            while not said.endswith("waits\n"):
                line = session.stdout.readline()
                check(line, said)
                said += line
            session.send_signal(signal.SIGTERM)
            said += session.communicate(timeout=600)[0]
        check(session.returncode == 130, f"exit code {session.returncode}: {said}")
        expect(said, "0-1 │ saved by 2\n")


def test_ranks_save_before_the_end():
    for options in (NCCL, GLOO):
        preempt("script.cpp", CPP, *options)


def test_python_ranks_save_before_the_end():
    for options in (NCCL, GLOO):
        preempt("script.py", PYTHON, *options)


def test_lessons_in_python():
    lessons = sorted((TESTS.parent / "scripts" / "lessons" / "python").glob("*.py"))
    check(lessons, "there are lessons")
    for lesson in lessons:
        for options in (NCCL, GLOO):
            run("-n", "2", *options, script=str(lesson))


if __name__ == "__main__":
    if gpus() == 0:
        print("no GPU")
        sys.exit(77)
    sys.exit(run_tests(globals()))

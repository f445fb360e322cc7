#!/usr/bin/env python3
"""Jobs in Python that hang in NCCL, and were started without lockstep. `lockstep look` has to say why, with the Flight
Recorder and NCCL's RAS as evidence, and the jobs have to go on afterwards as they would have.

    look_jobs.py LOCKSTEP DEVICE BACKEND [PY-SPY]     needs a Python with torch

DEVICE: cuda:0 (two ranks share that GPU, and NCCL takes each for a host) or cpu. BACKEND: nccl or gloo. Without PY-SPY
there are no lines of Python. All jobs run at the same time. Exit code 0 if every verdict was right.
"""
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

# Case: what the verdict says, or nothing where no fault may be found; whether the ranks end when they are let go.
CASES = {
    "healthy": (None, True),
    "locked": (r"rank 0 waits in all_reduce #4 of default_pg .*rank 1 waits for a lock", True),
    "skipped": (r"#4 of default_pg is not the same collective on all ranks: .*rank 0 called all_reduce", False),
    "crossed": (r"none of them can continue", False),
    "busy": (r"all ranks have called all_reduce #4 .*the network or a device keeps it", True),
}
ON_DEVICES = ("busy",)
PATIENCE = 60  # seconds until a job that does not come to its hang is an error
BUSY_CYCLES = 80_000_000_000  # more than half a minute
HEALTHY_STEPS = 5000


# ---- A rank ----------------------------------------------------------------------------------------------------------

def run_rank(case, where, backend, folder):
    rank = int(os.environ["RANK"])
    if backend == "nccl":
        os.environ.update(NCCL_HOSTID=f"rank-{rank}", NCCL_SOCKET_IFNAME="lo")
    import torch
    import torch.distributed as dist
    device = torch.device(where)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(backend)
    if backend != "nccl":
        serve_dumps(rank)
    let_go = threading.Event()

    def wait_for_file():
        while not os.path.exists(os.path.join(folder, "go")):
            time.sleep(0.05)
        let_go.set()

    threading.Thread(target=wait_for_file, daemon=True).start()

    def reduce(group=None, count=4):
        values = torch.ones(count, device=device)
        dist.all_reduce(values, group=group)
        return values.sum().item()  # the host waits for the device

    def healthy():
        torch.manual_seed(1)
        net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).to(device))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        batches = torch.Generator().manual_seed(rank)
        for step in range(HEALTHY_STEPS):
            optimizer.zero_grad()
            net(torch.randn(8, 64, generator=batches).to(device)).square().mean().backward()
            optimizer.step()
            if step == 100:
                sys.stdout.write(f"TRAINS {rank} {step}\n")
                sys.stdout.flush()
        return b"".join(each.detach().cpu().numpy().tobytes() for each in net.parameters()).hex()[:4096]

    def locked():
        if rank == 1:
            let_go.wait()
        return reduce()

    def skipped():
        if rank == 0:
            reduce(count=1 << 24)
        dist.barrier()
        threading.Event().wait()  # where the transport takes both for one

    def crossed():
        first, second = dist.new_group(), dist.new_group()
        reduce(first)  # makes the communicators
        reduce(second)
        for group in (second, first) if rank == 1 else (first, second):
            reduce(group)

    def busy():
        if rank == 1:
            torch.cuda._sleep(BUSY_CYCLES)
        return reduce()

    for _ in range(3):
        reduce()
    sys.stdout.write(f"READY {rank} {os.getpid()}\n")
    sys.stdout.flush()
    result = locals()[case]()
    sys.stdout.write(f"DONE {rank} {result}\n")
    sys.stdout.flush()


def serve_dumps(rank):
    """What ProcessGroupNCCL does for its ranks: writes a dump when somebody writes into the pipe."""
    import torch
    pipe = f"{os.environ['TORCH_NCCL_DEBUG_INFO_PIPE_FILE']}{rank}.pipe"
    os.mkfifo(pipe)

    def serve():
        while True:
            with open(pipe, "rb") as asked:
                asked.read(1)
            with open(f"{os.environ['TORCH_NCCL_DEBUG_INFO_TEMP_FILE']}{rank}", "wb") as file:
                file.write(torch._C._distributed_c10d._dump_fr_trace())

    threading.Thread(target=serve, daemon=True).start()


# ---- A job and looks at it -------------------------------------------------------------------------------------------

def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


class Job:
    """A job of torchrun, whose environment asks for the evidence that a person would ask for."""

    def __init__(self, case, where, backend, folder):
        folder.mkdir()
        self.folder = folder
        dumps = str(folder / "dump-")
        environment = {
            **os.environ, "OMP_NUM_THREADS": "1", "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000", "TORCH_FR_BUFFER_SIZE": "2000",
            "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": dumps, "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": dumps,
            "NCCL_RAS_ENABLE": "1", "NCCL_RAS_ADDR": f"localhost:{free_port()}"}
        self.launcher = subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", __file__, "--rank", case,
             where, backend, str(folder)], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, start_new_session=True)
        self.pids = {}
        try:
            for _ in range(2):
                self.pids.update([self.line("READY")])
        except BaseException:
            self.end()
            raise

    def line(self, word):
        """The rank and what stands behind it, of the next line that begins so."""
        for line in self.launcher.stdout:
            if line.startswith(word):
                _, rank, rest = line.split(maxsplit=2)
                return int(rank), rest.strip()
        raise RuntimeError(f"the job has ended without a line {word}")

    def let_go(self):
        """What the ranks print at their end."""
        (self.folder / "go").touch()
        results = dict(self.line("DONE") for _ in range(2))
        if self.launcher.wait() != 0:
            raise RuntimeError(f"the job has ended with exit code {self.launcher.returncode}")
        return results

    def runs(self):
        return all(os.path.exists(f"/proc/{pid}") for pid in self.pids.values())

    def end(self):
        try:
            os.killpg(self.launcher.pid, signal.SIGTERM)
        except ProcessLookupError:
            pass
        self.launcher.wait()
        self.launcher.stdout.close()


class Look:
    def __init__(self, lockstep, job, options):
        begin = time.monotonic()
        done = subprocess.run([lockstep, "look", str(job.launcher.pid), "--hang-timeout", "1", *options, "--json"],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.seconds = time.monotonic() - begin
        self.code = done.returncode
        events = [json.loads(line) for line in done.stdout.splitlines()]
        self.text = done.stderr + "".join(f"{each}\n" for each in events if each["event"] != "stack")
        self.faults = [each["message"] for each in events if each["event"] == "finding" and each["severity"] == "fault"]
        self.dumps = sum(each["dumps"] for each in events if each["event"] == "files")
        self.problems = [problem for each in events if each["event"] == "job" for problem in each["problems"]]


def check(case, lockstep, where, backend, options, folder):
    """Raises RuntimeError with what is wrong; returns what the verdict was."""
    verdict, ends = CASES[case]
    evidence = 3 if backend == "nccl" else 2  # a dump of each rank, and the answer of RAS
    job = Job(case, where, backend, folder / case)
    try:
        if verdict is None:
            for _ in job.pids:
                job.line("TRAINS")
            looks = []
            while len(looks) < 3 and job.runs():
                looks.append(Look(lockstep, job, options))
                if looks[-1].code != 0 and job.runs():
                    raise RuntimeError(f"a job that runs is at fault:\n{looks[-1].text}")
            looked_at = job.let_go()
            alone = Job(case, where, backend, folder / "alone")
            try:
                if looked_at != alone.let_go():
                    raise RuntimeError("the looks have changed what the job computes")
            finally:
                alone.end()
            return f"no fault in {len(looks)} looks, of {', '.join(f'{each.seconds:.1f}' for each in looks)} s; same bits"
        end = time.monotonic() + PATIENCE
        while True:  # the ranks get to their waits some time after they have said that they are ready
            look = Look(lockstep, job, options)
            if look.code != 0 or time.monotonic() > end or not job.runs():
                break
        told = f"exit code {look.code}, {look.dumps} dumps, problems {look.problems}\n{look.text}"
        if look.code != 1 or not any(re.search(verdict, each) for each in look.faults):
            raise RuntimeError(f"expected /{verdict}/: {told}")
        if look.dumps != evidence:
            raise RuntimeError(f"expected {evidence} dumps: {told}")
        if not job.runs():
            raise RuntimeError(f"the job did not outlive the look: {told}")
        if ends:
            job.let_go()
        elif not (again := Look(lockstep, job, options)).faults:
            raise RuntimeError(f"a second look finds no fault:\n{again.text}")
        return f"{look.faults[-1]}  ({look.dumps} dumps, {look.seconds:.1f} s)"
    finally:
        job.end()


def main():
    if sys.argv[1] == "--rank":
        return run_rank(*sys.argv[2:])
    lockstep, where, backend, *py_spy = sys.argv[1:]
    options = ["--py-spy", *py_spy] if py_spy else []
    wrong = []

    def run(case, folder):
        try:
            print(f"---- {case}: {check(case, lockstep, where, backend, options, folder)}")
        except Exception as error:
            wrong.append(case)
            print(f"---- {case}: WRONG: {type(error).__name__}: {error}")

    with tempfile.TemporaryDirectory(prefix="ls", dir="/tmp") as name:
        jobs = [threading.Thread(target=run, args=(case, pathlib.Path(name)))
                for case in CASES if case not in ON_DEVICES or where != "cpu"]
        for job in jobs:
            job.start()
        for job in jobs:
            job.join()
    print("WRONG:" if wrong else "all verdicts were right", *wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

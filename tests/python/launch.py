"""Starts the ranks of a job on this machine with torchrun's variables: launch.py N SCRIPT ARGUMENT…, where SCRIPT is
of Python, or a program. Ranks of a script are copies of this process, which has imported torch for all of them: a test
that does not look at torchrun itself takes a fraction of the time. After a failure it ends the other ranks; with
LAUNCH_GOES_ON=1 it waits for them, as srun does without --kill-on-bad-exit. With NNODES, NODE_RANK, MASTER_ADDR and
MASTER_PORT it starts those of one of several hosts."""

import gc
import os
import signal
import socket
import sys
import time
import types


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def import_torch():
    """Without the entry points of packages, which are for ranks."""
    wanted = os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD")
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    import torch.distributed  # noqa: F401
    if wanted is None:
        del os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"]
    else:
        os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = wanted


def run_script(path, arguments):
    """As `python PATH ARGUMENT…`, with torch."""
    module = main_module([path, *arguments], os.path.dirname(os.path.abspath(path)))
    module.__file__ = path
    with open(path, encoding="utf-8") as file:
        code = compile(file.read(), path, "exec")
    exec(code, module.__dict__)


def main_module(words, folder):
    """Of a program that runs in place of this one. `folder`: the first in which it looks for modules."""
    import torch
    if torch._is_device_backend_autoload_enabled():
        torch._import_device_backends()
    sys.argv, sys.path[0] = words, folder
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    return module


def start_rank(variables, command):
    """Its process id; does not return in the process of the rank of a script before that has ended."""
    script = command[0].endswith(".py")
    begun, begins = os.pipe()
    if pid := os.fork():
        os.close(begins)
        os.read(begun, 1)  # until it has a process group, by which it is ended
        os.close(begun)
        return pid
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.close(begins)
    os.environ.update(variables)
    if not script:
        os.execvp(command[0], command)
    run_script(command[0], command[1:])
    sys.exit()


def code_of(rank):
    """Its exit code or signal, None while it runs. It stays a zombie."""
    end = os.waitid(os.P_PID, rank, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return None if end is None else end.si_status


def main():
    number = int(sys.argv[1])
    first = number * int(os.environ.get("NODE_RANK", "0"))
    common = {"WORLD_SIZE": str(number * int(os.environ.get("NNODES", "1"))), "LOCAL_WORLD_SIZE": str(number)}
    asked = []
    if sys.argv[2].endswith(".py"):
        import_torch()
        gc.freeze()  # the end of a rank does not go through torch's objects again, which takes half a second
    if "NNODES" not in os.environ:
        common.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda number, _: asked.append(number))
    ranks = [start_rank({**common, "RANK": str(first + i), "LOCAL_RANK": str(i)}, sys.argv[2:]) for i in range(number)]
    goes_on = "LAUNCH_GOES_ON" in os.environ
    while not asked:
        time.sleep(0.1)  # as torchrun
        codes = [code_of(each) for each in ranks]
        if None not in codes or (any(codes) and not goes_on):
            break
    # Nobody knows what a rank died of once its parent has waited for it, and a busy machine needs a while to tell the
    # shell that it has died.
    if not asked:
        time.sleep(2 if any(codes) else 0)
    for each in ranks:
        if code_of(each) is None:
            os.killpg(each, signal.SIGTERM)  # with the workers of its data loader, as torchrun does
    os._exit(1 if any([os.waitpid(each, 0)[1] for each in ranks]) else 0)


if __name__ == "__main__":
    main()

"""One rank whose threads run Python all the time, in code that comes and goes. Ends with its standard input. With an
argument it computes in one call that keeps the interpreter's lock, and does not end."""

import sys
import threading

import torch
import torch.distributed as dist

import lockstep

ended = threading.Event()


def work(number):
    while not ended.is_set():
        names = {}
        exec("def down(n):\n" + "    pass\n" * (number % 7) + "    return sum(down(n - 1) for _ in range(1)) if n else 1", names)
        names["down"](25)
        number += 1


def end():
    sys.stdin.read()
    ended.set()


def long_call():
    print("runs", flush=True)
    return sum(range(1 << 62))


def main():
    threads = [threading.Thread(target=end), *(threading.Thread(target=work, args=(number,)) for number in range(3))]
    for each in threads:
        each.start()
    print("runs", flush=True)
    work(3)
    for each in threads:
        each.join()


dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
sys.setswitchinterval(1e-5)
lockstep.ranks()  # starts the agent
long_call() if len(sys.argv) > 1 else main()

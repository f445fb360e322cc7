"""The Python side of compare.py: the same models, variants and JSON as step_time.cpp, with PyTorch's DistributedDataParallel."""
import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class Many(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(16, 16) for _ in range(100)])

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def mlp():
    return nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
                         nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))


def conv(i, o, size, stride):
    return nn.Conv2d(i, o, size, stride, size // 2, bias=False)


class Block(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.c1, self.b1 = conv(i, o, 3, stride), nn.BatchNorm2d(o)
        self.c2, self.b2 = conv(o, o, 3, 1), nn.BatchNorm2d(o)
        changes = stride != 1 or i != o
        self.short = nn.Sequential(conv(i, o, 1, stride), nn.BatchNorm2d(o)) if changes else None

    def forward(self, x):
        y = self.b2(self.c2(torch.relu(self.b1(self.c1(x)))))
        return torch.relu(y + (x if self.short is None else self.short(x)))


class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(conv(3, 64, 3, 1), nn.BatchNorm2d(64), nn.ReLU())
        self.blocks = nn.Sequential(Block(64, 64, 1), Block(64, 128, 2), Block(128, 256, 2), Block(256, 256, 1))
        self.fc = nn.Linear(256, 10)

    def forward(self, x):
        return self.fc(self.blocks(self.stem(x)).mean((2, 3)))


class EncoderLayer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.inp, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)

    def forward(self, x):
        n, t, d = x.shape
        q, k, v = self.inp(x).view(n, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v)
        y = self.n1(x + self.out(y.transpose(1, 2).reshape(n, t, d)))
        return self.n2(y + self.down(torch.relu(self.up(y))))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(4096, 256), nn.Parameter(torch.randn(128, 256) * 0.02)
        self.layers = nn.ModuleList([EncoderLayer(256, 4) for _ in range(4)])
        self.head = nn.Linear(256, 4096)

    def forward(self, x):
        y = self.tok(x) + self.pos
        for layer in self.layers:
            y = layer(y)
        return self.head(y).flatten(0, 1)


def data_of(model, batch):
    if model == "many":
        b = batch or 32
        return torch.randn(b, 16), torch.randint(16, (b,))
    if model == "mlp":
        b = batch or 64
        return torch.randn(b, 784), torch.randint(10, (b,))
    if model == "conv":
        b = batch or 32
        return torch.randn(b, 3, 32, 32), torch.randint(10, (b,))
    b = batch or 8
    return torch.randint(4096, (b, 128)), torch.randint(4096, (b * 128,))


MODELS = {"many": Many, "mlp": mlp, "conv": Conv, "transformer": Transformer}


def wait_for_device(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


class Runner:
    def __init__(self, variant, a):
        torch.manual_seed(0)
        self.module = MODELS[a.model]().to(a.device)
        self.net = self.module
        if variant != "local":
            options = {"gradient_as_bucket_view": variant == "view"}
            if a.bucket_mb:
                options["bucket_cap_mb"] = a.bucket_mb
            self.net = DDP(self.module, **options)
        self.micro_steps = 4 if variant.startswith("accum") else 1
        self.always = variant == "accum_sync"
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=1e-3, momentum=0.9)
        self.total, self.forward, self.backward, self.update = [], [], [], []

    def step(self, x, y, keep):
        begin = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        forward = backward = 0.0
        for micro in range(self.micro_steps):
            if self.micro_steps > 1:
                self.net.require_backward_grad_sync = self.always or micro + 1 == self.micro_steps
            start = time.perf_counter()
            loss = F.cross_entropy(self.net(x), y)
            wait_for_device(x.device)
            middle = time.perf_counter()
            loss.backward()
            wait_for_device(x.device)
            end = time.perf_counter()
            forward += middle - start
            backward += end - middle
        update = time.perf_counter()
        self.optimizer.step()
        wait_for_device(x.device)
        if keep:
            now = time.perf_counter()
            self.update.append((now - update) * 1e3)
            self.total.append((now - begin) * 1e3 / self.micro_steps)
            self.forward.append(forward * 1e3 / self.micro_steps)
            self.backward.append(backward * 1e3 / self.micro_steps)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--init", required=True)
    parser.add_argument("--model", choices=MODELS, default="mlp")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--batch", type=int, default=0)
    parser.add_argument("--bucket-mb", type=float, default=0)
    parser.add_argument("--variants", default="local,ddp,view")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pin", action="store_true")
    a = parser.parse_args()
    if a.pin:
        cpus = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cpus[a.rank % len(cpus)]})
    torch.set_num_threads(1)
    if a.device != "cpu":
        torch.cuda.set_device(a.device)
    dist.init_process_group("gloo" if a.device == "cpu" else "cpu:gloo,cuda:nccl", init_method=a.init, rank=a.rank, world_size=a.ranks)
    torch.manual_seed(100 + a.rank)
    x, y = (each.to(a.device) for each in data_of(a.model, a.batch))
    runners, resident = {}, {}
    for name in a.variants.split(","):
        before = resident_bytes()
        runners[name] = Runner(name, a)
        for _ in range(5):
            runners[name].step(x, y, False)
        resident[name] = resident_bytes() - before
    for _ in range(a.blocks):
        for runner in runners.values():
            dist.barrier()
            for _ in range(max(1, a.steps // a.blocks)):
                runner.step(x, y, True)
    median = statistics.median
    result = {"program": "python", "torch": torch.__version__, "model": a.model, "ranks": a.ranks, "batch": len(x),
              "resident_bytes": resident,
              "parameters": sum(p.numel() for p in next(iter(runners.values())).module.parameters()),
              "variants": {name: {"ms": median(r.total), "min_ms": min(r.total), "forward_ms": median(r.forward),
                                  "backward_ms": median(r.backward), "optimizer_ms": median(r.update)}
                           for name, r in runners.items()}}
    flat, alone = torch.zeros(result["parameters"], device=x.device), []
    for i in range(15):
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(flat)
        wait_for_device(x.device)
        if i > 4:
            alone.append((time.perf_counter() - start) * 1e3)
    result["reduction_alone_ms"] = median(alone)
    dist.barrier()
    if a.rank == 0:
        print(json.dumps(result), flush=True)
    dist.barrier()
    os._exit(0)  # torch 2.11 with Gloo now and then aborts in the interpreter's teardown


if __name__ == "__main__":
    main()

"""A small model that is given its samples in one of several ways, for compare_test.py: compare_small.py HOW [SEED]. The
batch of a step is the same on one rank and on several. It knows nothing of Lockstep."""

import collections.abc
import dataclasses
import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn

HOW, SEED = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0
RANK, WORLD_SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


@dataclasses.dataclass
class Batch:
    fields: collections.abc.Mapping
    again: object = None  # itself


class Opaque:
    def __init__(self, x):
        self.x = x


class Spectrum(nn.Module):
    def forward(self, x):
        return torch.fft.rfft(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.spectrum = nn.Linear(6, 4), Spectrum()

    def forward(self, given):
        x = given.fields["x"] if HOW == "nested" else given.x if HOW == "opaque" else given
        y = self.linear(x)
        return y + self.spectrum(y).abs().sum(-1, keepdim=True) if HOW == "complex" else y


class Wrapper(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = Model()

    def forward(self, given):
        return self.model(given)


def given(x):
    if HOW == "nested":
        batch = Batch(collections.UserDict(x=x))
        batch.again = batch
        return batch
    return Opaque(x) if HOW == "opaque" else x


def main():
    torch.set_num_threads(1)
    if WORLD_SIZE > 1:
        dist.init_process_group("gloo")
    if HOW == "unwritable" and RANK == 1:  # as on a full disk, on one rank
        os.mkdir(os.path.join(os.environ["LOCKSTEP_COMPARE"], "rank-1.rec"))
    torch.manual_seed(SEED)
    models = [Wrapper() if HOW == "wrapped" else Model()]
    if HOW == "two models":
        models.append(nn.Linear(6, 4))
    parameters = [each for model in models for each in model.parameters()]
    if WORLD_SIZE > 1 and HOW != "two losses":  # DistributedDataParallel allows one backward for each forward
        models = [nn.parallel.DistributedDataParallel(model) for model in models]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    generator = torch.Generator().manual_seed(1000)
    for step in range(3):
        batch = torch.randn(8, 6, generator=generator).chunk(WORLD_SIZE)[RANK]
        optimizer.zero_grad()
        if HOW == "two losses":
            output = models[0](batch)
            output.square().mean().backward(retain_graph=True)
            output.exp().mean().backward()
            for each in parameters if WORLD_SIZE > 1 else ():
                dist.all_reduce(each.grad.div_(WORLD_SIZE))
        else:
            in_order = models if step == 0 else reversed(models)
            sum(model(given(batch)).square().mean() for model in in_order).backward()
        optimizer.step()
    if WORLD_SIZE > 1:
        dist.destroy_process_group()


main()

"""The same training twice, without the inspectors and with all of them: the bits have to be the same."""

import os
import random

import torch
from torch.nn.parallel import DistributedDataParallel

import job
import lockstep
from job import case


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(20, 8)
        self.norm = torch.nn.BatchNorm1d(8)
        self.block = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.head = torch.nn.Linear(8, 20)

    def forward(self, words):
        x = self.norm(self.embed(words).transpose(1, 2)).transpose(1, 2)
        return self.head(self.block(x))


def train(rank, look):
    torch.manual_seed(3)
    random.seed(3)
    net = DistributedDataParallel(Net())
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    torch.manual_seed(100 + rank)
    reports, losses = [], []

    def step():
        optimizer.zero_grad()
        words = torch.randint(20, (4, 6))
        loss = torch.nn.functional.cross_entropy(net(words).flatten(0, 1), words.flatten())
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss

    watches = []
    if look:
        watches = [lockstep.watch(net, optimizer, every=1), lockstep.watch_grads(net), lockstep.nan_watch(net, optimizer),
                   lockstep.record_operators(), lockstep.watch_memory()]
    for number in range(4):
        if look:
            reports += [lockstep.verify("rng"), lockstep.data(torch.utils.data.RandomSampler(range(10))),
                        lockstep.memory(net=net), lockstep.ranks()]
            reports.append(lockstep.nan_trace(step, net, optimizer, scheduler))
            reports.append(lockstep.first_difference(step, net, optimizer, scheduler, repeat=True))
            if number == 2:
                reports.append(lockstep.time_sync(step, net, optimizer, scheduler, warm_up=1, steps=1))
        losses.append(step().detach())
        if look:
            reports += [lockstep.grads(net), lockstep.grads(net, local=True), lockstep.verify(net, method="broadcast"),
                        lockstep.verify(net, method="all_gather"), lockstep.verify(optimizer, model=net)]
    if look:
        reports.append(lockstep.timeline(os.devnull))
    for each in watches:
        each.close()
    kept = [*losses, *net.parameters(), *net.buffers(), *(p.grad for p in net.parameters()), torch.get_rng_state(),
            torch.tensor(random.getstate()[1])]
    kept += [value for state in optimizer.state.values() for value in state.values()]
    return [each.clone() for each in kept], reports


@case
def identical(rank, size):
    without, _ = train(rank, look=False)
    looked, reports = train(rank, look=True)
    assert len(without) == len(looked)
    assert all(torch.equal(a, b) for a, b in zip(without, looked)), [torch.equal(a, b) for a, b in zip(without, looked)]
    return [each for each in reports if each.findings and each.findings[0].inspector not in ("verify", "data")]


if __name__ == "__main__":
    job.main()

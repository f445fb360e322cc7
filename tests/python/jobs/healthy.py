"""Training that is right, with what looks like a fault: the healthy twins of tests/faults/healthy that Python code
meets."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import job
import lockstep
from faults import Net, batch, seeded
from job import case

job.CASES.clear()  # those of faults.py


def trained(net, optimizer, rank, step):
    """The reports of a step with everything on."""
    with lockstep.watch_grads(net):
        torch.manual_seed(100 + rank)
        step()
        reports = [lockstep.grads(net)]
        optimizer.step()
    return reports + [lockstep.verify(net), lockstep.verify(optimizer, model=net)]


@case
def dropout(rank, size):
    net = DistributedDataParallel(seeded(1, lambda: torch.nn.Sequential(
        torch.nn.Linear(4, 16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 2))))
    optimizer = torch.optim.Adam(net.parameters())
    return trained(net, optimizer, rank, lambda: net(torch.ones(4, 4)).square().mean().backward())


@case
def frozen_layers(rank, size):
    module = seeded(1)
    for parameter in module.fc1.parameters():
        parameter.requires_grad_(False)
    net = DistributedDataParallel(module)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    return trained(net, optimizer, rank, lambda: net(torch.randn(4, 4)).square().mean().backward())


@case
def tied_weights(rank, size):
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(10, 4)
            self.head = torch.nn.Linear(4, 10, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, words):
            return self.head(self.embed(words))

    net = DistributedDataParallel(seeded(1, Tied))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def step():
        words = torch.randint(10, (8,))
        torch.nn.functional.cross_entropy(net(words), words).backward()

    return trained(net, optimizer, rank, step)


@case
def clipped_gradients(rank, size):
    net = DistributedDataParallel(seeded(1))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def step():
        (net(torch.randn(4, 4)).square().mean() * 100).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)

    return trained(net, optimizer, rank, step)


@case
def accumulation(rank, size):
    net = DistributedDataParallel(seeded(1))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def step():
        with net.no_sync():
            for _ in range(3):
                (net(torch.randn(4, 4)).square().mean() / 4).backward()
        (net(torch.randn(4, 4)).square().mean() / 4).backward()

    return trained(net, optimizer, rank, step)


@case
def buffers_after_forward(rank, size):
    net = DistributedDataParallel(seeded(1, lambda: torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8))))
    torch.manual_seed(100 + rank)
    for _ in range(2):
        net(torch.randn(8, 4)).square().mean().backward()
    return lockstep.verify(net)


@case
def unused_on_one_rank(rank, size):
    class Heads(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.boxes, self.masks = torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)

        def forward(self, x, has_masks):
            loss = self.boxes(x).square().mean()
            return loss + self.masks(x).square().mean() if has_masks else loss

    net = DistributedDataParallel(seeded(1, Heads), find_unused_parameters=True)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    return trained(net, optimizer, rank, lambda: net(torch.randn(4, 4), rank == 0).backward())


@case
def watched_training(rank, size):
    net = DistributedDataParallel(seeded(1))
    optimizer = torch.optim.Adam(net.parameters())
    with lockstep.watch(net, optimizer, every=2, raise_on_fault=True), lockstep.nan_watch(net, raise_on_fault=True):
        torch.manual_seed(100 + rank)
        for _ in range(6):
            optimizer.zero_grad()
            net(torch.randn(4, 4)).square().mean().backward()
            optimizer.step()
    return [lockstep.verify(net), lockstep.verify(optimizer)]


@case
def schedule_of_the_learning_rate(rank, size):
    net = DistributedDataParallel(seeded(1))
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    torch.manual_seed(100 + rank)
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.randn(4, 4)).square().mean().backward()
        optimizer.step()
        scheduler.step()
    return [lockstep.verify(net), lockstep.verify(optimizer), lockstep.verify(scheduler.state_dict(), name="scheduler")]


@case
def repeats_itself(rank, size):
    net = DistributedDataParallel(seeded(1, lambda: torch.nn.Sequential(
        torch.nn.Linear(4, 16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 2))))
    optimizer = torch.optim.Adam(net.parameters())
    x = batch(rank, 4, 4)

    def step():
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()

    return [lockstep.first_difference(step, net, optimizer, repeat=True), lockstep.nan_trace(step, net, optimizer),
            lockstep.verify(net), lockstep.verify(optimizer)]


@case
def divided_data(rank, size):
    data = torch.utils.data.TensorDataset(torch.arange(101))
    sampler = torch.utils.data.DistributedSampler(data)
    loader = torch.utils.data.DataLoader(data, batch_size=8, sampler=sampler)
    before = torch.get_rng_state()
    reports = [lockstep.data(loader, epoch=0)]
    sampler.set_epoch(1)
    reports.append(lockstep.data(sampler, epoch=1))
    assert sampler.epoch == 1 and torch.equal(before, torch.get_rng_state())
    return reports


@case
def two_optimizers(rank, size):
    left, right = DistributedDataParallel(seeded(1)), DistributedDataParallel(seeded(2))
    of_left, of_right = torch.optim.SGD(left.parameters(), 0.1), torch.optim.SGD(right.parameters(), 0.1)
    with lockstep.watch(left, of_left, every=2, raise_on_fault=True) as watching, \
            lockstep.watch(right, of_right, every=2, raise_on_fault=True):
        torch.manual_seed(100 + rank)
        for _ in range(4):
            for net, optimizer in ((left, of_left), (right, of_right)):
                optimizer.zero_grad()
                net(torch.randn(4, 4)).square().mean().backward()
                optimizer.step()
        assert watching.cost()["steps"] == 4, watching.cost()
    return [lockstep.verify(left), lockstep.verify(right)]


if __name__ == "__main__":
    job.main()

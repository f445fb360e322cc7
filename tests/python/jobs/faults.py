"""Faults of tests/faults, as Python training code has them: a case has the name of the session script with the same
fault, whose `expect:` line says what has to be found."""

import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import job
import lockstep
from job import case


class Net(torch.nn.Module):
    def __init__(self, bias=True, classes=2):
        super().__init__()
        self.fc1 = torch.nn.Linear(4, 8)
        self.fc2 = torch.nn.Linear(8, classes, bias=bias)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


def seeded(seed, module=Net, **options):
    torch.manual_seed(seed)
    return module(**options)


def batch(rank, *shape):
    torch.manual_seed(100 + rank)
    return torch.randn(*shape)


# ---- verify --------------------------------------------------------------------------------------------------------


@case
def verify_drifted_parameter(rank, size):
    net = DistributedDataParallel(seeded(1))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    torch.manual_seed(100 + rank)
    start = steps_so_far()
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.randn(4, 4)).square().mean().backward()
        optimizer.step()
        lockstep.step()
    if rank == 0:
        with torch.no_grad():
            net.module.fc2.weight.clamp_(-0.1, 0.1)
    return lockstep.verify(net, step=steps_so_far() - start)


def steps_so_far():
    from lockstep.core import _library

    return _library.call("steps")["steps"]


@case
def verify_buffers(rank, size):
    class WithNorm(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(4, 8)
            self.bn = torch.nn.BatchNorm1d(8)

        def forward(self, x):
            return self.bn(self.fc(x))

    net = seeded(1, WithNorm)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    torch.manual_seed(100 + rank)
    for _ in range(2):
        optimizer.zero_grad()
        net(torch.randn(8, 4)).square().sum().backward()
        for parameter in net.parameters():
            dist.all_reduce(parameter.grad, dist.ReduceOp.SUM)
            parameter.grad /= size
        optimizer.step()
    return lockstep.verify(net)


@case
def verify_called_on_one_rank(rank, size):
    net = torch.nn.Linear(4, 2)
    if rank == 0:
        return lockstep.verify(net, deadline=0.5)


@case
def verify_dtype(rank, size):
    net = seeded(1)
    if rank == 1:
        net.fc2.half()
    return lockstep.verify(net)


@case
def verify_eval_mode(rank, size):
    net = DistributedDataParallel(seeded(1))
    if rank == 0:
        net.eval()
    return lockstep.verify(net)


@case
def verify_forgotten_load(rank, size):
    checkpoint = seeded(7).state_dict()
    net = DistributedDataParallel(seeded(1))
    if rank == 0:
        net.module.load_state_dict(checkpoint)
    return lockstep.verify(net)


@case
def verify_generator(rank, size):
    torch.manual_seed(5)
    torch.randn(4)
    if rank == 1:
        torch.randint(100, (1,))
    return lockstep.verify("rng")


@case
def verify_learning_rate(rank, size):
    net = seeded(1)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    if rank == 2:
        for group in optimizer.param_groups:
            group["lr"] *= 0.1
    return lockstep.verify(optimizer)


@case
def verify_missing_parameter(rank, size):
    net = seeded(1, bias=rank != 2)
    return lockstep.verify(net)


@case
def verify_optimizer_state(rank, size):
    net = seeded(1)
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(2):
        optimizer.zero_grad()
        net(torch.ones(4, 4)).square().sum().backward()
        optimizer.step()
    if rank == 1:
        optimizer.state.clear()
    return lockstep.verify(optimizer)


@case
def verify_order(rank, size):
    net = torch.nn.ModuleDict({name: torch.nn.Linear(4, 4) for name in
                               (("depth", "colour") if rank == 2 else ("colour", "depth"))})
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.fill_(0.1 if parameter.dim() == 2 else 0)
    return lockstep.verify(net)


@case
def verify_seeds_by_rank(rank, size):
    torch.manual_seed(100 + rank)
    torch.randint(32, (2,))
    return lockstep.verify("rng")


@case
def verify_shape(rank, size):
    net = seeded(1, classes=9 if rank == 1 else 10)
    return lockstep.verify(net)


@case
def verify_skipped_step(rank, size):
    net = DistributedDataParallel(seeded(1))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    start = steps_so_far()
    found = []
    torch.manual_seed(100 + rank)
    with lockstep.watch(net, every=1, name="net", raise_on_fault=True):
        for step in range(1, 5):
            optimizer.zero_grad()
            net(torch.randn(4, 4)).square().mean().backward()
            # The session script leaves out step 2: its watch looks when the next backward ends, this one after each step.
            if not (rank == 2 and step == 3):
                optimizer.step()
            try:
                lockstep.step()
            except lockstep.FaultFound as error:
                found += [each for each in error.report.findings if each.is_fault]
    # Steps are those of the process; the script's own begin at `start`.
    for each in found:
        each.json["step"] -= start
    return found


# ---- grads ---------------------------------------------------------------------------------------------------------


@case
def grads_averaged_twice(rank, size):
    net = seeded(1)
    with lockstep.watch_grads(net):
        net(batch(rank, 4, 4)).square().mean().backward()
        for parameter in net.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= size * size
        return lockstep.grads(net)


@case
def grads_not_reduced(rank, size):
    net = seeded(1)
    with lockstep.watch_grads(net):
        net(batch(rank, 4, 4)).square().mean().backward()
        for parameter in net.fc1.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= size
        return lockstep.grads(net)


@case
def grads_nan_of_one_rank(rank, size):
    net = DistributedDataParallel(seeded(1))
    with lockstep.watch_grads(net):
        x = batch(rank, 4, 4)
        if rank == 1:
            x[2][1] = float("nan")
        net(x).square().mean().backward()
        return lockstep.grads(net, step=1)


@case
def grads_summed(rank, size):
    net = DistributedDataParallel(seeded(1))

    def hook(_, bucket):
        work = dist.all_reduce(bucket.buffer(), async_op=True)
        return work.get_future().then(lambda future: future.value()[0])

    net.register_comm_hook(None, hook)
    with lockstep.watch_grads(net):
        net(batch(rank, 4, 4)).square().mean().backward()
        return lockstep.grads(net, step=1)


@case
def grads_same_batch(rank, size):
    net = DistributedDataParallel(seeded(1))
    with lockstep.watch_grads(net):
        torch.manual_seed(42)
        net(torch.randn(4, 4)).square().mean().backward()
        return lockstep.grads(net, local=True)


@case
def grads_stale(rank, size):
    net = seeded(1)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    torch.manual_seed(100 + rank)
    with lockstep.watch_grads(net):
        for step in range(2):
            try:
                if rank == 1 and step == 1:
                    raise OSError("a broken image")
                optimizer.zero_grad()
                net(torch.randn(4, 4)).square().mean().backward()
            except OSError:
                pass
            for parameter in net.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= size
            optimizer.step()
        return lockstep.grads(net)


@case
def grads_unused(rank, size):
    net = torch.nn.ModuleDict({"fc": torch.nn.Linear(4, 4), "aux": torch.nn.Linear(4, 2)})
    for parameter in net.parameters():
        torch.nn.init.constant_(parameter, 0.1)
    net["fc"](torch.ones(2, 4) * (rank + 1)).sum().backward()
    for parameter in net["fc"].parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= size
    return lockstep.grads(net)


# ---- data ----------------------------------------------------------------------------------------------------------


@case
def data_own_shuffle(rank, size):
    torch.manual_seed(42 + rank)
    indices = torch.randperm(100)[rank::size]
    return lockstep.data(indices, size=100)


@case
def data_wrong_share(rank, size):
    configured_rank = 1 if rank == 2 else rank
    indices = torch.arange(configured_rank, 90, size)
    return lockstep.data(indices, size=90)


@case
def data_forgotten_set_epoch(rank, size):
    sampler = torch.utils.data.DistributedSampler(range(100))
    return lockstep.data(sampler, epoch=1)


@case
def data_uneven(rank, size):
    indices = list(range(rank * 26, min(70, rank * 26 + 26)))
    return lockstep.data(indices, batch_size=8, size=70)


# ---- ranks ---------------------------------------------------------------------------------------------------------


@case
def ranks_default_dtype(rank, size):
    if rank == 2:
        torch.set_default_dtype(torch.float64)
    report = lockstep.ranks()
    torch.set_default_dtype(torch.float32)
    return report


@case
def ranks_environment(rank, size):
    if rank == 1:
        os.environ["NCCL_ALGO"] = "Ring"
    report = lockstep.ranks()
    os.environ.pop("NCCL_ALGO", None)
    return report


# ---- nan -----------------------------------------------------------------------------------------------------------


@case
def nan_in_the_data(rank, size):
    net = DistributedDataParallel(seeded(1))
    x = torch.ones(4, 4)
    if rank == 1:
        x[3][0] = float("nan")
    return lockstep.nan_trace(lambda: net(x).square().mean().backward(), net)


@case
def nan_log_of_zero(rank, size):
    net = seeded(1, lambda: torch.nn.Linear(4, 3))

    def step():
        logits = net(torch.ones(2, 4)) * (1e4 if rank == 1 else 1.0)
        p = torch.softmax(logits, 1)
        log_p = torch.log(p)  # <- here
        entropy = -(p * log_p).sum()
        entropy.backward()

    return lockstep.nan_trace(step, net)


@case
def nan_sqrt_backward(rank, size):
    net = seeded(1, lambda: torch.nn.Linear(4, 3))

    def step():
        a = net(torch.ones(2, 4))
        distance = torch.sqrt((a - a.detach()).square().sum(1))
        distance.sum().backward()

    return lockstep.nan_trace(step, net)


@case
def nan_watched(rank, size):
    net = DistributedDataParallel(seeded(1))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    found = []
    start = steps_so_far()
    with lockstep.nan_watch(net, optimizer, raise_on_fault=True):
        for step in range(1, 4):
            optimizer.zero_grad()
            target = torch.ones(4, 2) * (float("nan") if rank == 1 and step == 3 else 1.0)
            loss = torch.nn.functional.mse_loss(net(torch.randn(4, 4)), target)
            try:
                loss.backward()  # <- here
                optimizer.step()
            except lockstep.FaultFound as error:
                found += error.report.findings
    for each in found:
        each.json["step"] -= start
    return found


# ---- lockstep ------------------------------------------------------------------------------------------------------


@case
def lockstep_branch(rank, size):
    net = seeded(1)

    def step():
        x = torch.ones(4, 4) * (rank + 1)
        y = net(x)
        if x.max().item() > 2.5:
            y = torch.tanh(y)
        y.square().mean().backward()

    return lockstep.first_difference(step, net)


@case
def lockstep_weight_decay(rank, size):
    net = seeded(1)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, weight_decay=1e-3 if rank == 2 else 1e-2, foreach=False)

    def step():
        net(torch.ones(4, 4)).square().mean().backward()
        optimizer.step()

    return lockstep.first_difference(step, net, optimizer)


# ---- time_sync -----------------------------------------------------------------------------------------------------


@case
def time_sync_straggler(rank, size):
    net = DistributedDataParallel(seeded(1, lambda: torch.nn.Linear(8, 4)))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def step():
        optimizer.zero_grad()
        if rank == 1:
            time.sleep(0.2)
        net(torch.ones(4, 8)).sum().backward()
        optimizer.step()

    return lockstep.time_sync(step, net, optimizer, steps=3)


if __name__ == "__main__":
    job.main()

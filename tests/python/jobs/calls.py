"""Calls that go wrong, and calls that are no usual ones."""

import os

import torch
import torch.distributed as dist

import job
import lockstep
from job import case


@case
def first_call_without_a_rank(rank, size):
    """The first inspection of the job, in which the ranks meet."""
    net = torch.ones(3)
    if rank == 1:
        return
    return lockstep.verify(net, deadline=2)


@case
def and_then_with_all(rank, size):
    net = torch.ones(3)
    return lockstep.verify(net)


@case
def a_skipped_step(rank, size):
    """The ranks' checks do not meet any more: two of them wait for the deadline, of all that the watches have."""
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with lockstep.watch(net, optimizer, every=2, deadline=0.5) as watching:
        for step in range(12):
            optimizer.zero_grad()
            net(torch.ones(2, 4)).sum().backward()
            if rank != 1 or step != 0:
                optimizer.step()
        assert watching.cost()["checks"] == 2, watching.cost()
    return lockstep.verify(net.module.in_features, name="x")


@case
def equal_seeds(rank, size):
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.5))
    with torch.no_grad():
        for each in net.parameters():
            each.fill_(1)
    sampler = torch.utils.data.DistributedSampler(range(9), seed=5)
    found = []
    for name, seed in (("equal", 7), ("own", 7 + rank)):
        torch.manual_seed(seed)
        loader = torch.utils.data.DataLoader(range(9), batch_size=3, sampler=sampler, num_workers=1)
        found += [lockstep.verify(net), lockstep.data(loader, name=name)]
    return found


@case
def different_inspectors(rank, size):
    net = torch.ones(3)
    return lockstep.verify(net) if rank == 0 else lockstep.ranks()


@case
def different_objects(rank, size):
    left, right = torch.ones(3), torch.ones(3)
    return lockstep.verify(left) if rank == 0 else lockstep.verify(right)


@case
def some_ranks(rank, size):
    report = lockstep.verify(torch.tensor(float(rank == 2)), ranks=[0, 1])
    assert bool(report.findings) == (rank < 2), report
    return report


@case
def raised(rank, size):
    try:
        lockstep.verify(torch.ones(2) * rank, name="x", raise_on_fault=True)
    except lockstep.FaultFound as error:
        assert "x: ranks 0-2 differ" in str(error), error
        return error.report
    raise AssertionError("nothing was raised")


@case
def a_step_that_raises(rank, size):
    x = torch.nn.Parameter(torch.zeros(2))

    def step():
        with torch.no_grad():
            x.add_(1)
        raise KeyError("no such column")

    for function in (lockstep.nan_trace, lockstep.first_difference):
        try:
            function(step, x)
        except KeyError as error:
            assert error.args == ("no such column",)
        else:
            raise AssertionError("nothing was raised")
    assert x.tolist() == [1, 1], x  # nan_trace has restored it, first_difference restores nothing
    return lockstep.verify(x)


@case
def inf_through_the_reduction(rank, size):
    """Adam makes NaN of an Inf on every rank; the rank that made the Inf is to be named, and no other."""
    torch.manual_seed(0)
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    optimizer = torch.optim.Adam(net.parameters())
    x = torch.ones(2, 4)
    if rank == 1:
        x[0] = 0

    def step():
        optimizer.zero_grad()
        (net(x).sum(1) / x.norm(dim=1)).sum().backward()
        optimizer.step()

    return lockstep.nan_trace(step, net, optimizer)


@case
def groups_made_again(rank, size):
    """A program destroys its process groups and makes new ones."""
    reports = [lockstep.verify(torch.ones(2))]
    store = dist.distributed_c10d._get_default_store()
    dist.barrier()
    lockstep.detach()
    dist.destroy_process_group()
    dist.init_process_group("gloo", store=dist.PrefixStore("again", store), rank=rank, world_size=size)
    return [*reports, lockstep.verify(torch.ones(2))]


@case
def after_fake_tensors(rank, size):
    """They give CUDA a guard that counts a device, also where there is none."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        torch.ones(2)
    net = torch.nn.Linear(2, 2)

    def step(synchronise):
        net(torch.ones(2, 2)).sum().backward()
        if synchronise:
            dist.all_reduce(net.weight.grad)
        net.zero_grad()

    with lockstep.record_operators():
        report = lockstep.time_sync(step, net, warm_up=1, steps=1)
    return [report, lockstep.memory(net=net), lockstep.timeline(os.devnull)]


@case
def wrong_arguments(rank, size):
    net = torch.nn.Linear(2, 2)
    for call in (lambda: lockstep.verify("net"), lambda: lockstep.verify(object()), lambda: lockstep.verify(net, ranks=[7]),
                 lambda: lockstep.verify(net, ranks=[]), lambda: lockstep.verify(net, deadline=0),
                 lambda: lockstep.verify(net, method="guess"), lambda: lockstep.grads(net, threshold=0.5),
                 lambda: lockstep.verify(torch.ones(2, 2).to_sparse()), lambda: lockstep.verify(torch.ones(2, device="meta")),
                 lambda: lockstep.data(iter([1, 2])), lambda: lockstep.data([0.5]), lambda: lockstep.data(torch.ones(2)),
                 lambda: lockstep.watch(net, every=0), lambda: lockstep.nan_trace(net), lambda: lockstep.nan_watch(3),
                 lambda: lockstep.time_sync(lambda: None, net, steps=0), lambda: lockstep.first_difference(net, net)):
        try:
            call()
        except lockstep.ArgumentError as error:
            assert len(str(error)) > 20 and "::" not in str(error), error
        else:
            raise AssertionError("nothing was raised")
    return lockstep.verify(net.in_features, name="x")


@case
def values(rank, size):
    value = {"lr": float("nan"), "names": ["a", "é"], "none": None, "big": 2**70, "inf": float("-inf"), "empty": [],
             "nested": {"x": torch.arange(3), "dtype": torch.float16}, "bytes": b"\xff"}
    same = lockstep.verify(value)
    value["nested"]["x"][1] += rank == 1
    value["lr"] = 0.1 if rank == 1 else 0.2
    return [same, lockstep.verify(value)]


@case
def published(rank, size):
    path = os.environ["LOCKSTEP_FINDINGS"]
    before = pathlib_lines(path)
    lockstep.verify(torch.ones(2) * rank, name="x")
    dist.barrier()
    lines = pathlib_lines(path)[len(before):]
    assert len(lines) == 1 and '"event": "finding"' in lines[0] and '"schema": 1' in lines[0], lines
    dist.barrier()
    return lockstep.verify(torch.ones(2), name="y")


def pathlib_lines(path):
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return file.readlines()


if __name__ == "__main__":
    job.main()

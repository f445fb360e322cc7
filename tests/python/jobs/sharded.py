"""Models that are divided among four ranks: fully_shard (FSDP2) over one and two dimensions of a mesh, tensors with a
placement of their own, and FullyShardedDataParallel."""

import warnings

import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import job
import lockstep
from faults import seeded
from job import case

job.CASES.clear()
warnings.simplefilter("ignore", FutureWarning)


def divided(shape, names):
    net = seeded(1)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    fully_shard(net.fc1, mesh=mesh)
    fully_shard(net, mesh=mesh)
    return net


def train(net, rank):
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    torch.manual_seed(100 + rank)
    reports = []
    for step in range(2):
        optimizer.zero_grad()
        net(torch.randn(4, 4)).square().mean().backward()
        if step == 1:
            reports.append(lockstep.grads(net))
        optimizer.step()
    return optimizer, reports


@case
def healthy_fsdp2(rank, size):
    net = divided((size,), ("shard",))
    optimizer, reports = train(net, rank)
    return [lockstep.verify(net), lockstep.verify(optimizer, model=net), *reports]


@case
def healthy_fsdp2_replicated(rank, size):
    net = divided((2, size // 2), ("replicate", "shard"))
    optimizer, reports = train(net, rank)
    return [lockstep.verify(net), lockstep.verify(optimizer, model=net), *reports]


@case
def drifted_replica(rank, size):
    """Ranks 1 and 3 have the same shard of a mesh [[0, 1], [2, 3]]."""
    net = divided((2, size // 2), ("replicate", "shard"))
    if rank == 1:
        with torch.no_grad():
            net.fc1.weight.to_local()[0, 0] += 1
    return lockstep.verify(net)


@case
def nan_in_a_shard(rank, size):
    net = divided((size,), ("shard",))
    if rank == 2:
        with torch.no_grad():
            net.fc1.weight.to_local()[0, 0] = float("nan")
    return lockstep.verify(net)


@case
def another_placement(rank, size):
    mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("rows",))
    torch.manual_seed(1)
    weight = distribute_tensor(torch.randn(8, 8), mesh, [Shard(0)])
    if rank == 3:  # without the collective that redistribute() would need on all ranks
        from torch.distributed.tensor import DTensor

        weight = DTensor.from_local(torch.zeros(8, 2), mesh, [Shard(1)], run_check=False)
    return lockstep.verify({"weight": weight})


@case
def replicated_tensor(rank, size):
    mesh = init_device_mesh("cpu", (size,))
    weight = distribute_tensor(torch.ones(4), mesh, [Replicate()])
    if rank == 3:
        weight.to_local()[2] = 5
    return lockstep.verify(weight)


@case
def watched_drift(rank, size):
    net = divided((2, size // 2), ("replicate", "shard"))
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    found = []
    with lockstep.watch(net, optimizer, every=2, raise_on_fault=True):
        for step in range(1, 7):
            optimizer.zero_grad()
            net(torch.ones(4, 4)).square().mean().backward()
            if rank == 0 and step == 3:
                with torch.no_grad():
                    net.fc2.bias.to_local().fill_(7)
            try:
                optimizer.step()
            except lockstep.FaultFound as error:
                found += error.report.findings
    return found


@case
def one_dimension_in_place_of_all(rank, size):
    """The mesh of one dimension: two pairs of ranks train apart, each pair as a whole."""
    mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("replicate", "shard"))
    net = seeded(1)
    fully_shard(net, mesh=mesh["shard"])
    before = lockstep.verify(net)
    train(net, rank)
    return [before, lockstep.verify(net)]


@case
def sub_groups_of_fsdp1(rank, size):
    groups = [torch.distributed.new_group(each) for each in ([0, 1], [2, 3])]
    net = FullyShardedDataParallel(seeded(1), process_group=groups[rank // 2], device_id=torch.device("cpu"))
    before = lockstep.verify(net)
    train(net, rank)
    return [before, lockstep.verify(net)]


@case
def outside_of_the_mesh(rank, size):
    mesh = DeviceMesh("cpu", [0, 1])
    return lockstep.verify({"weight": distribute_tensor(torch.ones(4), mesh, [Shard(0)])})


@case
def optimizer_before_fully_shard(rank, size):
    net = seeded(1)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    fully_shard(net, mesh=init_device_mesh("cpu", (size,)))
    found = lockstep.verify(optimizer, model=net).findings
    with lockstep.watch(net, optimizer, every=5, raise_on_fault=True):
        for _ in range(10):
            optimizer.zero_grad()
            net(torch.ones(4, 4)).square().mean().backward()
            try:
                optimizer.step()
            except lockstep.FaultFound as error:
                found += error.report.findings
    return found


@case
def gradients_of_divided_parameters(rank, size):
    net = divided((size,), ("shard",))
    none = lockstep.grads(net)
    net(torch.ones(4, 4)).square().mean().backward()
    return [none, lockstep.grads(net), lockstep.grads(net, local=True)]


@case
def the_same_batch(rank, size):
    net = divided((size,), ("shard",))
    found = []
    with lockstep.watch_grads(net):
        for seed in (7, 7 + rank):
            torch.manual_seed(seed)
            net(torch.randn(4, 4)).square().mean().backward()
            found += [lockstep.grads(net), lockstep.grads(net, local=True)]
    return found


@case
def nan_in_a_step(rank, size):
    """What looks at operators of DTensors: they have no memory of their own."""
    net = divided((size,), ("shard",))
    optimizer = torch.optim.AdamW(net.parameters(), 0.01)

    def step(scale=1.0):
        optimizer.zero_grad()
        loss = net(torch.ones(4, 4)).square().mean() * scale
        loss.backward()
        optimizer.step()
        return loss

    with lockstep.nan_watch(net, optimizer):
        step()
        found = [*lockstep.nan_trace(step, net, optimizer).findings, *lockstep.first_difference(step, net, optimizer).findings]
        found += lockstep.nan_trace(lambda: step(float("nan") if rank == 2 else 1.0), net, optimizer).findings
    return found


@case
def healthy_fsdp1(rank, size):
    reports = []
    for use_orig_params in (False, True):
        net = FullyShardedDataParallel(seeded(1), device_id=torch.device("cpu"), use_orig_params=use_orig_params)
        optimizer, of_gradients = train(net, rank)
        reports += [lockstep.verify(net), lockstep.verify(optimizer), *of_gradients]
    return reports


@case
def drifted_fsdp1(rank, size):
    net = FullyShardedDataParallel(seeded(1), device_id=torch.device("cpu"), sharding_strategy=ShardingStrategy.NO_SHARD)
    if rank == 2:
        with torch.no_grad():
            next(net.parameters()).view(-1)[0] = 9
    return lockstep.verify(net)


if __name__ == "__main__":
    job.main()

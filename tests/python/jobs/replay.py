"""Jobs of replay_test.py: replay.py FOLDER CASE. Each rank adds a line to FOLDER/rank-R for each step that it has made: its
number, the loss, and a hash of the model and the optimizer."""

import hashlib
import os
import pathlib
import random
import signal
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import lockstep

FOLDER, CASE = sys.argv[1:3]
STEPS = 10


def local(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def write(step, loss, model, optimizer):
    hashed = hashlib.sha256()
    tensors = [*model.parameters(), *model.buffers()]
    for state in optimizer.state.values():
        tensors += [each for each in state.values() if isinstance(each, torch.Tensor)]
    for each in tensors:
        hashed.update(local(each.detach()).contiguous().numpy().tobytes())
    with open(pathlib.Path(FOLDER, f"rank-{dist.get_rank()}"), "a") as file:
        file.write(f"{step} {loss.item()!r} {hashed.hexdigest()}\n")


def net():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(13, 64), torch.nn.BatchNorm1d(64), torch.nn.ReLU(), torch.nn.Dropout(0.3),
                               torch.nn.Linear(64, 7))


def batch():
    """Other data on each rank, by two generators."""
    return torch.randn(8, 13) * random.uniform(0.5, 2), torch.randint(0, 7, (8,))


class Counter:
    """Has a state that no recording keeps."""

    def state_dict(self):
        return {"counts": {1, 2}}

    load_state_dict = None


def data_parallel(wrap=None):
    model = DistributedDataParallel(net(), bucket_cap_mb=0.002) if wrap is None else wrap(net())
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    torch.manual_seed(100 + dist.get_rank())
    random.seed(dist.get_rank())
    more = [Counter()] if CASE == "gives_up" else []
    for step in range(STEPS):
        with lockstep.step(model, optimizer, scheduler, *more):
            inputs, labels = batch()
            if CASE == "spoiled" and step == 6:
                torch.rand(1)
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            if CASE == "fails" and dist.get_rank() == 2 and step == 9:
                raise FloatingPointError(f"the loss of step {step} is {loss.item()!r}")
            if CASE == "dies" and dist.get_rank() == 1 and step == 7:
                os.kill(os.getpid(), signal.SIGKILL)
            if CASE == "hangs" and dist.get_rank() == 1 and step == 7:
                signal.pause()
            if CASE == "stops" and step == 7:
                sys.exit()
            optimizer.step()
            scheduler.step()
        write(step, loss, model, optimizer)


def sharded():
    from torch.distributed.fsdp import fully_shard

    def wrap(model):
        fully_shard(model[4])
        return fully_shard(model)

    data_parallel(wrap)


def tensor_parallel():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    def wrap(_):
        model = torch.nn.Sequential(torch.nn.Linear(13, 66), torch.nn.ReLU(), torch.nn.Linear(66, 7))
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        return parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})

    data_parallel(wrap)


def by_hand():
    """Collectives of every kind, and batches from outside of the steps, whose generator no recording knows."""
    model, data = net(), torch.Generator().manual_seed(dist.get_rank())
    optimizer = torch.optim.SGD(model.parameters(), 1e-2, momentum=0.9)
    rank, size = dist.get_rank(), dist.get_world_size()
    pair = dist.new_group([1, 2])
    torch.manual_seed(rank)
    for step in range(STEPS):
        inputs, labels = torch.randn(8, 13, generator=data), torch.randint(0, 7, (8,), generator=data)
        with lockstep.step(model, optimizer, batch=(inputs, labels)):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            works = [dist.all_reduce(each.grad, async_op=True) for each in model.parameters()]
            for each in works:
                each.wait()
            loss = loss.detach() + mixed(loss.detach(), rank, size, pair)
            optimizer.step()
        dist.all_reduce(loss)
        write(step, loss, model, optimizer)


def mixed(value, rank, size, pair):
    """A sum of what each kind of collective gives."""
    one = value.reshape(1)
    lists = [torch.empty(1) for _ in range(size)]
    whole = torch.empty(size)
    results = [whole]
    dist.all_gather(lists, one)
    dist.all_gather_into_tensor(whole, one)
    results += lists
    for collective in ("reduce_scatter", "all_to_all"):
        parts = [one * (i + 1) for i in range(size)]
        out = [torch.empty(1) for _ in range(size)]
        dist.reduce_scatter(out[0], parts) if collective == "reduce_scatter" else dist.all_to_all(out, parts)
        results += out[:1] if collective == "reduce_scatter" else out
    spread = torch.empty(size)
    dist.all_to_all_single(spread, torch.cat(parts))
    part = torch.empty(1)
    dist.reduce_scatter_tensor(part, torch.cat(parts))
    gathered = [torch.empty(1) for _ in range(size)] if rank == 2 else None
    dist.gather(one, gathered, dst=2)
    scattered = torch.empty(1)
    dist.scatter(scattered, parts if rank == 0 else None, src=0)
    reduced = one.clone()
    dist.reduce(reduced, 2)
    results += [spread, part, scattered, *(gathered or [])] + ([reduced] if rank == 2 else [])
    received = torch.empty(1)
    if rank == 2:
        results.append(torch.tensor([float(dist.recv(received))]))  # from any rank
        results.append(received)
    elif rank == 0:
        dist.send(one, 2)
    shared = one.clone()
    if rank > 0:
        dist.all_reduce(shared, dist.ReduceOp.AVG, group=pair)
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank, "value": value.item()})
    results += [shared, torch.tensor([sum(each["value"] for each in objects)])]
    sparse = torch.sparse_coo_tensor([[rank]], one, (size,))
    dist.all_reduce(sparse)
    results.append(sparse.to_dense())
    dist.barrier()
    return torch.stack([each.sum() for each in results]).sum()


def main():
    dist.init_process_group("lockstep")
    {"sharded": sharded, "tensor_parallel": tensor_parallel, "by_hand": by_hand}.get(CASE, data_parallel)()
    dist.barrier()
    dist.destroy_process_group()


main()

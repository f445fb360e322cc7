"""Jobs of backend_test.py: backend.py BACKEND FOLDER CASE. Each rank of a case writes what it came to into FOLDER."""

import hashlib
import os
import pathlib
import sys
import warnings
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import lockstep

BACKEND, FOLDER, CASE = sys.argv[1:4]


def digest(tensors):
    hashed = hashlib.sha256()
    for each in tensors:
        full = each.full_tensor() if hasattr(each, "full_tensor") else each
        hashed.update(full.detach().contiguous().numpy().tobytes())
    return hashed.hexdigest()


def net():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(13, 33), torch.nn.LayerNorm(33), torch.nn.ReLU(), torch.nn.Linear(33, 7))


def train(model, steps=4):
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    torch.manual_seed(100 + dist.get_rank())
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 13)).pow(2).mean().backward()
        optimizer.step()
    return model


def data_parallel():
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    buckets = train(DistributedDataParallel(net(), bucket_cap_mb=0.001))
    views = train(DistributedDataParallel(net(), gradient_as_bucket_view=True, static_graph=True))
    hooked = DistributedDataParallel(net())
    hooked.register_comm_hook(None, default_hooks.fp16_compress_hook)
    joined = DistributedDataParallel(net())
    with joined.join():
        train(joined, steps=3 + dist.get_rank())
    return [digest(each.parameters()) for each in (buckets, views, train(hooked), joined)]


def sharded():
    from torch.distributed.fsdp import fully_shard

    results = []
    shapes = [(dist.get_world_size(),)] + ([(2, dist.get_world_size() // 2)] if dist.get_world_size() % 2 == 0 else [])
    for shape in shapes:
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard")[-len(shape):])
        model = net()
        fully_shard(model[0], mesh=mesh)
        fully_shard(model, mesh=mesh)
        results.append(digest(train(model).parameters()))
    return results


def operations():
    """Every operation that Gloo has too, with its results."""
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    results = []
    mine = torch.randn(6, 5)
    for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT):
        results.append(mine.clone())
        dist.all_reduce(results[-1], op)
    results.append(mine.clone())
    dist.all_reduce(results[-1], async_op=True).wait()
    results.append(mine.clone())
    work = dist.all_reduce(results[-1], async_op=True)
    results += work.get_future().then(lambda done: [each * 2 for each in done.value()]).wait()
    results.append(mine.clone())
    dist.broadcast(results[-1], src=size - 1)
    parts = [torch.empty_like(mine) for _ in range(size)]
    dist.all_gather(parts, mine)
    results += parts
    stacked = torch.empty(6 * size, 5)
    dist.all_gather_into_tensor(stacked, mine)
    results.append(stacked)
    scattered = torch.empty(6, 5)
    dist.reduce_scatter_tensor(scattered, stacked * (rank + 1))
    results.append(scattered)
    turned = torch.empty(size, 3)
    dist.all_to_all_single(turned, torch.arange(size * 3.0).view(size, 3) + 100 * rank)
    results.append(turned)
    gathered = [torch.empty_like(mine) for _ in range(size)] if rank == 0 else None
    dist.gather(mine, gathered)
    results += gathered or []
    out = torch.empty(5)
    dist.scatter(out, [torch.full((5,), float(i)) for i in range(size)] if rank == 1 else None, src=1)
    results.append(out)
    dist.reduce(mine.clone(), dst=1)
    with dist._coalescing_manager():
        for each in (coalesced := [torch.ones(3) * rank, torch.ones(2, 2)]):
            dist.all_reduce(each)
    results += coalesced
    if rank == 0:
        dist.send(mine, 1)
    elif rank == 1:
        received = torch.empty_like(mine)
        dist.recv(received, 0)
        results.append(received)
    ring = torch.empty_like(mine)
    for each in dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, (rank + 1) % size),
                                        dist.P2POp(dist.irecv, ring, (rank - 1) % size)]):
        each.wait()
    results.append(ring)
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": i} for i in range(size)], objects
    given = [{"from": 0}] if rank == 0 else [None]
    dist.broadcast_object_list(given, src=0)
    assert given == [{"from": 0}], given
    dist.barrier()
    pair = dist.new_group([0, 1], timeout=timedelta(seconds=30))
    if rank < 2:
        assert dist.get_backend(pair) == BACKEND
        results.append(mine.clone())
        dist.all_reduce(results[-1], group=pair)
        dist.barrier(group=pair)
        dist.destroy_process_group(pair)
    again = dist.new_group(backend="gloo")  # beside it
    results.append(mine.clone())
    dist.all_reduce(results[-1], group=again)
    import torch.distributed._functional_collectives as functional

    results.append(functional.all_reduce(mine, "sum", dist.group.WORLD).wait())
    return [digest(results)]


def groups_again():
    for number in range(2):
        dist.destroy_process_group()
        dist.init_process_group(BACKEND, init_method=f"file://{FOLDER}/store-{number}", rank=int(os.environ["RANK"]),
                                world_size=int(os.environ["WORLD_SIZE"]))
        ones = torch.ones(3)
        dist.all_reduce(ones)
        assert ones[0] == dist.get_world_size()
    return []


def inspectors():
    model = train(DistributedDataParallel(net()))
    assert lockstep.verify(model)
    return []


def mismatch():
    rank = dist.get_rank()
    dist.all_reduce(torch.ones(3))
    try:
        if rank == 1:
            dist.all_reduce(torch.ones(5))  # rank 1
        else:
            dist.all_reduce(torch.ones(4))  # others
    except RuntimeError as error:
        return [type(error).__name__, str(error)]
    return []


if __name__ == "__main__":
    warnings.simplefilter("error", UserWarning)
    dist.init_process_group(BACKEND, timeout=timedelta(seconds=120))
    rank = dist.get_rank()
    result = globals()[CASE]()
    pathlib.Path(FOLDER, f"rank-{rank}").write_text("\n".join(result))
    if CASE != "mismatch":
        dist.barrier()
    dist.destroy_process_group()

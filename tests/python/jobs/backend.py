"""Jobs of backend_test.py: backend.py BACKEND FOLDER CASE. Each rank of a case writes what it came to into FOLDER."""

import hashlib
import json
import os
import pathlib
import sys
import threading
import warnings
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

BACKEND, FOLDER, CASE = sys.argv[1:4]
if BACKEND != "gloo":
    import lockstep


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
    # Under torchrun the store outlives the groups, and has what earlier ones have left.
    store = dist.PrefixStore("again", dist.distributed_c10d._get_default_store())
    for number in range(3):
        rank, size = dist.get_rank(), dist.get_world_size()
        dist.destroy_process_group()
        # Gloo alone may connect to the address that a rank has left there.
        of_round = dist.PrefixStore(str(number), store) if BACKEND == "gloo" else store
        dist.init_process_group(BACKEND, store=of_round, rank=rank, world_size=size)
        ones = torch.ones(3)
        dist.all_reduce(ones)
        assert ones[0] == dist.get_world_size()
        if BACKEND == "gloo":  # a job that does not import lockstep
            continue
        report = lockstep.ranks()
        assert report and len(report.took_part) == size, report
        report = lockstep.verify(ones + rank)
        assert "ranks 0-1 differ" in str(report), report
    return []


def aborted_reconnect():
    """Rank 0 connects its groups again, and leaves that before it begins, or while it waits for rank 1."""
    from lockstep.core import _backend, _library

    for generation, begins_first in ((1, False), (2, True)):
        if dist.get_rank() == 1:
            continue
        raised = []
        aborts = _backend.aborts()
        def reconnect():
            try:
                _backend.reconnect(generation, [0, 1], 1000.0, aborts)
            except RuntimeError as error:
                raised.append(str(error))
        thread = threading.Thread(target=reconnect)
        if begins_first:
            thread.start()
            _backend._options["0"][0].store.wait([f"regroup-{generation}/groups/rank-0"])
        _library.call("abort_job_groups", reason="rank 1 died")
        if not begins_first:
            thread.start()
        thread.join()
        assert "connecting the process groups was aborted: rank 1 died" in "".join(raised), raised
    _backend.reconnect(3, [0, 1], 1000.0, _backend.aborts())
    ones = torch.ones(3)
    dist.all_reduce(ones)
    return [str(ones[0].item())]


def inspectors():
    model = train(DistributedDataParallel(net()))
    report = lockstep.verify(model, deadline=float("inf"))
    assert report, report
    return []


def timings():
    """What time_sync and timeline read from the log of the job's own groups."""
    rank = dist.get_rank()
    inner = net()
    model = DistributedDataParallel(inner, bucket_cap_mb=0.001)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    data = torch.ones(8, 13)

    def step():
        optimizer.zero_grad()
        model(data).pow(2).mean().backward()  # buckets
        optimizer.step()

    def by_hand(synchronise):
        inner(data).sum().backward()
        if synchronise:
            dist.all_reduce(inner[3].weight.grad)  # by hand
        inner.zero_grad()

    reports = {"wrapper": lockstep.time_sync(step, model, optimizer, steps=2),
               "by hand": lockstep.time_sync(by_hand, inner, steps=2)}
    pair = dist.new_group([0, 1])
    if rank < 2:
        model = DistributedDataParallel(inner, process_group=pair)
        reports["two ranks"] = lockstep.time_sync(step, model, steps=2)
        dist.destroy_process_group(pair)
    results = {name: {**each.data, "message": each.findings[0].message, "ranks": each.took_part}
               for name, each in reports.items()}

    model = DistributedDataParallel(inner)
    with lockstep.record_operators():
        step()
        dist.all_reduce(torch.ones(5), async_op=True).wait()  # of the timeline
    path = pathlib.Path(FOLDER, "timeline.json")
    results["timeline"] = lockstep.timeline(path).data
    if rank == 0:
        results["events"] = json.loads(path.read_text())["traceEvents"]
    return [json.dumps(results)]


def wrong_arguments():
    """Errors of the backend name functions of Python. They end no group."""
    messages = []
    for call in (lambda: dist.all_reduce(torch.ones(2, 2).to_sparse(), dist.ReduceOp.MAX),
                 lambda: dist.all_reduce(torch.ones(2, dtype=torch.bool), dist.ReduceOp.AVG),
                 lambda: dist.all_gather([torch.ones(2)] * dist.get_world_size(), torch.ones(2)),
                 lambda: dist.all_reduce(torch.ones(1).expand(4))):
        try:
            call()
        except RuntimeError as error:
            messages.append(str(error))
    dist.all_reduce(torch.ones(2))
    return messages


def shares_memory():
    """Whether this rank has mapped memory of a group."""
    dist.all_reduce(torch.ones(2))
    return [str("memfd:lockstep-group" in pathlib.Path("/proc/self/maps").read_text())]


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

"""Compares lockstep::ddp with PyTorch's DistributedDataParallel: trains what ddp_parity trained, from the same weights
and batches, and compares the losses of every rank and step (to 1e-6), the buckets before and after they are rebuilt,
and the trained weights from the archive that torch::save wrote.

    $(tools/python)/bin/python tests/ddp/parity.py build/release/bin/ddp_parity
"""
import json
import os
import subprocess
import sys
import tempfile
import warnings


def models():
    import torch
    import torch.nn as nn

    class Mlp(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc2, self.fc3 = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 4)

        def forward(self, x):
            return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x)))))

    class Conv(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.norm1 = nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
            self.conv2, self.norm2 = nn.Conv2d(4, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8)
            self.fc = nn.Linear(8, 4)

        def forward(self, x):
            x = torch.relu(self.norm1(self.conv1(x.view(-1, 1, 2, 4))))
            return self.fc(torch.relu(self.norm2(self.conv2(x))).mean((2, 3)))

    return {"mlp": Mlp, "conv": Conv}


def tensor_in(path):
    import torch

    archive = torch.jit.load(path)
    return next(iter([*archive.parameters(), *archive.buffers()])).detach()


def values_in(path):
    """Parameters and buffers by name, out of an archive of the C++ front end."""
    import torch

    archive = torch.jit.load(path)
    return dict([*archive.named_parameters(remove_duplicate=False), *archive.named_buffers()])


def check_load(path, values):
    """torch.load reads the archive as TorchScript, and refuses it with weights_only, the default."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.load warns that it calls torch.jit.load
        loaded = torch.load(path, weights_only=False)
        try:
            torch.load(path)
        except RuntimeError as error:
            assert "TorchScript" in str(error), error
        else:
            raise AssertionError("torch.load was to refuse a TorchScript archive; docs/ddp.md says so")
    assert all(torch.equal(value, values[name]) for name, value in loaded.named_parameters()), path


def worker(rank, ranks, model, views, folder, queue):
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    from torch.nn.parallel import DistributedDataParallel as DDP

    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{folder}/python_store", rank=rank, world_size=ranks)
    module = models()[model]()
    module.load_state_dict(values_in(f"{folder}/initial.pt"))
    x, y = tensor_in(f"{folder}/x.pt"), tensor_in(f"{folder}/y.pt")
    net = DDP(module, bucket_cap_mb=5e-4, gradient_as_bucket_view=views)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
    names = {id(p): n for n, p in module.named_parameters()}

    def buckets():
        return [[names[id(p)] for p in bucket.parameters()] for bucket in net.reducer._get_zeros_like_grad_buckets()]

    before, losses = buckets(), []
    share = x.shape[1] // ranks
    for step in range(len(x)):
        optimizer.zero_grad()
        mine = slice(rank * share, (rank + 1) * share)
        loss = F.cross_entropy(net(x[step][mine]), y[step][mine])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    weights = {n: v.tolist() for n, v in module.state_dict().items()} if rank == 0 else None
    queue.put((rank, losses, before, buckets(), weights))
    dist.barrier()
    os._exit(0)  # torch 2.11 with Gloo now and then aborts in the interpreter's teardown


def compare(program, model, ranks, views):
    import torch
    import torch.multiprocessing as mp

    with tempfile.TemporaryDirectory() as folder:
        mine = json.loads(subprocess.run([program, folder, str(ranks), model, str(int(views))], check=True, text=True,
                                         stdout=subprocess.PIPE, timeout=300).stdout)
        context = mp.get_context("spawn")
        queue = context.SimpleQueue()
        processes = [context.Process(target=worker, args=(rank, ranks, model, views, folder, queue))
                     for rank in range(ranks)]
        for process in processes:
            process.start()
        for process in processes:
            process.join(120)
            if process.exitcode != 0:
                sys.exit(f"the Python side ended with {process.exitcode}")
        theirs = sorted(queue.get() for _ in processes)
        trained = values_in(f"{folder}/trained.pt")
        check_load(f"{folder}/trained.pt", trained)
    loss = max(abs(a - b) for rank in range(ranks) for a, b in zip(mine["losses"][rank], theirs[rank][1]))
    weight = max((trained[n].double() - torch.tensor(v, dtype=torch.float64)).abs().max().item()
                 for n, v in theirs[0][4].items())
    before, after = mine["buckets_before"] == theirs[0][2], mine["buckets_after"] == theirs[0][3]
    good = loss <= 1e-6 and weight <= 1e-5 and before and after and len(mine["losses"][0]) == 50
    print(f"{'ok' if good else 'FAILED'}: {model}, {ranks} ranks, views {views}: losses differ by at most {loss:.1e}, "
          f"weights by {weight:.1e}; buckets before {'equal' if before else 'DIFFER'}, "
          f"after {'equal' if after else 'DIFFER'} ({len(mine['buckets_after'])} of them)", flush=True)
    if not (before and after):
        print(mine["buckets_before"], theirs[0][2], mine["buckets_after"], theirs[0][3], sep="\n")
    return good


def main():
    results = [compare(sys.argv[1], model, ranks, views)
               for model in ("mlp", "conv") for ranks, views in ((2, False), (3, True))]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())

"""A NaN in the middle of a run: which step, which rank, which line.

    torchrun --standalone --nproc_per_node=2 scripts/python/nan.py

The watch stops the training at the step; the trace then runs that step again and names the operator that made the first
bad value. The state of the model and of the optimizer is that of before the trace.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import lockstep

dist.init_process_group("gloo")
rank = dist.get_rank()

torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

torch.manual_seed(100 + rank)
batches = [torch.rand(4, 8) for _ in range(20)]
if rank == 1:
    batches[12][3] = 0  # a sample without any signal


def train(x):
    optimizer.zero_grad()
    features = x / x.norm(dim=1, keepdim=True)  # 0 / 0
    loss = model(features).square().mean()
    loss.backward()
    optimizer.step()
    return loss


watching = lockstep.nan_watch(model, optimizer)
for step, x in enumerate(batches, 1):
    loss = train(x)
    bad = torch.tensor(float(watching.status()["bad_steps"]))
    dist.all_reduce(bad)  # the ranks stop together
    if bad:
        break
watching.close()

torch.nn.init.constant_(model.module.weight, 0.1)  # the parameters are NaN by now: start from good ones
torch.nn.init.constant_(model.module.bias, 0.1)
report = lockstep.nan_trace(lambda: train(x), model, optimizer)
if rank == 0:
    print(f"stopped after step {step}")

dist.destroy_process_group()

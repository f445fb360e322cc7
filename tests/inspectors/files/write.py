#!/usr/bin/env python3
"""Writes the files beside it, as a job in Python saves its replicas (PyTorch 2.11). Tests read them; run this to change them."""

import os
import warnings

import torch
import torch.distributed.checkpoint

os.chdir(os.path.dirname(os.path.abspath(__file__)))


def model():
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))


for rank in range(2):
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    net(torch.arange(8.0).reshape(2, 4)).pow(2).mean().backward()
    optimizer.step()
    optimizer.param_groups[0]["lr"] *= rank + 1
    with torch.no_grad():
        net[0].weight.copy_(model()[0].weight)
        net[0].weight[2, 1] += rank / 2
    torch.save(net.state_dict(), f"state-dict-{rank}.pt")

    half = torch.arange(12, dtype=torch.bfloat16)
    half[7] += rank  # seen through three tensors
    torch.save(
        {
            "model": net.state_dict(),
            "optimizer": optimizer.state_dict(),
            "shared": {"whole": half, "transposed": half.view(3, 4).t(), "end": half[6:]},
            "kinds": [
                torch.tensor(5),
                torch.empty(0, 3),
                torch.tensor([True, False]),
                torch.tensor([1 + 2j]).conj(),
                torch.ones(2).to(torch.float8_e4m3fn),
                torch.tensor([60000], dtype=torch.uint16),
                torch.nn.Parameter(torch.ones(2)),
            ],
            "epoch": 3,
            "loss": 0.1 + rank / 8,
            "seen": {"b", "a", "c"},
            "device": torch.device("cpu"),
            "big": 2**70,
            "negative": -129,
        },
        f"checkpoint-{rank}.pt",
    )
torch.save(model(), "module.pt")
torch.save(model().state_dict(), "old-format.pt", _use_new_zipfile_serialization=False)

# Of torch.distributed.checkpoint: a folder, with one archive for each tensor and value in one file. They differ in the last.
warnings.filterwarnings("ignore", "torch.distributed is")
for rank in range(2):
    tensors = {"bias": torch.arange(2.0), "weight": torch.arange(6.0).reshape(2, 3)}
    tensors["weight"][1, 2] += rank
    torch.distributed.checkpoint.save({"model": tensors, "epoch": 3}, checkpoint_id=f"distributed-{rank}")

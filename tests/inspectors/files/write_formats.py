#!/usr/bin/env python3
"""Writes the same model in every format that people keep models in (PyTorch 2.11, safetensors 0.8), and the checkpoint of
jobs of two and three ranks. Tests read the files; run this to change them."""

import os
import warnings

import safetensors.torch
import torch
import torch.distributed.checkpoint
import torch.multiprocessing
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor


def model():
    torch.manual_seed(7)
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    net.register_buffer("scratch", torch.ones(2), persistent=False)
    return net


def files():
    state = model().state_dict()
    torch.save(model(), "formats-model.pt")
    torch.save(state, "formats-state.pt")
    torch.save({"module." + name: each for name, each in state.items()}, "formats-wrapped.pt")
    torch.save({"epoch": 3, "model": {"module." + name: each for name, each in state.items()}}, "formats-job.pt")
    safetensors.torch.save_file(state, "formats.safetensors", {"format": "pt"})
    state["0.weight"][2, 1] += 0.5
    safetensors.torch.save_file(state, "formats-other.safetensors", {"format": "pt"})


def checkpoint(rank, ranks, name, change):
    warnings.filterwarnings("ignore")
    torch.distributed.init_process_group("gloo", f"file:///tmp/{os.getppid()}-{name}", rank=rank, world_size=ranks)
    mesh = init_device_mesh("cpu", (ranks,))
    weight = torch.arange(15.0).reshape(5, 3)
    weight[3, 2] += change
    parts = {"weight": distribute_tensor(weight, mesh, [Shard(0)]), "bias": torch.arange(3.0), "none": torch.empty(0, 3)}
    torch.distributed.checkpoint.save({"model": parts, "epoch": 3}, checkpoint_id=name)
    torch.distributed.destroy_process_group()
    if rank == 0:
        os.remove(f"/tmp/{os.getppid()}-{name}")


if __name__ == "__main__":
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    files()
    for arguments in ((2, "sharded-2", 0), (2, "sharded-2-other", 1), (3, "sharded-3", 0)):
        torch.multiprocessing.spawn(checkpoint, arguments, nprocs=arguments[0])
    torch.save({"model": {"weight": torch.arange(15.0).reshape(5, 3), "bias": torch.arange(3.0),
                          "none": torch.empty(0, 3)}, "epoch": 3}, "sharded-whole.pt")

"""A small GPT in one of several layouts: compare_gpt.py LAYOUT [FAULT[+FAULT]…], with the faults of compare_faults.py. The
batch of a step is the same in all layouts. It knows nothing of Lockstep."""

import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import compare_faults as faults

VOCABULARY, LENGTH, WIDTH, HEADS, BLOCKS, BATCH = 61, 16, 32, 4, 2, 8
LAYOUT, FAULTS = sys.argv[1], faults.NAMES
SEED = int(os.environ.get("SEED", "0"))
RANK, WORLD_SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
NORM, DTYPE = os.environ.get("NORM", "layer"), getattr(torch, os.environ.get("DTYPE", "float32"))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.diagonal, self.scale = 0, None  # up to which position a token attends; None: that of the heads' width

    def forward(self, q, k, v):
        q, k, v = (each.unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for each in (q, k, v))
        mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril(self.diagonal)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=self.scale).transpose(1, 2).flatten(-2)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.attention, self.dropout, self.approximate = Attention(), nn.Dropout(0.1), "none"

    def forward(self, x):
        h = self.ln1(x)
        x = x + self.dropout(self.o(self.attention(self.q(h), self.k(h), self.v(h))))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate=self.approximate))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.ln, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)
        self.positions = torch.arange(LENGTH)
        if NORM == "batch":
            self.bn = nn.BatchNorm1d(WIDTH)

    def forward(self, tokens):
        # Its gradient has no samples: it is a sum over them.
        h = self.token(tokens) + self.place(self.positions)
        if NORM == "batch":
            h = self.bn(h.transpose(1, 2)).transpose(1, 2)
        for block in self.blocks:
            h = checkpoint(block, h, use_reentrant=False) if LAYOUT == "checkpoint" else block(h)
        return self.head(self.ln(h))


def tensor_parallel(model, mesh):
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel, PrepareModuleOutput, RowwiseParallel, SequenceParallel, parallelize_module)

    plan = {"token": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
            "ln": SequenceParallel(),
            "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())}
    for i in range(BLOCKS):
        block = f"blocks.{i}."
        plan |= {block + each: SequenceParallel() for each in ("ln1", "ln2")}
        plan |= {block + each: ColwiseParallel(input_layouts=Shard(1)) for each in ("q", "k", "v", "up")}
        plan |= {block + each: RowwiseParallel(output_layouts=Shard(1)) for each in ("o", "down")}
    # The positions are added to a shard of the sequence, so each rank takes its own part of them.
    plan["place"] = PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=Shard(0))
    return parallelize_module(model, mesh, plan)


def wrapped(model):
    """The model in its layout, and among how many ranks the batch is divided."""
    if LAYOUT.startswith("ddp"):
        return nn.parallel.DistributedDataParallel(model), WORLD_SIZE
    if LAYOUT == "fsdp":
        from torch.distributed.fsdp import fully_shard
        for each in (*model.blocks, model):
            fully_shard(each)
        return model, WORLD_SIZE
    if LAYOUT.startswith("fsdp1"):  # the first FSDP, with flattened parameters, and with those of the model
        from torch.distributed.fsdp import FullyShardedDataParallel
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy
        model = FullyShardedDataParallel(model, auto_wrap_policy=ModuleWrapPolicy({Block}),
                                         use_orig_params=LAYOUT == "fsdp1+names", device_id=torch.device("cpu"))
        return model, WORLD_SIZE
    if LAYOUT == "tp":
        from torch.distributed.tensor import init_device_mesh
        return tensor_parallel(model, init_device_mesh("cpu", (WORLD_SIZE,))), 1
    if LAYOUT == "tp+fsdp":
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor import init_device_mesh
        mesh = init_device_mesh("cpu", (WORLD_SIZE // 2, 2), mesh_dim_names=("dp", "tp"))
        tensor_parallel(model, mesh["tp"])
        for each in (*model.blocks, model):
            fully_shard(each, mesh=mesh["dp"])
        return model, WORLD_SIZE // 2
    return model, WORLD_SIZE


def average_by_hand(model):
    for name, each in model.named_parameters():
        if "not reduced" in FAULTS and name == "head.weight":
            continue
        dist.all_reduce(each.grad)
        if "reduced twice" in FAULTS and name == "blocks.0.down.weight":
            dist.all_reduce(each.grad)
        each.grad /= 1 if "sum" in FAULTS else WORLD_SIZE


def main():
    torch.set_num_threads(1)
    if WORLD_SIZE > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(SEED + (1 if "seed" in FAULTS and RANK == 1 else 0))
    plain = faults.of(faults.MODEL, GPT()).to(DTYPE)
    model, data_parallel = wrapped(plain)
    micro_batches = {"accumulate": 4, "ddp+accumulate": 2}.get(LAYOUT, 1)
    optimizer = torch.optim.AdamW(faults.parameters_of(model if LAYOUT.startswith("fsdp1") else plain), **{"lr": 1e-3, "foreach": False, **faults.settings()})
    generator = torch.Generator().manual_seed(SEED + 1000)
    for _ in range(5):
        batch = torch.randint(0, VOCABULARY, (BATCH, LENGTH + 1), generator=generator)
        mine = faults.of(faults.SAMPLES, batch.chunk(data_parallel)[RANK // (WORLD_SIZE // data_parallel)], batch)
        with faults.kept_gradient(plain.head.bias):
            optimizer.zero_grad()
        parts = faults.of(faults.MICRO_BATCHES, mine.chunk(micro_batches))
        for i, part in enumerate(parts):
            if LAYOUT.startswith("ddp"):
                model.require_backward_grad_sync = i + 1 == len(parts) and "no sync" not in FAULTS
            loss = F.cross_entropy(model(part[:, :-1]).float().flatten(0, 1), part[:, 1:].flatten())
            (loss if "not divided" in FAULTS else loss / micro_batches).backward()
        if LAYOUT == "by-hand":
            average_by_hand(plain)
        faults.of(faults.GRADIENTS, plain)
        if "no step" not in FAULTS or RANK != 1:
            optimizer.step()
        faults.after_step(plain)
    if WORLD_SIZE > 1:
        dist.destroy_process_group()


main()

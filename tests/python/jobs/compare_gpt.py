"""A small GPT in one of several layouts, for compare_test.py: compare_gpt.py LAYOUT [FAULT]. The batch of a step is the same in
all of them. It knows nothing of Lockstep."""

import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

VOCABULARY, LENGTH, WIDTH, HEADS, BLOCKS, BATCH = 61, 16, 32, 4, 2, 8
LAYOUT, FAULT = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
SEED = int(os.environ.get("SEED", "0"))
RANK, WORLD_SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
NORM = os.environ.get("NORM", "layer")


class Attention(nn.Module):
    def forward(self, q, k, v):
        q, k, v = (each.unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for each in (q, k, v))
        offset = 1 if FAULT == "mask" and RANK == 1 else 0
        mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril(offset)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(-2)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.attention, self.dropout = Attention(), nn.Dropout(0.1)

    def forward(self, x):
        h = self.ln1(x)
        x = x + self.dropout(self.o(self.attention(self.q(h), self.k(h), self.v(h))))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.ln, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)
        if NORM == "batch":
            self.bn = nn.BatchNorm1d(WIDTH)

    def forward(self, tokens):
        # Its gradient has no samples: it is a sum over them.
        h = self.token(tokens) + self.place(torch.arange(LENGTH))
        if NORM == "batch":
            h = self.bn(h.transpose(1, 2)).transpose(1, 2)
        for block in self.blocks:
            h = block(h)
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


def main():
    torch.set_num_threads(1)
    if WORLD_SIZE > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(SEED + (1 if FAULT == "seed" and RANK == 1 and WORLD_SIZE > 1 else 0))
    model = plain = GPT()
    micro_batches = {"accumulate": 4, "ddp+accumulate": 2}.get(LAYOUT, 1)
    data_parallel = WORLD_SIZE
    if LAYOUT.startswith("ddp"):
        model = nn.parallel.DistributedDataParallel(model)
    elif LAYOUT == "fsdp":
        from torch.distributed.fsdp import fully_shard
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
    elif LAYOUT == "tp":
        from torch.distributed.tensor import init_device_mesh
        data_parallel = 1
        model = tensor_parallel(model, init_device_mesh("cpu", (WORLD_SIZE,)))
    elif LAYOUT == "tp+fsdp":
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor import init_device_mesh
        mesh = init_device_mesh("cpu", (WORLD_SIZE // 2, 2), mesh_dim_names=("dp", "tp"))
        data_parallel = WORLD_SIZE // 2
        tensor_parallel(model, mesh["tp"])
        for block in model.blocks:
            fully_shard(block, mesh=mesh["dp"])
        fully_shard(model, mesh=mesh["dp"])
    rate = 2e-3 if FAULT == "rate" else 1e-3
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, foreach=False)
    generator = torch.Generator().manual_seed(SEED + 1000)
    for step in range(5):
        batch = torch.randint(0, VOCABULARY, (BATCH, LENGTH + 1), generator=generator)
        place = RANK // (WORLD_SIZE // data_parallel)
        mine = batch.chunk(data_parallel)[0 if FAULT == "same shard" else place]
        if FAULT == "shifted" and RANK == 1:
            mine = mine.roll(1, 1)
        optimizer.zero_grad()
        for i, part in enumerate(mine.chunk(micro_batches)):
            if LAYOUT == "ddp+accumulate":
                model.require_backward_grad_sync = i + 1 == micro_batches
            loss = F.cross_entropy(model(part[:, :-1]).flatten(0, 1), part[:, 1:].flatten())
            (loss if FAULT == "not divided" else loss / micro_batches).backward()
        if LAYOUT == "by-hand":
            for each in model.parameters():
                if FAULT != "not reduced" or each is not plain.head.weight:
                    dist.all_reduce(each.grad)
                    each.grad /= 1 if FAULT == "sum" else data_parallel
        if FAULT == "norm not reduced":
            from torch.distributed.tensor import DTensor, Replicate
            weight = model.blocks[1].ln1.weight
            weight.grad = DTensor.from_local(weight.grad.to_local(), weight.device_mesh, [Replicate()])
        if FAULT == "no gradient" and RANK == 1:
            plain.head.bias.grad = None
        optimizer.step()
    if WORLD_SIZE > 1:
        dist.destroy_process_group()


main()

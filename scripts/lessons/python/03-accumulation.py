# %% [markdown]
# # Data parallelism in a language model's training script, in Python
#
# Language models are trained with batches far larger than a device can hold: half a million tokens for one step of the
# optimizer, a few thousand at a time. So a script *accumulates*: several forward and backward passes, then one step.
# This lesson takes such a script from one process to several. The model is a GPT of two layers that reads characters;
# the text is Lincoln's.
#
#     lockstep run scripts/lessons/python/03-accumulation.py -n 2
#
# The same with `-n 1`: a single process is a group of one, and nothing in the script asks which it is.
#
# ## The main process
# One process logs and saves. Scripts call it the *master process*. It goes by the rank over all machines and not by
# `local_rank`: every machine has a local rank 0.

# %% who speaks for all?
main_process = rank == 0
main_process

# %% the text: a number for each character
import pathlib

text = (pathlib.Path(arg("data", "scripts/data")) / "lincoln.txt").read_text()
alphabet = sorted(set(text))
number_of = {character: number for number, character in enumerate(alphabet)}
tokens = torch.tensor([number_of[character] for character in text], device=device)
print(len(tokens), "tokens,", len(alphabet), "different ones")

# %% a small GPT
from torch.nn import functional as F

context, width, heads = 32, 32, 4


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.attention, self.project = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        n, t, _ = x.shape
        q, k, v = self.attention(self.norm1(x)).view(n, t, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(y.transpose(1, 2).reshape(n, t, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.place = torch.nn.Embedding(len(alphabet), width), torch.nn.Embedding(context, width)
        self.layers = torch.nn.Sequential(Layer(), Layer())
        self.head = torch.nn.Linear(width, len(alphabet))
        self.to(device)

    def forward(self, x):
        return self.head(self.layers(self.token(x) + self.place(torch.arange(x.shape[1], device=x.device))))

# %% [markdown]
# ## Dividing the accumulation
# One update is to see 2,048 tokens, and a pass takes 4 rows of 32: 16 passes on one rank. Two ranks do 8 each, four do
# 4. Where the division does not come out even, some ranks would do more than others, so it is an error, and the error
# says which number to change.

# %% passes of each rank for one update
def accumulation_steps(tokens_per_update, tokens_per_pass, ranks=world_size):
    together = tokens_per_pass * ranks
    if tokens_per_update % together:
        raise ValueError(f"an update of {tokens_per_update} tokens does not divide into passes of {tokens_per_pass} "
                         f"tokens on {ranks} ranks: choose a multiple of {together}, or other batches or sequences")
    return tokens_per_update // together


tokens_per_update, rows_per_pass = 2048, 4
passes = accumulation_steps(tokens_per_update, rows_per_pass * context)
passes

# %% the figures of a real run: 2^19 tokens, 4 rows of 2,048; on one GPU, and on four
accumulation_steps(2**19, 4 * 2048, ranks=1), accumulation_steps(2**19, 4 * 2048, ranks=4)

# %% three can't share them tags=["raises-exception"]
accumulation_steps(2**19, 4 * 2048, ranks=3)

# %% [markdown]
# ## The loader
# Passes are numbered over all ranks; rank r takes r, r + world size, and so on. No token is read twice in an update,
# none is left out.

# %% a loader that knows its share
all_passes = tokens_per_update // (rows_per_pass * context)  # of all ranks together


def begins_of_pass(update, number):
    first = (update * all_passes + number) * rows_per_pass
    return [(first + row) * context % (len(tokens) - context - 1) for row in range(rows_per_pass)]


def rows_of_pass(update, number):  # characters, and the character after each
    begins = begins_of_pass(update, number)
    return (torch.stack([tokens[begin : begin + context] for begin in begins]),
            torch.stack([tokens[begin + 1 : begin + context + 1] for begin in begins]))


def my_pass(number):
    return rank + number * world_size

# %% the ranks together read every row of an update once
mine = [begin for number in range(passes) for begin in begins_of_pass(0, my_pass(number))]
theirs = [None] * world_size
dist.all_gather_object(theirs, mine)
rows_read = sum(theirs, [])
if len(set(rows_read)) != len(rows_read) or len(rows_read) * context != tokens_per_update:
    raise RuntimeError("a row was read twice, or left out")
len(rows_read)

# %% [markdown]
# ## Training
# Only the last pass of an update needs the ranks to talk. `require_backward_grad_sync` of the wrapper is off for the
# passes before it: their gradients stay on the rank and add up. The loss is divided by the number of passes, because
# sums add up where a mean is wanted.

# %% one update
from torch.nn.parallel import DistributedDataParallel


def loss_of(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def accumulate(net, update):
    total = torch.zeros((), device=device)
    for number in range(passes):
        net.require_backward_grad_sync = number == passes - 1
        x, y = rows_of_pass(update, my_pass(number))
        loss = loss_of(net(x), y) / passes
        loss.backward()
        total += loss.detach()
    dist.all_reduce(total)
    return total.item() / world_size

# %% train
updates = 12
set_seed(1337)
net = DistributedDataParallel(Gpt())
optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
losses = []
for update in range(updates):
    optimizer.zero_grad()
    losses.append(accumulate(net, update))
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
if losses[-1] > 0.9 * losses[0]:
    raise RuntimeError("the loss does not fall")
print(f"update 0: loss {losses[0]:.4f}, update 11: loss {losses[-1]:.4f}")

# %% a single process with the same tokens
def train_alone():
    set_seed(1337)
    net = Gpt()
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    losses = []
    for update in range(updates):
        optimizer.zero_grad()
        total = 0.0
        for number in range(all_passes):
            x, y = rows_of_pass(update, number)
            loss = loss_of(net(x), y) / all_passes
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        losses.append(total)
    return losses


apart = max(abs(a - b) for a, b in zip(losses, train_alone()))
if apart > 1e-3:
    raise RuntimeError(f"a single process has other losses: {apart}")
apart < 1e-3

# %% [markdown]
# Clipping comes after the last pass. Before it, each rank would clip gradients that are not the mean yet, each by a
# norm of its own.
#
# **Exercise 1.** How much would be sent if every pass were synchronised? The result is the same: a mean of sums is the
# sum of means.
#
# <details><summary>Answer</summary>
#
# As many times as much as there are passes: 8 times with two ranks. The next cell counts.
#
# </details>

# %% count the reductions of an update
reductions = 0


def counting_hook(state, bucket):  # called for each bucket that is reduced
    global reductions
    reductions += 1
    return dist.algorithms.ddp_comm_hooks.default_hooks.allreduce_hook(None, bucket)


import torch.distributed.algorithms.ddp_comm_hooks.default_hooks

counted = DistributedDataParallel(Gpt())
counted.register_comm_hook(None, counting_hook)
accumulate(counted, 0)
once = reductions
for number in range(passes):
    x, y = rows_of_pass(0, my_pass(number))
    loss_of(counted(x), y).backward()
every_time = reductions - once
if every_time != passes * once:
    raise RuntimeError("one reduction a pass was expected")
print(once, "for an update,", every_time, "when every pass is synchronised")

# %% [markdown]
# ## The same with a context manager
# `no_sync()` says for a block what `require_backward_grad_sync` says from here on. It is *forward* that must be inside:
# a block around `backward()` alone changes nothing.

# %% gradients of this rank alone
optimizer.zero_grad()
with net.no_sync():
    x, y = rows_of_pass(0, rank)
    loss_of(net(x), y).backward()

# %% what is not reduced yet is compared by %grads, too
%grads net --local

# %% and the pass that ends the window
x, y = rows_of_pass(0, rank + world_size)
loss_of(net(x), y).backward()

# %% now they are the mean over the ranks
%grads net

# %% [markdown]
# **Exercise 2.** This window is a slip that many scripts have had: it synchronises when `number % passes == 0`. What do
# the gradients hold at its end?

# %% a window that ends too early
optimizer.zero_grad()
for number in range(passes):
    net.require_backward_grad_sync = number % passes == 0
    x, y = rows_of_pass(0, my_pass(number))
    loss_of(net(x), y).backward()
net.require_backward_grad_sync = True

# %% what %grads says about it tags=["expects-finding=grads:mismatch"]
%grads net

# %% [markdown]
# <details><summary>Answer</summary>
#
# The first pass is synchronised, and its mean is the same everywhere. The passes after it add gradients of their own
# rank, which nobody averages. The gradients differ, and after the step the replicas do. The last pass is the one to
# synchronise: `number == passes - 1`, or `(number + 1) % passes == 0`.
#
# </details>
#
# ## Autocast, and torch.compile
# Autocast runs matrix products in a type of 16 bits, and the rest in float. `torch.compile` may stand around the
# wrapper or inside it; inside is what PyTorch's documentation advises, since the wrapper then still sees each gradient
# when it is ready. Neither changes what the ranks send.

# %% forward in bfloat16, backward and the reduction in float
optimizer.zero_grad()
with torch.autocast(device.type, dtype=torch.bfloat16):
    logits = net(x)
low = loss_of(logits.float(), y)
low.backward()
lost = abs(low.item() - loss_of(net.module(x), y).item())
if logits.dtype != torch.bfloat16 or lost > 0.05:
    raise RuntimeError("autocast did not do what it is for")
logits.dtype, net.module.head.weight.grad.dtype

# %% [markdown]
# ## What you have now
# 1. Passes per update: tokens of an update, divided by tokens of a pass and by the ranks; it must come out even.
# 2. Each rank reads rows of its own.
# 3. The loss is divided by the passes, and only the last pass is synchronised.
# 4. Clip, log and save after that; the main process speaks.
#
# Published runs of such scripts are about 1.9, 3.8 and 7.5 times as fast on 2, 4 and 8 GPUs as on one. What your
# machine gives is for you to measure: ranks that share the cores of one machine gain little.

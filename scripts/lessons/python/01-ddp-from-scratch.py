# %% [markdown]
# # Data-parallel training from scratch, in Python
#
# Distributed data parallelism (DDP) is one idea: every rank holds a complete copy of the model, a *replica*, and trains
# it on its own part of the data; before each step the ranks average their gradients, so that every replica takes the
# same step. In this lesson you build it in four versions, break it on purpose, and learn to see that it is broken. At
# the end you compare your version with PyTorch's own.
#
# Every cell below runs on all ranks at once, unless it says otherwise. In the folder that holds `scripts/`,
#
#     lockstep run scripts/lessons/python/01-ddp-from-scratch.py -n 2
#
# runs it from start to end. `lockstep --python -n 2` opens a prompt, at which one types the cells one by one, which is
# how it is meant. Two ranks will do; more work as well. `scripts/lessons/01-ddp-from-scratch.cpp` is the same lesson in
# C++.

# %% [markdown]
# ## Who am I?
# The ranks run the same code. What makes them different is a number. The session has asked `torch.distributed` for it,
# and cells find the names without an import: `rank`, `world_size`, `local_rank`, `device`, `torch`, and `dist` for
# `torch.distributed`. `get("ws")` asks the process group itself; `"rank"`, `"grank"` and `"lrank"` are the others.
#
# Values that are equal on all ranks are shown once. Values that differ are shown rank by rank.

# %% the world size: the same everywhere
if world_size < 2:
    raise RuntimeError("this lesson compares replicas, so it needs two ranks or more: -n 2")
get("ws"), world_size

# %% the rank: different everywhere
get("rank")

# %% the process: different, too
print("rank", rank, "of", world_size, "is local rank", local_rank, "and computes on", device)

# %% [markdown]
# **Exercise 1.** On one machine `rank` and `local_rank` are the same number, and much code uses one where it means the
# other. Two machines run four ranks each. What are the rank and the local rank of the second process on the second
# machine? Which one picks the GPU, which one decides who writes the checkpoint, which one picks the part of the data?
#
# The next cell sets a check of an answer. At a prompt, assign `rank_there` and `local_rank_there`, then type
# `%check second_machine`.
#
# <details><summary>Answer</summary>
#
# `rank_there` is 5 and `local_rank_there` is 1. The GPU goes by the local rank (there is no GPU number 5 in a machine
# that has four). The checkpoint and the data go by the rank: with the local rank, two processes would write the same
# file, and each part of the data would be read twice.
#
# </details>

# %% the check of exercise 1
%%check second_machine
assert local_rank_there == 1, "the local rank counts the processes of one machine, from 0"
assert rank_there == 4 + local_rank_there, "the rank counts all processes, and four are on the first machine"

# %% [markdown]
# ## Data and a model
# 1,797 handwritten digits of 8×8 pixels, 16 shades of grey each. Every rank reads all of them; which ones it trains on
# comes later.

# %% read the digits
import os
import pathlib


def read_digits(path):
    rows = [[float(field) for field in line.split(",")] for line in path.read_text().splitlines()]
    table = torch.tensor(rows, device=device)  # 64 pixels, then the digit
    return (table[:, :64] / 16).reshape(-1, 1, 8, 8), table[:, 64].long()


data = pathlib.Path(arg("data", "scripts/data"))
images, labels = read_digits(data / "digits.csv")
images.shape, labels.shape

# %% the model: two convolutions and a linear layer
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 64, 3, padding=1)
        self.conv2 = torch.nn.Conv2d(64, 128, 3, padding=1)
        self.fc = torch.nn.Linear(128 * 4 * 4, 10)
        self.to(device)

    def forward(self, images):
        x = torch.relu(self.conv1(images))
        x = torch.max_pool2d(torch.relu(self.conv2(x)), 2)
        return self.fc(x.flatten(1))

# %% [markdown]
# ## Version 1: the replicas must start equal
# Weights are drawn at random when a module is made. So the ranks get the same model only if they have drawn the same
# numbers, that is, if they had the same seed. Let us get that wrong on purpose: all ranks are seeded with 42, and then
# rank 0 alone with 43.

# %% the same seed everywhere
torch.manual_seed(42);

# %% but another one on rank 0
%%rank [0]
torch.manual_seed(43);

# %% [markdown]
# The wrapper checks what it is given: rank 0 sends its copy of each parameter to all others, and each rank compares it
# with its own, bit by bit.
#
# Look at where it raises: *after* the loop. A rank that left in the middle of the loop would no longer take part in the
# broadcasts that follow, and the others would wait for it. A collective is a promise that all ranks come.

# %% version 1
class SimpleDistributedDataParallelism:
    def __init__(self, module):
        self.module = module
        different = []
        for name, parameter in module.named_parameters():
            rank0_copy = parameter.detach().clone()
            dist.broadcast(rank0_copy, src=0)
            if not torch.equal(rank0_copy, parameter):
                different.append(name)
        if different:
            raise RuntimeError(f"{len(different)} parameters are not those of rank 0, first {different[0]}; call "
                               "torch.manual_seed with the same number on every rank before you create the model")

    def parameter_count(self):
        return len(list(self.module.parameters()))

# %% wrap a model that was made with different seeds tags=["raises-exception"]
net = Net()
wrapped = SimpleDistributedDataParallelism(net)

# %% [markdown]
# Rank 0 is content: its copy is its own copy. Every other rank has raised. Nobody hangs, and the ranks are still there.
# On rank 0 `wrapped` now has a value, on the others it has none: what a cell assigned before an error stays.
#
# Lockstep has a magic for this question. It asks all ranks, names each parameter that differs, and changes nothing.

# %% what %verify says tags=["expects-finding=verify:mismatch"]
%verify net

# %% the same seed, then the same model
torch.manual_seed(43)
net = Net()
first = SimpleDistributedDataParallelism(net)
first.parameter_count()

# %% and now?
%verify net

# %% [markdown]
# ## Version 2: a wrapper that feels like a module
# A class may be defined again, like any name. From now on `SimpleDistributedDataParallelism` is this one. The check
# moves into a function, so that the class stays short.

# %% the check of version 1
def require_rank0_copy(module):
    same = True
    for parameter in module.parameters():
        rank0_copy = parameter.detach().clone()
        dist.broadcast(rank0_copy, src=0)
        same = torch.equal(rank0_copy, parameter) and same
    if not same:
        raise RuntimeError("this is not rank 0's model; call torch.manual_seed with the same number on every rank "
                           "before you create it")

# %% version 2: call it, train it, evaluate it
class SimpleDistributedDataParallelism:
    def __init__(self, module):
        require_rank0_copy(module)
        self.module = module

    def __call__(self, *inputs):
        return self.module(*inputs)

    def train(self):
        self.module.train()

    def eval(self):
        self.module.eval()

# %% the new object can do more
replica = SimpleDistributedDataParallelism(net)
replica.train()
replica(images[:2]).shape

# %% [markdown]
# **Exercise 2.** `first` was made by version 1, and `replica` by version 2. Both classes have the same name. What are
# `first.parameter_count()`, `hasattr(first, "train")`, and `isinstance(first, SimpleDistributedDataParallelism)`?
# Assign the three to `answers`, a tuple, and type `%check old_object`.
#
# <details><summary>Answer</summary>
#
# `(6, False, False)`. An object keeps the class that made it, so `first` remains what it was. The name stands for
# another class now. That is why code that has been run cell by cell can behave differently from the same file run from
# its first line: make objects again after their class has changed.
#
# </details>

# %% the check of exercise 2
%%check old_object
expected = (first.parameter_count(), hasattr(first, "train"), isinstance(first, SimpleDistributedDataParallelism))
assert len(answers) == 3, "three values: the count, then two of True and False"
for given, right, of in zip(answers, expected, ("the count", "hasattr", "isinstance")):
    assert type(given) is type(right) and given == right, f"{of} is {right}: which class made this object?"

# %% [markdown]
# ## A step without averaging
# Forward, backward, a step of the optimizer: this is how one model is trained, on one rank. Each rank does that with a
# digit of its own: rank 0 the first, rank 1 the second, and so on.

# %% every rank its own sample
def plain_step(model, optimizer, images, labels):
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
my_image, my_label = images[rank : rank + 1], labels[rank : rank + 1]
plain_step(replica, optimizer, my_image, my_label)

# %% [markdown]
# The losses differ, as they should: the samples differ. But what about the replicas? Every rank collects everybody's
# copy of each tensor and compares them with rank 0's. All ranks see the same copies, so all of them come to the same
# verdict.

# %% a check by hand
def check_same(tensors):
    for index, (name, tensor) in enumerate(tensors):
        copies = [torch.empty_like(tensor) for _ in range(world_size)]
        dist.all_gather(copies, tensor.detach())
        for other in range(1, world_size):
            if not torch.allclose(copies[other], copies[0], rtol=1e-5, atol=1e-6):
                largest = (copies[other] - copies[0]).abs().max().item()
                raise RuntimeError(f"rank {other}, tensor {index} ({name}) differs from rank 0 by up to {largest:.3g}")
    print(index + 1, "tensors are the same on", world_size, "ranks")

# %% are the replicas still the same? tags=["raises-exception"]
check_same(net.named_parameters())

# %% [markdown]
# One step, and they have parted. From here on each rank trains a model of its own, and no error will ever be raised by
# itself. The check by hand sends every parameter to every rank, and stops at the first that differs. `%verify` sends
# 128 bits for each tensor and names all of them.

# %% which parameters have parted? tags=["expects-finding=verify:mismatch"]
%verify net

# %% [markdown]
# The reason is in the gradients: each rank has those of its own sample.

# %% are the gradients the same? tags=["expects-finding"]
%grads net

# %% [markdown]
# ## Version 3: average the gradients
# Sum each gradient over all ranks, divide by their number. It has to happen between `backward()` and `step()`.

# %% version 3
class SimpleDistributedDataParallelism:
    def __init__(self, module):
        require_rank0_copy(module)
        self.module = module

    def __call__(self, *inputs):
        return self.module(*inputs)

    def train(self):
        self.module.train()

    def eval(self):
        self.module.eval()

    def sync_gradients(self):
        for parameter in self.module.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= world_size

# %% the same step, with the average
def averaged_step(replica, optimizer, images, labels):
    loss = torch.nn.functional.cross_entropy(replica(images), labels)
    optimizer.zero_grad()
    loss.backward()
    replica.sync_gradients()
    optimizer.step()
    return loss.item()


torch.manual_seed(43)
net = Net()
replica = SimpleDistributedDataParallelism(net)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
averaged_step(replica, optimizer, my_image, my_label)

# %% and the same check
check_same(net.named_parameters())

# %% and %verify, of the model and of the optimizer's state
%verify net optimizer

# %% and %grads
%grads net

# %% [markdown]
# **Exercise 3.** Somebody freezes a layer (`net.conv1.requires_grad_(False)`) and the next step raises in
# `sync_gradients()`. What is `parameter.grad` there? If the layer were frozen on rank 1 alone, and `sync_gradients()`
# skipped parameters without a gradient, what would the ranks do? Write the loop so that it is right in the first case,
# and say what can be done about the second.
#
# <details><summary>Answer</summary>
#
# `None`: backward makes no gradient for it. `if parameter.grad is not None` is right where all ranks freeze the same
# layers. Otherwise rank 0 would call `all_reduce` for `conv1.weight` and rank 1 for `conv2.weight`: the first
# collective that does not match hangs, fails, or adds up tensors that have nothing to do with each other. The ranks
# have to agree first on what they reduce, or reduce zeros where a gradient is missing. PyTorch's wrapper asks which
# parameters are used (`find_unused_parameters=True`), and `%verify net` compares `requires_grad` of all ranks.
#
# </details>

# %% [markdown]
# ## Giving memory back
# A model costs its parameters, as much again for the gradients, and twice as much for Adam's two moments. It all goes
# when the last reference goes: here `net` and `replica` hold the module, and the optimizer holds its parameters.

# %% what holds how much?
%memory net optimizer

# %% let go of everything
import ctypes
import gc
import weakref


def resident_mb():  # of this process
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


with_the_model = resident_mb()
watched = weakref.ref(net)  # sees the module, does not hold it
del net, replica, optimizer
gc.collect()
ctypes.CDLL(None).malloc_trim(0)  # gives free memory back to the system, as torch.cuda.empty_cache() does on a GPU
without_it = resident_mb()

if watched() is not None:
    raise RuntimeError("the module is still alive")
print(f"rank {rank}: {with_the_model:.1f} MB before, {with_the_model - without_it:.1f} MB given back")

# %% [markdown]
# `first` is still there, and so is `wrapped` on rank 0, but each of them holds another module. Where memory does not
# come back, something else holds it: a list of losses that were not turned into numbers by `item()`, a batch, an
# exception that was stored.
#
# ## Does it pay?
# 21 batches of 16 digits: first on one rank alone, then on all ranks, each with its share of every batch (8 on two
# ranks). The digits are shuffled and cut into contiguous shards, one per rank; the last rank takes what remains. All
# ranks shuffle with the same seed, so that they cut the same deck.

# %% shards, and a stopwatch
import time


def shard(index, count):
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(42))
    length = len(order) // count
    return order[index * length :] if index == count - 1 else order[index * length : (index + 1) * length]


def seconds_per_batch(step, model, optimizer, samples, batch_size, batches=21):
    start = time.perf_counter()
    for batch in samples.split(batch_size)[:batches]:
        step(model, optimizer, images[batch], labels[batch])
    return (time.perf_counter() - start) / batches


batch_size = 16
share = max(1, batch_size // world_size)
share

# %% every digit is in one shard, and in one only
mine = shard(rank, world_size)
lockstep.data(mine, size=len(labels), batch_size=share);

# %% one rank alone
%%rank [0]
torch.manual_seed(43)
alone_net = Net()
alone_optimizer = torch.optim.Adam(alone_net.parameters(), lr=1e-3)
alone = seconds_per_batch(plain_step, alone_net, alone_optimizer, shard(0, 1), batch_size)
print(f"{alone:.4f} s per batch")

# %% all ranks, each with its share
torch.manual_seed(43)
net = Net()
replica = SimpleDistributedDataParallelism(net)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
together = seconds_per_batch(plain_step, replica, optimizer, mine, share)
print(f"{together:.4f} s per batch")

# %% [markdown]
# Each rank has a share of the work. Whether that shows in the time depends on the machine: two ranks on two busy cores
# gain little or nothing, two GPUs nearly half.
#
# **Exercise 4.** The cell above is fast, runs without an error, and is wrong. What is missing? Run the next two cells
# before you look. Then change the cell above, run it again, and `%check one_model` until it passes.

# %% the check of exercise 4
%%check one_model
check_same(net.named_parameters())
with torch.random.fork_rng():
    torch.manual_seed(43)
    untrained = Net()
assert not torch.equal(net.fc.weight, untrained.fc.weight), "the replicas are the same, but nothing has trained them"

# %% did that train one model? tags=["raises-exception"]
%check one_model

# %% [markdown]
# <details><summary>Answer</summary>
#
# `plain_step` is the step of one model on one rank: it never calls `sync_gradients()`. Each rank trained on its own
# shard alone, and the time was bought by leaving out the communication. A wrapper does not help a loop that does not
# use it. A measurement of something that does not work is easy to make and hard to notice: check the replicas after
# every benchmark.
#
# </details>

# %% all ranks, each with its share, as one model
torch.manual_seed(43)
net = Net()
replica = SimpleDistributedDataParallelism(net)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
together = seconds_per_batch(averaged_step, replica, optimizer, mine, share)

# %% and the answer
%check one_model

# %% side by side
%%rank [0]
print(f"1 rank:  {alone:.4f} s per batch of {batch_size}")
print(f"{world_size} ranks: {together:.4f} s per batch of {world_size} x {share}")

# %% [markdown]
# ## Since which step?
# A model that has drifted for an hour shows *that* it drifted. `lockstep.watch` compares the replicas while they train,
# and names the step. In step 6 below rank 1 clips its weights, in code that the other ranks do not run.

# %% a training that drifts tags=["expects-finding=verify:mismatch"]
watching = lockstep.watch(net, optimizer, every=2)
for step in range(1, 9):
    batch = mine[step * share : (step + 1) * share]
    averaged_step(replica, optimizer, images[batch], labels[batch])
    if rank == 1 and step == 6:
        with torch.no_grad():
            net.fc.weight.clamp_(-0.01, 0.01)
watching.close()

# %% [markdown]
# The finding says at which step the replicas were still equal, and at which they were not any more. The gradients have
# been averaged all the time: an average keeps equal replicas equal, and does not bring others together. A broadcast
# does.

# %% rank 0's parameters for all
with torch.no_grad():
    for parameter in net.parameters():
        dist.broadcast(parameter, src=0)

# %% is that enough?
%verify net

# %% [markdown]
# For the parameters, yes. Adam's moments follow from gradients alone, which were equal. With a fault in the gradients
# the state of the optimizer would have to be sent, too.
#
# ## Version 4: gradient accumulation
# When a batch does not fit into memory, it is cut into micro-batches whose gradients add up, and the step is taken
# after the last one. Averaging after every micro-batch would work, but all the averages but the last are wasted time.
# So the wrapper gets a switch, and a context manager that turns it off and puts it back as it was, also when an
# exception leaves the block.

# %% version 4
import contextlib


class SimpleDistributedDataParallelism:
    def __init__(self, module):
        require_rank0_copy(module)
        self.module = module
        self.do_sync = True

    def __call__(self, *inputs):
        return self.module(*inputs)

    def train(self):
        self.module.train()

    def eval(self):
        self.module.eval()

    def sync_gradients(self):
        if not self.do_sync:
            return
        for parameter in self.module.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= world_size

    def enable_grad_sync(self):
        self.do_sync = True

    def disable_grad_sync(self):
        self.do_sync = False

    @contextlib.contextmanager
    def no_sync(self):
        before = self.do_sync
        self.do_sync = False
        try:
            yield
        finally:
            self.do_sync = before

# %% the block puts back what was there before
torch.manual_seed(43)
net = Net()
replica = SimpleDistributedDataParallelism(net)
seen = []
with replica.no_sync():
    seen.append(replica.do_sync)
    with contextlib.suppress(ValueError), replica.no_sync():
        seen.append(replica.do_sync)
        raise ValueError("leaves the inner block")
    seen.append(replica.do_sync)  # still off: the outer block is open
seen.append(replica.do_sync)
if seen != [False, False, False, True]:
    raise RuntimeError("no_sync() does not restore")
seen

# %% [markdown]
# Now the proof. Each rank runs a window of four micro-batches and averages after the last; the loss is divided by four,
# since gradients add up. Beside it, one model takes a single step with all those digits as one large batch. Plain SGD,
# so that the models can be compared number by number.

# %% accumulate over four micro-batches
window, micro_batch = 4, 4


def micro_step(replica, index):
    begin = (index * world_size + rank) * micro_batch  # the ranks take turns, one micro-batch each
    scores = replica(images[begin : begin + micro_batch])
    loss = torch.nn.functional.cross_entropy(scores, labels[begin : begin + micro_batch]) / window
    loss.backward()
    replica.sync_gradients()


with replica.no_sync():
    for index in range(window - 1):
        micro_step(replica, index)
micro_step(replica, window - 1)
torch.optim.SGD(net.parameters(), lr=0.1).step()
check_same(net.named_parameters())

# %% one step with the large batch
torch.manual_seed(43)
large = Net()
count = window * micro_batch * world_size
torch.nn.functional.cross_entropy(large(images[:count]), labels[:count]).backward()
torch.optim.SGD(large.parameters(), lr=0.1).step()

for name, parameter in large.named_parameters():
    if not torch.allclose(net.get_parameter(name), parameter, rtol=1e-4, atol=1e-6):
        raise RuntimeError(f"{name}: accumulation does not equal the large batch")
print(f"four micro-batches on {world_size} ranks: the same step as one batch of {count}")

# %% [markdown]
# **Exercise 5.** Much code writes the window as below: one loop, and a condition for when to average. Which micro-batch
# does `index % window == 0` pick? What do the gradients look like at the end of the window, and which condition is
# right? `%check one_gradient` passes with the right one.

# %% a condition that looks right
torch.manual_seed(43)
net = Net()
replica = SimpleDistributedDataParallelism(net)

for index in range(window):
    if index % window == 0:
        replica.enable_grad_sync()
    else:
        replica.disable_grad_sync()
    micro_step(replica, index)

# %% the check of exercise 5
%%check one_gradient
check_same((name, parameter.grad) for name, parameter in net.named_parameters())
for name, parameter in large.named_parameters():  # of the large batch, from the same start
    is_equal = torch.allclose(net.get_parameter(name).grad, parameter.grad, rtol=1e-4, atol=1e-6)
    assert is_equal, f"{name}: the ranks have the same gradient, but it is not that of the large batch"

# %% does it pass? tags=["raises-exception"]
%check one_gradient

# %% and what does %grads say? tags=["expects-finding"]
%grads net

# %% [markdown]
# <details><summary>Answer</summary>
#
# It picks the first micro-batch. The average of that one is then added to the local gradients of the other three, which
# nobody averages: the gradients differ at the end of the window, and so do the replicas after the step. The last
# micro-batch is the one where `(index + 1) % window == 0`.
#
# </details>

# %% the right one
torch.manual_seed(43)
net = Net()
replica = SimpleDistributedDataParallelism(net)

for index in range(window):
    if (index + 1) % window == 0:
        replica.enable_grad_sync()
    else:
        replica.disable_grad_sync()
    micro_step(replica, index)

# %% and these?
%check one_gradient

# %% [markdown]
# **Exercise 6.** `micro_step` is given the replica. Suppose that it simply used the name `replica`. Which object would
# the last cell have trained? And which one in the C++ lesson, where cells are compiled?
#
# <details><summary>Answer</summary>
#
# The new one: Python looks a name up when the function runs, in the names of the module. So a function that only uses
# the name trains another model as soon as a later cell gives the name to it. C++ binds the name when it compiles the
# function, so there it would have been the old object. In both languages it is clearer to hand over what a function
# works on.
#
# </details>

# %% [markdown]
# ## PyTorch's own
# `torch.nn.parallel.DistributedDataParallel` does what you have built, with three things more. It *sends* rank 0's
# parameters and buffers at the start, and so needs no equal seeds. It reduces gradients in buckets while backward still
# runs, so that communication and computation overlap. And it reduces by itself, in hooks of the gradients, so that
# nobody can forget it.

# %% the same window with it
from torch.nn.parallel import DistributedDataParallel

torch.manual_seed(43 + rank)  # on purpose: rank 0's parameters are sent
theirs = DistributedDataParallel(Net())


def their_step(index):
    begin = (index * world_size + rank) * micro_batch
    scores = theirs(images[begin : begin + micro_batch])
    (torch.nn.functional.cross_entropy(scores, labels[begin : begin + micro_batch]) / window).backward()


with theirs.no_sync():
    for index in range(window - 1):
        their_step(index)
their_step(window - 1)

for name, parameter in theirs.module.named_parameters():
    if not torch.allclose(parameter.grad, net.get_parameter(name).grad, rtol=1e-4, atol=1e-6):
        raise RuntimeError(f"{name}: the gradients are not those of our version")
print("the same gradients as ours")

# %% what Lockstep says about it
%verify theirs
%grads theirs

# %% [markdown]
# ## What you have now
# Four rules, each of which you have seen broken:
#
# 1. Replicas start equal. (Seeds, or a broadcast.)
# 2. Gradients are averaged once per step, after the last micro-batch and before the optimizer.
# 3. A collective is called by all ranks, or by none.
# 4. Nobody reports it when you break the first two. So look: compare the replicas.
#
# How to go on: `scripts/python/` has trainings with a fault each, as they happen in real life (a drift, a hang, a NaN),
# and docs/python.md shows the way to the culprit.

# %% [markdown]
# # Inside DistributedDataParallel, in Python
#
# What PyTorch's wrapper does between `backward()` and the optimizer's step, and what its options change. Each with a
# number to look at.
#
#     lockstep run scripts/lessons/python/04-inside-ddp.py -n 2

# %% a model with a spare layer
from torch.nn.parallel import DistributedDataParallel

if world_size < 2:
    raise RuntimeError("one rank has nothing to reduce: run this lesson with -n 2 or more")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.middle = torch.nn.Linear(64, 256), torch.nn.Linear(256, 256)
        self.last, self.spare = torch.nn.Linear(256, 10), torch.nn.Linear(256, 10)
        self.use_spare = True
        self.to(device)

    def forward(self, x):
        y = torch.relu(self.middle(torch.relu(self.first(x))))
        return self.last(y) + self.spare(y) if self.use_spare else self.last(y)

# %% a step, and two things to look at
def step(net):
    net.zero_grad()
    net(torch.randn(32, 64, device=device)).square().mean().backward()


def largest_difference(mine):  # between this rank and any other
    theirs = [torch.empty_like(mine) for _ in range(world_size)]
    dist.all_gather(theirs, mine.contiguous())
    return max((each - mine).abs().max().item() for each in theirs)


class Buckets:
    """Counts what is reduced: a hook that does what the wrapper does without one."""

    def __init__(self, net):
        self.sizes = []
        net.register_comm_hook(None, self.hook)

    def hook(self, state, bucket):
        self.sizes.append(bucket.buffer().numel())
        return allreduce_hook(None, bucket)


from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook, fp16_compress_hook

# %% [markdown]
# ## Buckets
# To reduce gradients one by one would be slow: each message has its price. To reduce them all at once could not begin
# before the last one is there. So they go in *buckets*. Backward produces gradients from the last layer to the first,
# so the first bucket holds the last layers. The order is not known before the first step; after it the buckets are made
# anew, in the order in which gradients came.

# %% the buckets of a step
set_seed(rank)  # no need for equal seeds: the wrapper gives all ranks rank 0's values
net = DistributedDataParallel(Net(), bucket_cap_mb=0.05)
buckets = Buckets(net)
step(net)
before = len(buckets.sizes)
step(net)
sizes = buckets.sizes[before:]
print(before, "buckets in the first step, then", len(sizes), "of", sizes, "numbers")
if sum(sizes) != sum(each.numel() for each in net.parameters()):
    raise RuntimeError("each gradient was to be in one bucket")

# %% replicas and reduced gradients are equal, bit by bit
if largest_difference(net.module.first.weight.detach()) != 0 or largest_difference(net.module.first.weight.grad) != 0:
    raise RuntimeError("replicas or gradients differ")

# %% and %verify and %grads say so of all of them
%verify net
%grads net

# %% the cap decides how many there are
buckets_with_cap = {}
for megabytes in (0.001, 0.05, 25):
    capped = DistributedDataParallel(Net(), bucket_cap_mb=megabytes)
    counted = Buckets(capped)
    step(capped)
    counted.sizes.clear()
    step(capped)
    buckets_with_cap[megabytes] = len(counted.sizes)
if not buckets_with_cap[0.001] > buckets_with_cap[0.05] > buckets_with_cap[25]:
    raise RuntimeError("smaller buckets were to be more")
buckets_with_cap

# %% [markdown]
# **Exercise 1.** Small buckets begin to travel earlier. Why not make them all as small as can be?
#
# <details><summary>Answer</summary>
#
# Each bucket is a collective, and each collective takes a time that does not depend on its size: tens of microseconds
# between processes of one machine, more over a network. With two hundred buckets that time is all there is. Large
# buckets waste nothing on it, but the last one is sent when there is nothing left to compute. 25 MB is a compromise for
# fast networks; it is worth measuring on yours.
#
# </details>
#
# ## Overlap
# While a bucket travels, backward goes on with the layers before. c10d keeps a record of it: how long backward
# computed, how long buckets were on their way, and for how long both at once.

# %% what c10d saw
net = DistributedDataParallel(Net(), bucket_cap_mb=0.05)
for _ in range(12):
    step(net)
record = net._get_ddp_logging_data()
names = ("compute", "comm", "compute_comm_overlap")
computed, sent, both = (record.get(f"avg_backward_{name}_time", 0) * 1e-6 for name in names)
print(f"backward {computed:.2f} ms, reduction {sent:.2f} ms, both at once {both:.2f} ms")

# %% [markdown]
# ## gradient_as_bucket_view
# Without it there is each gradient, and its copy in a bucket. With it the two are the same memory: one copy of the
# gradients less, and no copying.

# %% gradients outside of the buckets, in bytes
def bytes_outside_of_buckets(net):
    gradients = [each.grad for each in net.parameters()]
    return sum(each.nbytes for each in gradients if each.untyped_storage().nbytes() == each.nbytes)  # memory of its own


copies = DistributedDataParallel(Net())
views = DistributedDataParallel(Net(), gradient_as_bucket_view=True)
step(copies)
step(views)
if bytes_outside_of_buckets(views) != 0:
    raise RuntimeError("a gradient is not in its bucket")
bytes_outside_of_buckets(copies), bytes_outside_of_buckets(views)

# %% [markdown]
# ## Unused parameters
# A bucket waits for all of its gradients. A parameter that takes no part in the loss never has one, so the reduction
# never ends. The next forward says so.

# %% the next forward raises
net = DistributedDataParallel(Net())
net.module.use_spare = False
step(net)
message = ""
try:
    step(net)
except RuntimeError as error:
    message = str(error)
if "Expected to have finished reduction in the prior iteration" not in message:
    raise RuntimeError(f"another error: {message}")
message[:72]

# %% and %grads names them, where only some of the ranks use a layer
apart = Net()
apart.use_spare = rank == 0
step(apart)
%grads apart --local

# %% find_unused_parameters looks for them in each graph
searching = DistributedDataParallel(Net(), find_unused_parameters=True)
searching.module.use_spare = False
for _ in range(2):
    step(searching)

# %% static_graph learns them once
fixed = DistributedDataParallel(Net(), static_graph=True)
fixed.module.use_spare = False
for _ in range(3):
    step(fixed)

# %% [markdown]
# **Exercise 2.** Which of the two would you choose for a model that skips layers at random, and which for one with a
# head that is never trained?
#
# <details><summary>Answer</summary>
#
# At random: `find_unused_parameters`, which walks through every graph, and pays for it every time. A head that is never
# trained is the same in every step: `static_graph` learns it in the first one. Cheaper than both:
# `requires_grad_(False)` before wrapping.
#
# </details>
#
# ## no_sync: fewer collectives
# Four micro-batches, reduced each time, or once at the end.

# %% count them
net = DistributedDataParallel(Net())
counted = Buckets(net)
step(net)
step(net)


def reductions_of_window(first_synchronised):
    net.zero_grad()
    counted.sizes.clear()
    for micro in range(4):
        net.require_backward_grad_sync = micro >= first_synchronised
        (net(torch.randn(32, 64, device=device)).square().mean() / 4).backward()
    net.require_backward_grad_sync = True
    return len(counted.sizes)


every_time, once = reductions_of_window(0), reductions_of_window(3)
if every_time != 4 * once:
    raise RuntimeError("four times the collectives were expected")
every_time, once

# %% [markdown]
# ## Communication hooks
# A hook takes over the reduction of a bucket. This one sends 16 bits for each number: half as many bytes, and what is
# lost is in the last digits.

# %% half precision on the wire
def lost_with(hook, state=None):
    set_seed(5)
    exact = DistributedDataParallel(Net())
    set_seed(5)
    hooked = DistributedDataParallel(Net())
    hooked.register_comm_hook(state, hook)
    for each in (exact, hooked):
        set_seed(6 + rank)
        step(each)
    wanted = exact.module.middle.weight.grad
    return ((wanted - hooked.module.middle.weight.grad).norm() / wanted.norm()).item()


lost = lost_with(fp16_compress_hook)
if lost > 1e-3:
    raise RuntimeError(f"too much was lost: {lost}")
lost < 1e-3

# %% PowerSGD sends two thin matrices in place of each gradient
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

power = powerSGD_hook.PowerSGDState(process_group=None, matrix_approximation_rank=2, start_powerSGD_iter=2)
thin = DistributedDataParallel(Net())
thin.register_comm_hook(power, powerSGD_hook.powerSGD_hook)
for _ in range(6):
    step(thin)
rate, before, after = power.compression_stats()
if rate < 10:
    raise RuntimeError("it did not compress")
print(f"{before} numbers sent as {after}: {rate:.1f} times less")

# %% [markdown]
# **Exercise 3.** A hook may send nothing: it returns a future that holds the bucket as it is. Why would anyone want it,
# and why never in training?
#
# <details><summary>Answer</summary>
#
# A step with it costs what the wrapper costs without communication, so the difference to a real step is the
# communication that backward could not hide. Gradients stay as they are on each rank: the replicas part at once.
#
# </details>

# %% gradients of one rank alone are not the mean
def nothing_hook(state, bucket):
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


far_off = lost_with(nothing_hook)
if far_off < 0.01:
    raise RuntimeError("this hook was to send nothing")
far_off > 0.01

# %% [markdown]
# ## Buffers
# Running statistics of a BatchNorm are no parameters: nobody averages them. Before each forward all ranks take rank
# 0's, unless `broadcast_buffers` is off. Statistics over the whole batch, and not of one rank's part, are what
# `SyncBatchNorm` is for (on GPUs).

# %% the running mean of a BatchNorm
def batch_norm(**options):
    wrapped = DistributedDataParallel(torch.nn.BatchNorm1d(4).to(device), **options)
    wrapped(torch.full((8, 4), float(rank), device=device) + torch.randn(8, 4, device=device)).sum().backward()
    return wrapped


set_seed(8)
with_statistics_of_its_own = batch_norm(broadcast_buffers=False)
if largest_difference(with_statistics_of_its_own.module.running_mean) == 0:
    raise RuntimeError("each rank has seen other numbers")

# %% what the wrapper does about it is known to %verify
%verify with_statistics_of_its_own

# %% [markdown]
# ## Scaling
# *Strong* scaling: the same work on N ranks, T₁ / (N·T_N). *Weak* scaling: N times the work, T₁ / T_N. One is ideal.
# Ranks that share cores, as here, show what sharing costs and not what more machines would bring.

# %% a stopwatch
import time


def seconds_of(net, rows):
    x = torch.randn(rows, 64, device=device)
    for count in (3, 10):  # the first three warm up
        start = time.perf_counter()
        for _ in range(count):
            net.zero_grad()
            net(x).square().mean().backward()
    return (time.perf_counter() - start) / 10

# %% one rank alone, while the others wait
rows = 512
alone = torch.zeros(1, dtype=torch.float64, device=device)
if rank == 0:
    alone[0] = seconds_of(Net(), rows)
dist.broadcast(alone, 0)

# %% efficiency on this machine
t1 = alone.item()
strong = seconds_of(DistributedDataParallel(Net()), rows // world_size)
weak = seconds_of(DistributedDataParallel(Net()), rows)
if rank == 0:
    print(f"strong {t1 / (world_size * strong):.2f}, weak {t1 / weak:.2f} on {world_size} ranks of one machine")

# %% [markdown]
# `%time_sync` is not for Python cells; `lockstep.time_sync(step_function)` measures a step with and without the
# reduction, without a stopwatch of your own.
#
# **Exercise 4.** `t1` was measured while the other ranks waited in a `broadcast`. Why does that matter, and what would
# have made it matter more?
#
# <details><summary>Answer</summary>
#
# One rank alone may use what the ranks share: caches, memory bandwidth, the clock that a processor raises while its
# other cores rest. So one rank is faster than each of several would be even without communication, and the efficiency
# looks worse than the communication alone makes it. It would matter more if the waiting ranks did not sleep but looked
# again and again whether the message has come, as NCCL does on a GPU.
#
# </details>
#
# ## What you have now
# Buckets in the order of backward; one collective each, hidden behind what is left to compute; gradients that can live
# in the buckets; a search for what is unused, or a graph that is fixed; fewer collectives with `no_sync`, fewer bytes
# with hooks.

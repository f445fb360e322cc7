# %% [markdown]
# # From one device to many, in Python
#
# You have a training program for one device. What has to change before it runs on two, or on sixty-four? Four things:
# the ranks are started, the model is wrapped, the data is divided, and one rank alone saves. Everything else stays, and
# so does the loss.
#
# The data is *Wine*: 178 wines, 13 measurements of each, from three growers.
#
#     lockstep run scripts/lessons/python/02-one-device-to-many.py -n 2
#
# Try `-n 1` and `-n 4` as well: the losses are the same to rounding.

# %% read the table
import pathlib


def read_wine(path):
    rows = [[float(field) for field in line.split(",")] for line in path.read_text().splitlines()[1:]]
    table = torch.tensor(rows, device=device)
    x = table[:, :13]
    return (x - x.mean(0)) / x.std(0), table[:, 13].long()  # standardised; 0 to 2


x, y = read_wine(pathlib.Path(arg("data", "scripts/data")) / "wine.csv")
x.shape

# %% [markdown]
# Four fifths are for training. Every rank draws the split itself, so all must draw the same numbers: the seed is the
# same everywhere.

# %% 142 wines to train on, 36 to test with
set_seed(42)
split = torch.randperm(len(x)).to(device)
train_size = 142
train_x, train_y = x[split[:train_size]], y[split[:train_size]]
test_x, test_y = x[split[train_size:]], y[split[train_size:]]
split[:5]

# %% the model
def make_net():
    return torch.nn.Sequential(torch.nn.Linear(13, 64), torch.nn.ReLU(), torch.nn.Linear(64, 3)).to(device)

# %% [markdown]
# ## The trainer
# It is written for one device. It is given the model, and a function that says which batches an epoch has: tensors of
# row numbers, one for each step. An epoch gives back its mean loss.

# %% a trainer
class Trainer:
    def __init__(self, net, batches_of):
        self.net, self.batches_of = net, batches_of
        self.optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
        self.losses = []

    def epoch(self, number):
        batches = self.batches_of(number)
        total = torch.zeros((), device=device)
        for rows in batches:
            self.optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(self.net(train_x[rows]), train_y[rows])
            loss.backward()
            self.optimizer.step()
            total += loss.detach()
        return total.item() / len(batches)

    def run(self, epochs):
        self.losses += [self.epoch(number) for number in range(epochs)]

# %% the batches of one device: 32 wines each, in a new order every epoch
batch_size = 32


def whole_batches(epoch):
    order = torch.randperm(train_size, generator=torch.Generator().manual_seed(epoch)).to(device)  # the same everywhere
    return [rows for rows in order.split(batch_size) if len(rows) == batch_size]


len(whole_batches(0))

# %% [markdown]
# ## One device
# Every rank now trains a model alone, without a word to the others. With the same seed they all do the same, so there
# is one line and not several.

# %% train on one device
set_seed(42)
alone = Trainer(make_net(), whole_batches)
alone.run(30)
print(f"epoch 0: loss {alone.losses[0]:.4f}, epoch 29: loss {alone.losses[-1]:.4f}")

# %% it has learnt
def share_right(net):  # of the wines that it has not seen
    with torch.no_grad():
        return (net(test_x).argmax(1) == test_y).float().mean().item()


if alone.losses[-1] > 0.5 * alone.losses[0]:
    raise RuntimeError("the loss did not fall by half")
if share_right(alone.net) < 0.8:
    raise RuntimeError("it does not know wines that it has not seen")
share_right(alone.net)

# %% [markdown]
# ## Many devices
# 1. **Start the ranks.** Lockstep has done it; outside of it `torchrun` or `srun` does, and the program calls
#    `dist.init_process_group()`.
# 2. **Wrap the model.** `DistributedDataParallel` gives every rank rank 0's weights, and averages gradients during
#    `backward()`.
# 3. **Divide the data.** The batch stays as large as it was; each rank takes its part of it. The mean of the means of
#    equal parts is the mean, so the step is the one that a single device would take.
# 4. **One rank saves.**

# %% each rank's part of every batch
if batch_size % world_size != 0:
    raise RuntimeError(f"a batch of 32 does not divide by {world_size} ranks: use -n 1, 2, 4, 8, 16 or 32")


def my_batches(epoch):
    share = batch_size // world_size
    return [rows[rank * share : (rank + 1) * share] for rows in whole_batches(epoch)]


len(my_batches(0)[0])

# %% train on all of them
from torch.nn.parallel import DistributedDataParallel

set_seed(42 + rank)  # only rank 0's weights count: the wrapper gives them to all
if rank == 0:
    set_seed(42)
together = Trainer(DistributedDataParallel(make_net()), my_batches)
together.run(30)

# Each rank knows the loss of its own rows. The mean over the ranks is the loss of the whole batch.
losses = torch.tensor(together.losses, dtype=torch.float64, device=device)
dist.all_reduce(losses)
losses /= world_size
print(f"epoch 0: loss {losses[0]:.4f}, epoch 29: loss {losses[29]:.4f}")

# %% the losses are those of one device
apart = (losses.cpu() - torch.tensor(alone.losses, dtype=torch.float64)).abs().max().item()
if apart > 1e-4:
    raise RuntimeError(f"they differ from those of one device by {apart}")
apart < 1e-4

# %% and every rank has the same model
%verify together.net

# %% what it is worth
share_right(together.net)

# %% [markdown]
# **Exercise 1.** A colleague leaves `my_batches` out and gives every rank `whole_batches`. It runs. What does each step
# compute, and what has the colleague paid for it? What if, instead, every rank draws an order of its own and takes 32
# wines of it?
#
# <details><summary>Answer</summary>
#
# All ranks compute the same gradients, and their mean is that same gradient: the result of one device, at the price of
# several. With orders of their own the ranks see different wines, so the batch is 32 times the number of ranks: fewer
# steps in an epoch, each of them surer. That is a fair way to use more devices, but no longer the same training; the
# learning rate usually wants to grow with the batch.
#
# </details>
#
# ## One rank saves
# The replicas are equal, so one file is enough. If all ranks wrote it, they would write over each other. Rank 0 makes
# up the name of the folder, and sends it to the others.

# %% a checkpoint
import tempfile

folder = [None]
if rank == 0:
    folder[0] = tempfile.mkdtemp(prefix="wine-")
    torch.save(together.net.module.state_dict(), pathlib.Path(folder[0]) / "net.pt")
dist.broadcast_object_list(folder)  # also a barrier for the others: they go on when the file is there

# %% it opens in the bare module, on every rank
restored = make_net()
restored.load_state_dict(torch.load(pathlib.Path(folder[0]) / "net.pt", map_location=device))
if share_right(restored) != share_right(together.net):
    raise RuntimeError("this is not the model that was saved")
list(restored.state_dict())

# %% tidy up
import shutil

dist.barrier()  # all have read it
if rank == 0:
    shutil.rmtree(folder[0])

# %% [markdown]
# **Exercise 2.** Put the broadcast *before* the `if`. Which rank reads what, and when does it go wrong?
#
# <details><summary>Answer</summary>
#
# Rank 0 sends `None`, since it has not made the folder yet. Had it made the folder but not the file, the others would
# look for a file that may or may not be there yet: an error that comes and goes. A collective after the write is what
# puts the two in order.
#
# </details>
#
# ## A sampler
# Cutting the order into parts by hand is not much work, but PyTorch has it ready: `DistributedSampler` shuffles alike
# on all ranks and gives each its own part.

# %% each rank its own part of an epoch
from torch.utils.data import DistributedSampler

sampler = DistributedSampler(range(train_size), drop_last=True, seed=7)


def sampled_batches(epoch):
    sampler.set_epoch(epoch)
    return list(torch.tensor(list(sampler), device=device).split(batch_size // world_size))


len(sampled_batches(0))

# %% no wine is read twice
%data sampler --size 142

# %% and the next epoch has another order
def rows_of(epoch):
    return torch.cat(sampled_batches(epoch)).tolist()


if rows_of(0) == rows_of(1):
    raise RuntimeError("every epoch has the same order")
if rows_of(1) != rows_of(1):
    raise RuntimeError("an epoch can't be repeated")

# %% train with it
set_seed(42)
sampled = Trainer(DistributedDataParallel(make_net()), sampled_batches)
sampled.run(30)
reached = torch.tensor(sampled.losses[-1], device=device)
dist.all_reduce(reached)
reached /= world_size
if abs(reached.item() - alone.losses[-1]) > 0.05:
    raise RuntimeError("it reaches another loss")
print(f"epoch 29: loss {reached:.2f}, on one device {alone.losses[-1]:.2f}")

# %% [markdown]
# **Exercise 3.** Delete the line with `set_epoch` in a copy of this lesson and run it. What notices, and what would
# notice in a training script?
#
# <details><summary>Answer</summary>
#
# The cell that compares two epochs stops the lesson. In a training script nothing stops: the sampler gives the order of
# epoch 0 again and again, the loss falls all the same, a little less well. Nobody sees it who does not look.
#
# </details>
#
# ## Several machines
# `local_rank` counts the ranks of one machine and picks the device. `rank` counts them all: the number of the machine,
# times the ranks that each machine has, plus `local_rank`. Two ranks with one number would wait for a third that never
# comes, so it is worth a check.

# %% who is who
ranks_here = world_size  # this session runs on one machine
if rank != node_rank * ranks_here + local_rank:
    raise RuntimeError("rank, node_rank and local_rank do not fit together")
everyone = [None] * world_size
dist.all_gather_object(everyone, rank)
if sorted(everyone) != list(range(world_size)):
    raise RuntimeError(f"the ranks are {everyone}")
everyone

# %% [markdown]
# `%ranks` asks the same and more of all ranks: devices, hosts, variables of the environment, versions, code.
#
# **Exercise 4.** A tutorial computes the rank as `local_rank + node_rank * torch.cuda.device_count()`, and it works for
# its author, on machines of four GPUs with four ranks each. On which machines does it break?
#
# <details><summary>Answer</summary>
#
# Where the machines do not run as many ranks as they have devices: with two ranks on each machine of four GPUs the
# ranks are 0, 1, 4, 5, and the group waits for 2 and 3 for ever. What counts is how many ranks run on each machine
# (`torchrun` says it as `LOCAL_WORLD_SIZE`).
#
# </details>
#
# ## What you have now
# The program for one device, and four changes: start, wrap, divide, save once.

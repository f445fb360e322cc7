"""Sessions whose ranks are Python: a rank that was lost is started again in its place, %checkpoint and %restore, and training
goes on bit for bit."""

import os
import pathlib
import select
import sys
import tempfile
import unittest

from ranks import environment
from session_test import LOCKSTEP, PROMPT, Session, Terminal

# Three ranks at least: the sum of two numbers does not depend on their order, so that nothing would show with two.
WRAPPED = """import os, signal
set_seed(7)
net = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.BatchNorm1d(64), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(64, 4))
model = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.001)
optimizer = OPTIMIZER
def step(number):
    optimizer.zero_grad()
    x = torch.sin(torch.arange(64.0).reshape(8, 8) * (1 + number + 100 * rank))
    model(x).square().mean().backward()
    optimizer.step()
"""
# Without a wrapper: gradients are reduced by hand. The generator, the average and the scheduler are restored, too.
BY_HAND = """import os, signal
set_seed(7)
net = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(64, 4))
optimizer = OPTIMIZER
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.7)
generator = torch.Generator().manual_seed(11)
average = torch.zeros(4)
def step(number):
    optimizer.zero_grad()
    noise = torch.rand(8, 8, generator=generator)
    x = noise + torch.sin(torch.arange(64.0).reshape(8, 8) * (1 + number + 100 * rank))
    net(x).square().mean().backward()
    for each in net.parameters():
        dist.all_reduce(each.grad)
        each.grad /= world_size
    optimizer.step()
    scheduler.step()
    average.mul_(0.9).add_(net[-1].bias.detach())
"""
DIGEST = """digest = sum((each.double().flatten() * torch.sin(torch.arange(float(each.numel())) + i)).sum().item() for i, each in enumerate(net.parameters()))
print("digest", repr(digest), [repr(each.double().sum().item()) for each in net.buffers()] if rank == 2 else "")
"""
EXTRA = "print('extra', average.tolist(), scheduler.get_last_lr(), torch.rand(1, generator=generator).item(), torch.rand(1).item())"
FIRST, SECOND = "for i in range(5): step(i)", "for i in range(5, 10): step(i)"
DEATH = "if rank == 2: os.kill(os.getpid(), signal.SIGKILL)"
KEEP_GOING = ["--keep-going"]


# In the environment of a session: an interpreter that imports torch while there is the FIFO says so there, and waits.
WAITS_IN_TORCH = """import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "torch._C" and os.path.exists(FIFO):
            with open(FIFO, "w") as file: file.write("imports torch")
            while True: signal.pause()
sys.meta_path.insert(0, Finder())
"""
# With more than one thread the ranks can't be copies, and each imports torch itself.
THREAD = "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n"
LIMIT_S = 120  # ends what hangs; judges nothing


class Event:
    """What another process says, who opens a FIFO for writing and writes there."""

    def __init__(self, path):
        self.path = path
        os.mkfifo(path)
        self.descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def wait(self):
        """Waits until it was said, and takes the FIFO away."""
        said, _, _ = select.select([self.descriptor], [], [], LIMIT_S)
        os.close(self.descriptor)
        os.unlink(self.path)
        return bool(said)


def lines(run, begin):
    return {rank: [each for each in run.output(rank).splitlines() if each.startswith(begin)] for rank in range(3)}


class Restarts(unittest.TestCase):
    def train_with_a_death(self, model, *after, says, never="lost:"):
        undisturbed = Session(model, FIRST, SECOND, *after, ranks=3)
        self.assertEqual(undisturbed.code, 0, undisturbed.shown)
        restarted = Session(model, FIRST, DEATH, "%restart 2 --from 0", SECOND, "%verify NAME".replace("NAME", "model" if "model" in model else "net"), *after, ranks=3,
                            options=KEEP_GOING)
        said = "\n".join(each["text"] for each in restarted.of("message")) + "\n".join(
            text for _, text in restarted.values())
        self.assertEqual(restarted.statuses()[3:6], ["ok", "ok", "ok"], f"{said} {restarted.events}")
        for begin in ("digest", "extra"):
            self.assertEqual(lines(restarted, begin), lines(undisturbed, begin), said)
        self.assertTrue(lines(restarted, "digest")[2])
        verified, *_ = [each for each in restarted.of("finding") if each["inspector"] == "verify"]
        self.assertEqual((verified["verdict"], verified["ranks"]), ("ok", [0, 1, 2]))
        self.assertIn("rank 2 is back: 1 cell ran again", said)
        self.assertIn("cell 2, line 1: it met other ranks", said)
        for each in says:
            self.assertIn(each, said)
        self.assertNotIn(never, said)

    def test_a_wrapper_and_momentum(self):
        sgd = "torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)"
        self.train_with_a_death(WRAPPED.replace("OPTIMIZER", sgd), DIGEST,
                                says=["model: layout of the buckets", "optimizer: state and options"])

    def test_a_wrapper_and_adam(self):
        adam = "torch.optim.Adam(net.parameters(), 0.01)"
        self.train_with_a_death(WRAPPED.replace("OPTIMIZER", adam), DIGEST, says=["net: 9 tensors"])

    def test_a_wrapper_with_two_names_and_a_hook_of_torch(self):
        hook = "_second = model; model._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)\n"
        sgd = "torch.optim.SGD(net.parameters(), 0.05)"
        self.train_with_a_death(WRAPPED.replace("OPTIMIZER", sgd) + hook, DIGEST, says=["_second: layout of the buckets"],
                                never="model: layout of the buckets")

    def test_a_loop_by_hand(self):
        adam = "torch.optim.AdamW(net.parameters(), 0.01)"
        self.train_with_a_death(BY_HAND.replace("OPTIMIZER", adam), DIGEST, EXTRA,
                                says=["scheduler: state", "generator: generator", "average: tensor"])

    def test_names_groups_and_what_does_not_run_again(self):
        run = Session(
            "import os, signal\npair = dist.new_group([1, 2])\nloss = torch.ones(1)\ndist.all_reduce(loss)\n"
            "reduced = [dist.all_reduce(loss), loss.item()][1]\nbehind = dist.new_group([0, 2])\ncalls = 0\n"
            "left_out = [dist.new_group([0, 1, 2]), dist.barrier()][0]",
            "def uses(): return reduced + 1\ndef plain():\n    reduced = 5\n    return reduced\n"
            "later = uses()\nkept = plain()\ncalls += 1\nprint('seen once')",
            "%%rank 1\nraise ValueError('as expected')",
            "%%rank 2\nbefore = 1\nos.kill(os.getpid(), signal.SIGKILL)\nafter = 2",
            "%%rank 0,1\nmeanwhile = 1",
            "%restart",
            "total = torch.full((1,), rank + 1.0)\nif rank > 0: dist.all_reduce(total, group=pair)\n"
            "other = torch.full((1,), rank + 1.0)\nif rank != 1: dist.all_reduce(other, group=behind)\n"
            "print('sums', total.item(), other.item(), calls, kept)",
            "%%rank 2\nlater",
            "%restart 1",
            "%%rank 2\nos._exit(3)", "%restart 2",
            "dist.barrier()\nprint('again', calls, kept)",
            "%%rank 0,1\ndist.barrier(left_out)", "last = dist.new_group([0, 2])\nif rank != 1: dist.barrier(last)\n'made'",
            ranks=3, options=KEEP_GOING)
        said = "\n".join(each["text"] for each in run.of("message"))
        self.assertEqual(lines(run, "sums"), {0: ["sums 1.0 4.0 1 5"], 1: ["sums 5.0 2.0 1 5"],
                                              2: ["sums 5.0 4.0 1 5"]}, said + f"{run.events}")
        self.assertEqual(lines(run, "again"), {rank: ["again 1 5"] for rank in range(3)}, said)
        self.assertEqual(lines(run, "seen once"), {rank: ["seen once"] for rank in range(3)})
        for each in ("cell 1, line 4: it met other ranks", "cell 1, line 5: it met other ranks (so there is no reduced)",
                     "cell 2, line 5: it needs reduced of cell 1 (so there is no later)",
                     "cell 4, line 2: no rank that lives has reported", "cell 4, line 3: it had not ended there", "ran without it: cell 5"):
            self.assertIn(each, said)
        errors = "\n".join(each["message"] for each in run.of("error"))
        self.assertIn("name 'later' is not defined", errors)
        self.assertIn("rank 2 that started again has not made group", errors)
        self.assertIn(([0, 1, 2], "'made'"), run.values())
        self.assertIn("%restart is for dead ranks; rank 1 lives", errors)

    def test_names_that_a_statement_binds_itself_are_not_missing(self):
        run = Session(
            "import os; calls = 0; saved = []",
            "for i in range(2): dist.barrier()",
            "for i in range(2):\n    with torch.no_grad():\n        calls += 1\n    saved.append(i)",
            "for key in [dist.barrier()]: pass\nif calls == 2: key = 1\nelse: key\nfor other in [key]: other",
            "for key in [1]:\n    try: value = key\n    except KeyError: pass\n    value\nvalue",
            "for i in range(2): dist.barrier()", "again = i",
            "%%rank 2\nos._exit(3)", "%restart", "%%rank 2\nprint('has', calls, saved, value, 'again' in globals(), 'other' in globals())",
            ranks=3, options=KEEP_GOING)
        said = "\n".join(each["text"] for each in run.of("message"))
        self.assertEqual(lines(run, "has")[2], ["has 2 [0, 1] 1 False False"], f"{said} {run.events}")
        for each in ("cell 2, line 1: it met other ranks (so there is no i)",
                     "cell 4, line 2: it needs key of cell 4 (so there is no key)", "cell 7, line 1: it needs i of cell 6"):
            self.assertIn(each, said)
        self.assertNotIn("cell 3", said)
        self.assertNotIn("cell 5", said)

    def test_without_a_source_wrappers_train_on(self):
        run = Session(WRAPPED.replace("OPTIMIZER", "torch.optim.SGD(net.parameters(), 0.05)"), FIRST, DEATH, "%restart",
                      SECOND, "lockstep.session.restore(0, [2])", "%verify model", ranks=3, options=KEEP_GOING)
        self.assertEqual(run.statuses()[3:], ["ok"] * 4, f"{run.events}")
        verified, *_ = [each for each in run.of("finding") if each["inspector"] == "verify"]
        self.assertEqual(verified["verdict"], "ok")

    def test_shards_are_named_as_lost(self):
        run = Session("import os, signal\nset_seed(1)\nnet = torch.nn.Linear(4, 4)\n"
                      "shard = torch.full((4,), float(rank), requires_grad=True)\n"
                      "mine = torch.optim.Adam([shard])\n"
                      "part = torch.optim.SGD([net.weight if rank < 2 else net.bias], 0.1, momentum=0.9)",
                      "(shard * rank).sum().backward(); mine.step();", DEATH, "%restart 2 --from 0", ranks=3,
                      options=KEEP_GOING)
        values = "\n".join(text for _, text in run.values())
        for each in ("lost: shard: the other ranks do not agree", "lost: mine: the other ranks do not agree",
                     "lost: part: it is not made alike", "net: 2 tensors"):
            self.assertIn(each, values, f"{run.events}")

    def test_state_that_cannot_be_read_is_named_as_lost(self):
        run = Session("import os, numpy\nclass State:\n    def __init__(self, *reads): self.reads = list(reads)\n"
                      "    def state_dict(self): return self.reads.pop(0)()\n"
                      "    def load_state_dict(self, state): self.loaded = state\n"
                      "def fails(): raise RuntimeError('as expected')\n"
                      "objects = State(lambda: numpy.array([None]))\n"
                      "once = State(lambda: 1, fails)\n"
                      "typed = State(lambda: numpy.zeros(2, 'f4' if rank else 'i4'))\n"
                      "good = State(*[lambda: numpy.ones(2)] * 2)\n"
                      "set_seed(7)\nclass Secret(torch.nn.Linear):\n    def state_dict(self, *_, **__): raise RuntimeError('no one knows')\n"
                      "lazy, secret, half = torch.nn.LazyLinear(4), Secret(2, 2), torch.nn.Linear(2, 2, dtype=torch.bfloat16)\n"
                      "of_lazy, of_secret, of_half = (torch.optim.SGD(each.parameters(), 0.1, momentum=0.9) for each in (lazy, secret, half))",
                      "seen = lazy(torch.ones(1, 3)), half(torch.ones(2, dtype=torch.bfloat16)).sum().backward(), of_half.step(), dist.barrier()\n"
                      "for each in of_half.state.values(): each['momentum_buffer'] = each['momentum_buffer'].float() + 0.001",
                      DEATH.replace("if", "import signal\nif", 1), "%restart 2 --from 0",
                      "print('loaded', getattr(good, 'loaded', None), [each['momentum_buffer'] for each in of_half.state.values()])",
                      ranks=3, options=KEEP_GOING)
        values = "\n".join(text for _, text in run.values())
        for each in ("lost: objects: its state can't be read: TypeError: NumPy values of type object",
                     "lost: once: rank 0 can't save it: RuntimeError: as expected",
                     "lost: typed: the other ranks do not agree on it", "good: state",
                     "lost: lazy: its state can't be read: RuntimeError: Can't access the shape of an uninitialized",
                     "lost: of_lazy: its state can't be read", "lost: secret: its state can't be read: RuntimeError: no one knows",
                     "lost: of_secret: 2 of its parameters are lost", "of_half: state and options"):
            self.assertIn(each, values, f"{run.events}")
        loaded = lines(run, "loaded")
        self.assertEqual(loaded[2], [loaded[0][0].replace("loaded None", "loaded [1. 1.]")])
        self.assertIn("1.0010", loaded[2][0])  # bfloat16 has no such number

    def test_all_ranks_come_back_with_the_process_that_starts_them(self):
        run = Session("kept = rank + 1\nimport os, signal, time",
                      "if rank == 0: os.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(1000)", "%restart", "kept",
                      "x = torch.ones(1); dist.all_reduce(x); x.item()", options=KEEP_GOING, LOCKSTEP_PYTHON=sys.executable)
        self.assertEqual(run.values(), [([0], "1"), ([1], "2"), ([0, 1], "2.0")], run.shown)
        self.assertEqual(run.statuses(), ["ok", "dead", "ok", "ok", "ok"], run.shown)

    def test_a_rank_that_can_not_be_copied_costs_no_other(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "sitecustomize.py").write_text(
                "import os\nreal, calls = os.fork, []\ndef fork():\n    calls.append(1)\n"
                "    if len(calls) == 3: raise BlockingIOError(11, 'no process is left')\n    return real()\nos.fork = fork\n")
            run = Session("kept = rank + 1\nimport os", "%%rank 1\nos._exit(3)", "%restart", "kept", "%restart", "kept",
                          options=KEEP_GOING, PYTHONPATH=f"{folder}:{os.environ['PYTHONPATH']}", LOCKSTEP_PYTHON=sys.executable)
        self.assertIn("the rank can't be started: [Errno 11] no process is left", run.shown)
        self.assertEqual(run.values(), [([0], "1"), ([0], "1"), ([1], "2")], run.shown)

    def test_groups_of_other_backends_stay(self):
        run = Session("import os", "%%rank 1\nos._exit(3)", "%restart", options=[*KEEP_GOING, "--backend", "gloo"])
        self.assertIn("with the backend lockstep", run.of("error")[-1]["message"])

    def test_an_interrupt_ends_the_start_and_it_can_be_repeated(self):
        with tempfile.TemporaryDirectory(prefix="ls", dir="/tmp", ignore_cleanup_errors=True) as folder:
            importing, again = (pathlib.Path(folder, name) for name in ("importing", "again"))
            pathlib.Path(folder, "sitecustomize.py").write_text(WAITS_IN_TORCH.replace("FIFO", repr(str(importing))) + THREAD)
            path = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
            terminal = Terminal([LOCKSTEP, f"--python={sys.executable}", "-n", "2"], 200, 50,
                                environment(XDG_RUNTIME_DIR=folder, XDG_STATE_HOME=folder, PYTHONPATH=path))
            self.addCleanup(terminal.close)

            def enter(text, number):
                terminal.type(text)
                terminal.press("Enter")
                terminal.wait_for(PROMPT.format(number))

            terminal.wait_for(PROMPT.format(1))
            enter(f"import os, time; fifo = '{again}'", 2)
            enter("if os.path.exists(fifo): print('runs', file=open(fifo, 'w'), flush=True); time.sleep(1000)", 3)
            enter("before = 1", 4)
            enter("if rank: os._exit(3)", 5)
            imports, runs_again = Event(importing), Event(again)
            self.assertIn("%restart 1 --from 0 starts it again in its place", terminal.screen())
            self.assertIn("%dist_continue goes on without it: rank 0 is then the default group", terminal.screen())
            terminal.type("%restart")
            terminal.press("Enter")
            self.assertTrue(imports.wait(), terminal.screen())
            terminal.press("C-c")  # while the interpreter imports torch
            terminal.wait_for(r"rank 0 ▸ *\n?\Z")
            terminal.type("%restart")
            terminal.press("Enter")
            self.assertTrue(runs_again.wait(), terminal.screen())
            terminal.press("C-c")  # while a cell runs again
            terminal.wait_for(r"▸ %restart\n(.*\n)*.*▸ %restart\n(.*\n)*.*rank 0 ▸ *\n?\Z")
            enter("after = 1", 6)
            enter("%restart", 7)
            self.assertIn("rank 1 is back: 3 cells ran again", terminal.screen())
            enter("x = torch.ones(1); dist.all_reduce(x); x.item()", 8)
            self.assertIn("0-1 = 2.0", terminal.screen())


# What a session has before %checkpoint, with what is written and what is not; and steps after it.
DEFINED = """import collections, os, pickle, random, resource, shutil, zipfile
import numpy
set_seed(7)
def made():
    return torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.BatchNorm1d(64), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(64, 4))
net, other, third = made(), made(), made()
model, second = (torch.nn.parallel.DistributedDataParallel(each, bucket_cap_mb=0.001) for each in (net, other))
momentum = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
adam = torch.optim.Adam(other.parameters(), 0.01)
half = torch.nn.Linear(2, 2).to(torch.bfloat16)
of_half = torch.optim.SGD(half.parameters(), 0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(adam, 2, 0.7)
tied = torch.nn.Linear(8, 8, bias=False); tied.same = tied.weight
frozen = torch.nn.BatchNorm1d(3).requires_grad_(False)
weights, first = list(net.parameters()), net[0].weight
generator, draws, numpy_draws = torch.Generator().manual_seed(3), random.Random(3), numpy.random.default_rng(3)
losses, best, done, text = [], None, 0, ""
same_losses, path, window = losses, collections.defaultdict(list), collections.deque(maxlen=2)
config = {"lr": 0.1, ("a", 1): {1, 2}, "bytes": b"", "complex": 1j, "type": torch.float32, "lockstep": frozenset()}
array, scalar = numpy.zeros(3), numpy.float32(0)
same_array, flat = array, torch.zeros(100)
view, column, nothing = flat[3:6], torch.zeros(4, 4)[:, 1], torch.zeros(0, 3)
if rank == 1: only = []
callback, handle = made, made
loader, itself, huge, sparse = torch.utils.data.DataLoader([1]), [], 1 << 4000, torch.eye(2).to_sparse()
itself.append(itself)
def step(model, optimizer):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 8) + rank).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
def train():
    global done
    for done in range(done + 1, done + 4):
        step(model, momentum); step(second, adam); scheduler.step()
"""
CHANGED = """train()
half(torch.ones(1, 2, dtype=torch.bfloat16)).sum().backward(); of_half.step()
for each in of_half.state.values(): each["momentum_buffer"] = each["momentum_buffer"].float() + 0.001
best, text, scalar = 0.5, "deep", numpy.float32(2)
path["x"].append(1); window.extend([1, 2, 3]); config.update(lr=0.2, bytes=b"\\0\\xff", lockstep=frozenset([1]))
array += rank; view += 2; column += 3
if rank == 1: only.append(2)
with torch.no_grad(): tied.weight.fill_(3)
frozen.running_mean.fill_(4); frozen.eval(); net[3].eval()
[each.random() for each in (draws, numpy_draws)]; torch.rand(1, generator=generator);
"""
STATE = """shown = [best, done, text, dict(path), list(window), config, array.tolist(), scalar, flat.sum().item(), column.tolist(), globals().get("only"),
    tied.same.sum().item(), tied.same is tied.weight, frozen.running_mean.tolist(), frozen.training, net.training, net[3].training,
    same_losses is losses, same_array is array, weights[0] is net[0].weight is first, path.default_factory, window.maxlen, type(scalar).__name__,
    [each["momentum_buffer"].dtype for each in of_half.state.values()]]
print("state", shown); del shown
"""
TRAINED = """train()
print("losses", losses, scheduler.get_last_lr(), torch.rand(1, generator=generator).item(), draws.random(), numpy_draws.random(), random.random(), numpy.random.rand(), torch.rand(1).item())
print("sums", [each.double().sum().item() for each in (*net.state_dict().values(), *other.state_dict().values())])
"""
# In a file that another has made: pickle runs this.
STRANGE = """class Strange:
    def __reduce__(self): return (os.mkdir, (FOLDER + "/ran",))
torch.serialization.add_safe_globals([Strange])
def file_of(name, content, of=(0, 1)):
    os.makedirs(f"{FOLDER}/{name}", exist_ok=True)
    if rank in of: content(f"{FOLDER}/{name}/rank{rank}.pt")
def changed(path):
    with open(f"{FOLDER}/good/rank{rank}.pt", "rb") as file: content = bytearray(file.read())
    place = content.index(b"\\x00\\x00\\x40\\x40" * 8) + 2  # in the weights of `tied`
    content[place] ^= 0xff
    with open(path, "wb") as file: file.write(content)
def good(path): shutil.copy(f"{FOLDER}/good/rank{rank}.pt", path)
def torn(path):
    good(path)
    os.truncate(path, os.path.getsize(path) - 100)
def as_of_three(path):
    content = torch.load(f"{FOLDER}/good/rank{rank}.pt", weights_only=True)
    torch.save({**content, "ranks": 3}, path)
file_of("one", good, of=(0,))
file_of("torn", lambda path: torn(path) if rank else good(path))
file_of("changed", lambda path: changed(path) if rank else good(path))
file_of("strange", lambda path: torch.save({"form": Strange()}, path))
file_of("plain", lambda path: torch.save({"net": torch.ones(2)}, path))
file_of("three", as_of_three)
file_of("mixed", lambda path: shutil.copy(f"{FOLDER}/{'good' if rank else 'again'}/rank{rank}.pt", path))
"""
# What does not fit: other shapes, types and names.
MISFITS = """third = torch.nn.Sequential(torch.nn.Linear(8, 65), *third[1:])
momentum = torch.optim.SGD(net.parameters(), 0.05)
adam = torch.optim.Adam(third.parameters(), 0.01)
path, best, array = (lambda: 1), "a word", numpy.ones(2)
weights = [torch.nn.Parameter(torch.zeros(2))]
del window, of_half
"""


# Names that share memory with others, and then with other ones; values of other classes and forms.
SHARED = """import collections, numpy, os
def made(weight):
    net = torch.nn.Linear(2, 2)
    torch.nn.init.constant_(net.weight, weight)
    return net
net_a, net_b, layers = made(1), made(0), torch.nn.Sequential(made(2), made(3))
best, layer, one, other = net_a, layers[1], made(4), made(5)
data, table, array = torch.arange(12.0).reshape(6, 2), [[0, 0], [1, 1], [2, 2]], numpy.arange(6.0)
for i in range(3): row = data[i]
a_list, a_view, a_queue, hidden = table[0], array[:2], collections.deque([data[5]]), torch.utils.data.TensorDataset(torch.arange(4.0))
item, loose, loose_list, flat, A, B = hidden[0][0], torch.zeros(2), [1], torch.zeros(6), torch.zeros(1), torch.ones(1)
ring, pieces, zero = [A, B], [flat[:3], flat[3:]], numpy.array(1.0)
same_zero, holder, square = zero, {"zero": zero}, torch.zeros(2, 2)
trained, trained_list, plain, weight_queue = torch.ones(2, requires_grad=True), [torch.ones(2, requires_grad=True)], torch.zeros(2, 2), collections.deque([net_a.weight])
optimizer, velocity, decayed = torch.optim.SGD([trained], 0.1), {each: 0 for each in net_a.parameters()}, collections.deque([{net_a.bias}])
nibbles, ints, draws = torch.zeros(4, dtype=torch.uint8).view(torch.uint4), [1, 2], numpy.random.Generator(numpy.random.MT19937(1))
globals()[5] = 1
class Ended:
    interrupts = False
    def state_dict(self): return {}
    def load_state_dict(self, state):
        if Ended.interrupts: raise KeyboardInterrupt
ended, was = Ended(), trained
"""
MOVED = """for i in range(3, 6): row = data[i]
a_list, a_view, a_queue[0], item, best, layer = table[2], array[4:], data[4], hidden[2][0], net_b, layers[0]
later, later_list, later_net, trained_too = torch.full((2,), 9.0), [9], made(9), trained
loose, loose_list, one, square = later, later_list, later_net, later_net.weight.data; other = net_b
ring[:] = [B, A]; flat += 7; zero += 1; plain = net_b.weight
with torch.no_grad(): trained += 1
trained.requires_grad_(False); trained_list[:] = [torch.zeros(3)]
"""
HAS = """print("has", data.tolist(), table, array.tolist(), row.tolist(), a_list, a_view.tolist(), a_queue[0].tolist(), hidden.tensors[0].tolist(), item.item(),
    loose.tolist(), loose_list, flat.tolist(), pieces[1].tolist(), A.item(), B.item(), [each.item() for each in ring], zero.item(), square.tolist())
print("nets", [each.weight[0, 0].item() for each in (net_a, net_b, layers[0], layers[1])], net_a.weight in velocity)
print("same", pieces[0].data_ptr() == flat.data_ptr(), zero is same_zero is holder["zero"], trained is was is optimizer.param_groups[0]["params"][0],
    trained.requires_grad, trained.tolist(), trained_list[0].requires_grad, weight_queue[0] is net_a.weight)
"""
LATER = "print('later', later.tolist(), later_list, later_net.weight[0, 0].item(), trained_too is trained)"
# Files that somebody has changed.
CRAFTED = """def craft(name, ranks, change):
    content = torch.load(f"{FOLDER}/good/rank{rank}.pt", weights_only=True)
    if rank in ranks: change(content)
    os.makedirs(f"{FOLDER}/{name}", exist_ok=True)
    torch.save(content, f"{FOLDER}/{name}/rank{rank}.pt")
def states(content):
    content["names"]["print"] = content["names"]["ints"]
    content["generators"]["numpy"]["items"][2] = 100_000_000
    content["names"]["draws"]["state"]["state"]["pos"] = 100_000_000
craft("kind", [1], lambda content: content["names"]["A"].update(kind=[]))
craft("nested", [1], lambda content: content["names"]["ring"].update(value=[{"lockstep": "Size", "items": ["x"]}]))
craft("named", [0], lambda content: content["names"].update({"a b": content["names"]["A"]}))
craft("sparse", [1], lambda content: content["names"]["A"].update(value=torch.eye(2).to_sparse()))
craft("states", [0, 1], states)
A += 5
"""


class Checkpoints(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ls", dir="/tmp")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def lines(self, run, begin):
        return lines(run, begin)[0], lines(run, begin)[1]

    def test_training_goes_on_in_this_session_and_in_another_one(self):
        folder = self.folder
        wrong = {"nowhere": "there is no", "one": "rank 1: there is no", "torn": "rank1.pt is no checkpoint of Python ranks, or is damaged",
                 "changed": "are not those that were written", "strange": "it has objects that are not read", "plain": "it was not written by %checkpoint",
                 "three": "it is of 3 ranks, and the session has 2", "mixed": "its files are of different checkpoints"}
        full = ("limits = resource.getrlimit(resource.RLIMIT_FSIZE)\n"
                "if rank: resource.setrlimit(resource.RLIMIT_FSIZE, (10000, limits[1]))")
        run = Session(DEFINED, CHANGED, STATE, f"%checkpoint {folder}/good", TRAINED, f"%restore {folder}/good", STATE, TRAINED,
                      f"FOLDER = {folder!r}", f"%checkpoint {folder}/again", full, f"%checkpoint {folder}/again",
                      "resource.setrlimit(resource.RLIMIT_FSIZE, limits)", STRANGE, *(f"%restore {folder}/{name}" for name in wrong),
                      f"%checkpoint {folder}/good/rank0.pt", f"%rank 0\n%checkpoint {folder}/part", "%rank all",
                      f"lockstep.session.write_checkpoint('{folder}/call'); str(lockstep.session.read_checkpoint('{folder}/call')).splitlines()[0]",
                      options=KEEP_GOING)
        said = "\n".join(text for _, text in run.values())
        for begin in ("state", "losses", "sums"):
            for before in self.lines(run, begin):
                self.assertEqual(len(before), 2, run.events)
                self.assertEqual(before[0], before[1], said)
        self.assertIn(f"written to {folder}/good: 2 files, ", said)
        for part in ("left out: loader: its type, torch.utils.data.dataloader.DataLoader, can't be written",
                     "left out: itself: it is nested more than", "left out: huge: it holds a number of 4001 bits",
                     "left out: sparse: only dense tensors are written", "only on rank 1", f"restored from {folder}/good"):
            self.assertIn(part, said)
        for code in ("made", "callback", "step", "numpy"):
            self.assertNotRegex(said, rf"[ ,]{code}\b[:,]")
        self.assertNotIn("_checkpoint.py", f"{run.of('error')}")  # frames of the package say nothing
        errors = [each["message"] for each in run.of("error")]
        self.assertEqual(len(errors), len(wrong) + 2, errors)
        self.assertRegex(errors[0], "could not be written, and files that were there are unchanged:\nrank 1: .*File too large")
        for (name, part), error in zip(wrong.items(), errors[1:]):
            self.assertIn(part, error, name)
            self.assertIn(f"nothing was restored from {folder}/{name}:", error)
        self.assertIn(f"{folder}/good/rank0.pt: File exists", errors[-1])
        self.assertFalse(os.path.exists(f"{folder}/ran"))
        self.assertEqual(sorted(os.listdir(f"{folder}/again")), ["rank0.pt", "rank1.pt"])
        self.assertEqual(sorted(os.listdir(f"{folder}/part")), ["rank0.pt", "rank1.pt"])
        self.assertIn(f"restored from {folder}/call", run.values()[-1][1])

        fresh = Session(DEFINED, f"%restore {folder}/good", STATE, TRAINED, "%verify adam", MISFITS, f"%restore {folder}/good",
                        "print('then', best, array.tolist(), path(), window, third[4].bias[0].isfinite().item())", options=KEEP_GOING)
        for begin in ("state", "losses", "sums"):
            self.assertEqual([each[:1] for each in self.lines(fresh, begin)], [each[:1] for each in self.lines(run, begin)], f"{fresh.events}")
        self.assertEqual([each["verdict"] for each in fresh.of("finding")], ["ok"])
        said = fresh.values()[-1][1]
        for part in ("third: 0.weight was not there, or had another shape or type", "adam: it stepped parameters of other shapes or types",
                     "path: its type was collections.defaultdict, and it is code", "weights: a parameter was not there, or had another shape",
                     "of_half: no variable has the name", "loader: it is not in the checkpoint"):
            self.assertIn(f"left out: {part}", said)
        self.assertRegex(said, "\\n  .*\\barray, best, .*\\bmomentum, ")
        self.assertEqual(lines(fresh, "then")[0], ["then 0.5 [0.0, 0.0, 0.0] 1 deque([2, 3], maxlen=2) True"])


    def test_names_that_share_other_memory_now_and_files_that_were_changed(self):
        folder = self.folder
        damaged = {"kind": ("rank 1", "A"), "nested": ("rank 1", "ring"), "named": ("rank 0", "'a b'"), "sparse": ("rank 1", "A")}
        run = Session(SHARED, HAS, f"%checkpoint {folder}/good", "%who", MOVED, f"%restore {folder}/good", HAS, LATER, f"FOLDER = {folder!r}", CRAFTED,
                      *(f"%restore {folder}/{name}" for name in damaged), "print('still', A.item())", f"%restore {folder}/states",
                      "print('builtin'); numpy.random.rand(), draws.random();", "Ended.interrupts = True", f"%restore {folder}/good", options=KEEP_GOING)
        written, restored, of_states = (text for _, text in run.values())
        for what in ("has", "nets", "same"):
            before, after = lines(run, what + " ")[0]
            self.assertEqual(after, before, restored)
        self.assertEqual(run.output().count("later [9.0, 9.0] [9] 9.0 True"), 1)
        for part in ("5: it is no name", "decayed: elements in it are tensors, which are found by identity", "velocity: its keys are tensors", "nibbles: it can't be written: "):
            self.assertIn(f"left out: {part}", written)
        for part in ("best: it is the module net_b now", "layer: it shares memory with layers now, and had other values", "one: it is the module later_net now",
                     "other: it is the module net_b now", "plain: it is a parameter of a module now"):
            self.assertIn(f"left out: {part}", restored)
        self.assertRegex(restored, "\\n  A, B, a_list, a_queue, a_view, array, data, .*net_a, net_b, .*ring, row, .*generators\\n")
        for part in ("draws: it was a generator of another kind, or its state is damaged", "generators: the state of the generator of numpy is damaged",
                     "print: no variable has the name, which is a builtin"):
            self.assertIn(f"left out: {part}", of_states)
        errors = [each["message"] for each in run.of("error")]
        for (name, (rank, of)), error in zip(damaged.items(), errors):
            self.assertRegex(error, f"nothing was restored from {folder}/{name}:\n{rank}: .* is no checkpoint of Python ranks, or is damaged: .*{of}")
        self.assertEqual(lines(run, "still")[0] + lines(run, "builtin")[0], ["still 5.0", "builtin"])
        self.assertRegex(run.output(), "%restore did not end: A, B, .* have what was written, ended may have a part of it, and the rest is unchanged")


# Groups, a sampler and a loop of all ranks, of which rank 1 dies; each rank tells its numbers.
NUMBERED = """pair, with_lost, everybody, was = dist.new_group([0, 2]), dist.new_group([0, 1]), dist.group.WORLD, rank
sampler = torch.utils.data.DistributedSampler(range(12))
contained = [torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))]
hooked = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2, bias=False))
hooked._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
compiled = torch.compile(torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2)), backend="eager")
sparse, unused = (torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Embedding(4, 2, sparse=True), torch.nn.Linear(2, 2))) for _ in range(2))
broken = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
late = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)), find_unused_parameters=True)
loader, fixed = torch.utils.data.DataLoader(range(12), sampler=torch.utils.data.DistributedSampler(range(12))), torch.utils.data.DistributedSampler(range(12), 2, 0)
of_batches = torch.utils.data.DataLoader(range(12), batch_sampler=torch.utils.data.BatchSampler(sampler, 2, False))
def learn(count):
    for _ in range(count):
        sparse(torch.tensor([was, 3])).sum().backward(); late(torch.ones(1, 2) * (was + 1)).sum().backward()
        for each in (*sparse.parameters(), *late.parameters()):
            if each.requires_grad: each.data -= 0.1 * each.grad.to_dense(); each.grad = None
def freeze():
    late.module[0].requires_grad_(False)
    if was == 2: broken._build_params_for_reducer = None
def say(what, group=None):
    one, of_first = torch.ones(1), torch.full((1,), float(was))
    dist.all_reduce(one, group=group); dist.broadcast(of_first, 0, group=group)
    print(what, rank, world_size, dist.get_rank(), dist.get_world_size(), os.environ["RANK"], one.item(), of_first.item())
"""
# Another cell that is cut off in its backward, when the rank has left.
CUT_OFF = """learn(2); freeze(); learn(1)
if was == 1: os._exit(3)
step(99)
"""


class Continues(unittest.TestCase):
    def test_training_goes_on_as_with_one_rank_less(self):
        sgd = "torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)"
        with tempfile.TemporaryDirectory(prefix="ls", dir="/tmp") as folder:
            run = Session(WRAPPED.replace("OPTIMIZER", sgd), NUMBERED, FIRST, CUT_OFF, "dist.barrier()", "%dist_continue", "say('three')",
                          f"%checkpoint {folder}", SECOND, DIGEST.replace("rank == 2", "True"), "%verify model",
                          "contained[0](torch.ones(1, 2)).sum().backward(); hooked(torch.ones(1, 2) * (was + 1)).sum().backward()\n"
                          "print('means', hooked.module.weight.grad.tolist())",
                          "print('groups', dist.get_process_group_ranks(pair)); say('pair', pair); say('default', everybody)",
                          "if was == 0: dist.barrier(with_lost)",
                          "last = dist.new_group([0, 1]); say('new', last)\nif rank == 1: dist.send(torch.full((1,), 7.0), 0)\n"
                          "else: got = torch.zeros(1); print('message', dist.recv(got), got.item())",
                          "learn(1)", "%dist_continue", "%restart 1 --from 0", "say('back')", "freeze(); learn(2); step(11)", "%verify model",
                          "%verify [sparse.module, late.module]",
                          "if was == 0: os._exit(3)", "%dist_continue", "say('others')", "%verify optimizer", "step(12)", "%restart", "say('all')",
                          ranks=3, options=KEEP_GOING)
            fewer = Session(WRAPPED.replace("OPTIMIZER", sgd), f"%restore {folder}", SECOND, DIGEST.replace("rank == 2", "True"))
        said = "\n".join(each["text"] for each in run.of("message")) + "\n".join(text for _, text in run.values())
        trained = lines(run, "digest")
        self.assertEqual([trained[0], trained[2]], [lines(fewer, "digest")[rank] for rank in (0, 1)], f"{said} {run.events} {fewer.events}")
        self.assertTrue(trained[0])
        expected = {"three": {0: "0 2 0 2 0 2.0 0.0", 2: "1 2 1 2 1 2.0 0.0"}, "pair": {0: "0 2 0 2 0 2.0 0.0", 2: "1 2 1 2 1 2.0 0.0"},
                    "default": {0: "0 2 0 2 0 2.0 0.0", 2: "1 2 1 2 1 2.0 0.0"}, "new": {0: "0 2 0 2 0 2.0 0.0", 2: "1 2 1 2 1 2.0 0.0"},
                    "groups": {0: "[0, 1]", 2: "[0, 1]"}, "message": {0: "1 7.0"}, "means": {0: "[[2.0, 2.0], [2.0, 2.0]]", 2: "[[2.0, 2.0], [2.0, 2.0]]"},
                    "back": {rank: f"{rank} 3 {rank} 3 {rank} 3.0 0.0" for rank in range(3)},
                    "others": {1: "0 2 0 2 0 2.0 1.0", 2: "1 2 1 2 1 2.0 1.0"}, "all": {rank: f"{rank} 3 {rank} 3 {rank} 3.0 0.0" for rank in range(3)}}
        for what, each in expected.items():
            self.assertEqual({rank: found for rank, found in lines(run, what + " ").items() if found}, {rank: [f"{what} {line}"] for rank, line in each.items()}, f"{said} {run.events}")
        for each in ("ranks 0,2 are the default group of 2 now. In cells they count from 0: rank 2 is 1",
                     "over ranks 0,2:", "model: its next forward is over 2 ranks", "hooked: its next forward is over 2 ranks", "not with_lost: the group needs rank 1",
                     "sparse: its next forward is over 2 ranks", "late: its next forward is over 2 ranks", "compiled: its next forward is over 2 ranks",
                     "not unused: the layout of its buckets is not known; make it again", "not broken: TypeError: 'NoneType' object is not callable; make it again",
                     "not sampler: its shares are of 3 ranks; make it again", "not fixed: its share is that of another rank; make it again",
                     *(f"not {each}: its sampler's shares are of 3 ranks; make both again" for each in ("loader", "of_batches")),
                     "  sparse: layout of the buckets", "  late: layout of the buckets", "lost: unused: the layout of its buckets", "lost: broken: TypeError"):
            self.assertIn(each, said)
        errors = "\n".join(each["message"] for each in run.of("error"))
        for each in ("group default needs rank 1, which is lost. %dist_continue makes", "needs rank 1, which is lost"):
            self.assertIn(each, errors)
        self.assertEqual([(each["verdict"], each["ranks"]) for each in run.of("finding")
                          if each["inspector"] == "verify" and each["verdict"] != "duplicate_data"],
                         [("ok", [0, 2]), ("ok", [0, 1, 2]), ("ok", [0, 1, 2]), ("ok", [1, 2])], said)


if __name__ == "__main__":
    unittest.main()

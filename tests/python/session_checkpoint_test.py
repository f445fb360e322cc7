"""%checkpoint and %restore of a session in Python: training goes on bit for bit, and what does not fit is named."""

import os
import tempfile
import unittest

from sessions import KEEP_GOING, Session

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
            for before in run.lines(begin).values():
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
            self.assertEqual([each[:1] for each in fresh.lines(begin).values()], [each[:1] for each in run.lines(begin).values()], f"{fresh.events}")
        self.assertEqual([each["verdict"] for each in fresh.of("finding")], ["ok"])
        said = fresh.values()[-1][1]
        for part in ("third: 0.weight was not there, or had another shape or type", "adam: it stepped parameters of other shapes or types",
                     "path: its type was collections.defaultdict, and it is code", "weights: a parameter was not there, or had another shape",
                     "of_half: no variable has the name", "loader: it is not in the checkpoint"):
            self.assertIn(f"left out: {part}", said)
        self.assertRegex(said, "\\n  .*\\barray, best, .*\\bmomentum, ")
        self.assertEqual(fresh.lines("then")[0], ["then 0.5 [0.0, 0.0, 0.0] 1 deque([2, 3], maxlen=2) True"])

    def test_a_rank_that_is_started_again_has_not_read_it(self):
        run = Session("kept = 1", f"%checkpoint {self.folder}/one", f"%restore {self.folder}/one", "import os\nif rank == 1: os.abort()", "%restart",
                      options=KEEP_GOING)
        said = "\n".join(each["text"] for each in run.of("message"))
        self.assertIn("not run again: cell 3, line 1: it met other ranks", said)
        self.assertNotIn("cell 2", said)

    def test_names_that_share_other_memory_now_and_files_that_were_changed(self):
        folder = self.folder
        damaged = {"kind": ("rank 1", "A"), "nested": ("rank 1", "ring"), "named": ("rank 0", "'a b'"), "sparse": ("rank 1", "A")}
        run = Session(SHARED, HAS, f"%checkpoint {folder}/good", "%who", MOVED, f"%restore {folder}/good", HAS, LATER, f"FOLDER = {folder!r}", CRAFTED,
                      *(f"%restore {folder}/{name}" for name in damaged), "print('still', A.item())", f"%restore {folder}/states",
                      "print('builtin'); numpy.random.rand(), draws.random();", "Ended.interrupts = True", f"%restore {folder}/good", options=KEEP_GOING)
        written, restored, of_states = (text for _, text in run.values())
        for what in ("has", "nets", "same"):
            before, after = run.lines(what + " ")[0]
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
        self.assertGreaterEqual(len(errors), len(damaged))
        for (name, (rank, of)), error in zip(damaged.items(), errors):
            self.assertRegex(error, f"nothing was restored from {folder}/{name}:\n{rank}: .* is no checkpoint of Python ranks, or is damaged: .*{of}")
        self.assertEqual(run.lines("still")[0] + run.lines("builtin")[0], ["still 5.0", "builtin"])
        self.assertRegex(run.output(), "%restore did not end: A, B, .* have what was written, ended may have a part of it, and the rest is unchanged")

    def test_errors_show_the_magic_and_an_interrupt_names_what_was_read(self):
        slow = ("class Slow:\n    def state_dict(self): return {}\n    def load_state_dict(self, state):\n"
                "        print('reads', flush=True)\n        while True: pass\nbefore, slow = 1, Slow()")
        run = Session(slow, f"%checkpoint {self.folder}", f"# It stands in line 2.\n%checkpoint   {self.folder}/rank0.pt",
                      f"%restore {self.folder}/none", f"%restore {self.folder}", options=KEEP_GOING, interrupt_at="reads")
        self.assertEqual(len(run.of("error")), 2)
        for error, line, magic in zip(run.of("error"), (2, 1), (f"checkpoint {self.folder}/rank0.pt", f"restore {self.folder}/none")):
            self.assertRegex(error["traceback"], f'File "<cell .>", line {line}, in <module>\n    %{magic}\nlockstep.LockstepError: ')
        self.assertEqual(run.statuses()[-1], "interrupted")
        self.assertIn("%restore did not end: before have what was written, slow may have a part of it", run.output())
        self.assertRegex(run.shown, "■ ranks 0-1: interrupted\n")


if __name__ == "__main__":
    unittest.main()

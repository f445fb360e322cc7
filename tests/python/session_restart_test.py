"""A rank of a session in Python that was lost is started again in its place, and training goes on bit for bit."""

import os
import pathlib
import sys
import tempfile
import unittest

from ranks import LOCKSTEP, environment
from sessions import DIGEST, FIRST, KEEP_GOING, SECOND, WRAPPED, Session
from tmux import PROMPT, Terminal
from waiting import Event

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
EXTRA = "print('extra', average.tolist(), scheduler.get_last_lr(), torch.rand(1, generator=generator).item(), torch.rand(1).item())"
DEATH = "if rank == 2: os.kill(os.getpid(), signal.SIGKILL)"


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


class Restarts(unittest.TestCase):
    def train_with_a_death(self, model, *after, says, never="lost:"):
        undisturbed = Session(model, FIRST, SECOND, *after, ranks=3)
        self.assertEqual(undisturbed.code, 0, undisturbed.shown)
        restarted = Session(model, FIRST, DEATH, "%restart 2 --from 0", SECOND, "%verify NAME".replace("NAME", "model" if "model" in model else "net"), *after, ranks=3,
                            options=KEEP_GOING)
        said = restarted.said()
        self.assertEqual(restarted.statuses()[3:6], ["ok", "ok", "ok"], f"{said} {restarted.events}")
        for begin in ("digest", "extra"):
            self.assertEqual(restarted.lines(begin), undisturbed.lines(begin), said)
        self.assertTrue(restarted.lines("digest")[2])
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
        self.assertEqual(run.lines("sums"), {0: ["sums 1.0 4.0 1 5"], 1: ["sums 5.0 2.0 1 5"],
                                              2: ["sums 5.0 4.0 1 5"]}, said + f"{run.events}")
        self.assertEqual(run.lines("again"), {rank: ["again 1 5"] for rank in range(3)}, said)
        self.assertEqual(run.lines("seen once"), {rank: ["seen once"] for rank in range(3)})
        for each in ("cell 1, line 4: it met other ranks", "cell 1, line 5: it met other ranks (so there is no reduced)",
                     "cell 2, line 5: it needs reduced of cell 1 (so there is no later)",
                     "cell 4, line 2: no rank that lives has reported", "cell 4, line 3: it had not ended there", "ran without it: cell 5"):
            self.assertIn(each, said)
        errors = "\n".join(each["message"] for each in run.of("error"))
        self.assertIn("name 'later' is not defined", errors)
        self.assertIn("rank 2 has not made group", errors)
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
        self.assertEqual(run.lines("has")[2], ["has 2 [0, 1] 1 False False"], f"{said} {run.events}")
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
        loaded = run.lines("loaded")
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

            terminal.wait_for(PROMPT.format(1))
            terminal.enter(f"import os, time; fifo = '{again}'", 2)
            terminal.enter("if os.path.exists(fifo): print('runs', file=open(fifo, 'w'), flush=True); time.sleep(1000)", 3)
            terminal.enter("before = 1", 4)
            terminal.enter("if rank: os._exit(3)", 5)
            imports, runs_again = Event(importing), Event(again)
            self.assertIn("%restart 1 --from 0 starts it again in its place", terminal.screen())
            self.assertIn("%dist_continue goes on without it: rank 0 is then the default group", terminal.screen())
            terminal.enter("%restart")
            self.assertTrue(imports.wait(), terminal.screen())
            terminal.press("C-c")  # while the interpreter imports torch
            terminal.wait_for(r"rank 0 ▸ *\n?\Z")
            terminal.enter("%restart")
            self.assertTrue(runs_again.wait(), terminal.screen())
            terminal.press("C-c")  # while a cell runs again
            terminal.wait_for(r"▸ %restart\n(.*\n)*.*▸ %restart\n(.*\n)*.*rank 0 ▸ *\n?\Z")
            terminal.enter("after = 1", 6)
            terminal.enter("%restart", 7)
            self.assertIn("rank 1 is back: 3 cells ran again", terminal.screen())
            terminal.enter("x = torch.ones(1); dist.all_reduce(x); x.item()", 8)
            self.assertIn("0-1 = 2.0", terminal.screen())


if __name__ == "__main__":
    unittest.main()

"""A session in Python gets more ranks than it was started with, or fewer: %dist_init -n M."""

import tempfile
import unittest

from sessions import DIGEST, FIRST, KEEP_GOING, SECOND, WRAPPED, Session

SAVE = "if rank == 0: torch.save([net.state_dict(), optimizer.state_dict()], 'FILE')"
# Another session takes up what rank 0 had. Batch statistics are those of rank 0 with the next forward.
LOAD = "for part, saved in zip((net, optimizer), torch.load('FILE')): part.load_state_dict(saved)"
SEEDS = "set_seed(3 + rank); print('threads', torch.get_num_threads(), os.environ['LOCAL_WORLD_SIZE'], os.environ['LOCKSTEP_BACKEND'])"
SHOWN = DIGEST.replace("rank == 2", "True")

NAMES = """import os, signal
kept = 10 + rank
loss = [one := torch.ones(1), dist.all_reduce(one)][0]
pair, everybody, shared = dist.new_group([0, 1]), dist.group.WORLD, dist.new_group()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
def say(what, group=None):
    one = torch.ones(1)
    dist.all_reduce(one, group=group)
    print(what, rank, world_size, dist.get_rank(), dist.get_world_size(), os.environ["WORLD_SIZE"], int(one.item()))
"""


def numbers(size, ranks=None, of=None):
    return {rank: f"{rank} {size} {rank} {size} {size} {of or size}" for rank in range(ranks or size)}


class Grows(unittest.TestCase):
    def train_on_with_more_than(self, ranks, optimizer):
        model = WRAPPED.replace("OPTIMIZER", optimizer)
        with tempfile.NamedTemporaryFile(prefix="ls", dir="/tmp") as file:
            load = LOAD.replace("FILE", file.name)
            grown = Session(model, FIRST, SAVE.replace("FILE", file.name), "%dist_init -n 4 --from 0", SEEDS, SECOND, "%verify model",
                            SHOWN, ranks=ranks, options=KEEP_GOING)
            reference = Session(model, load, SEEDS, SECOND, SHOWN, ranks=4)
        grown.ranks = range(4)
        self.assertEqual(grown.code, 0, f"{grown.said()} {grown.shown} {grown.events}")
        self.assertEqual(reference.code, 0, reference.shown)
        for begin in ("digest", "threads"):
            self.assertEqual(grown.lines(begin), reference.lines(begin), f"{grown.said()} {grown.events}")
        self.assertTrue(grown.lines("digest")[3])
        self.assertIn("rank 3 is new: 2 cells ran again", grown.said())
        self.assertIn("cell 2, line 1: it met other ranks", grown.said())
        verified, *_ = [each for each in grown.of("finding") if each["inspector"] == "verify"]
        self.assertEqual((verified["verdict"], verified["ranks"]), ("ok", [0, 1, 2, 3]))

    def test_momentum(self):
        self.train_on_with_more_than(2, "torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)")

    def test_adam_where_a_rank_was_alone(self):
        self.train_on_with_more_than(1, "torch.optim.Adam(net.parameters(), 0.01)")

    def test_names_groups_and_later_deaths(self):
        step = "model.zero_grad(); model(torch.ones(1, 2) * (rank + 1)).sum().backward(); print('NAME', model.module.weight.grad[0, 0].item())"
        run = Session(NAMES, "%%rank 0\nown = 5", "%dist_init -n 4", "say('four'); print('kept', kept)", "%%rank 3\nown", "%%rank 2\nloss",
                      "if rank < 2: say('pair', pair)", "if rank < 2: say('were', shared)", "if rank == 3: dist.barrier(shared)",
                      "say('default', everybody)", "last = dist.new_group([1, 3])\nif rank in (1, 3): say('last', last)", step.replace("NAME", "step"),
                      "if rank == 3: os._exit(3)", "%restart 3", "say('back')",
                      "if rank == 1: os._exit(3)", "%restart 1", "say('both'); print('keeps', kept)", step.replace("NAME", "after"),
                      "%dist_init -n 2", "say('two')", "%dist_init -n 5", "say('five'); print('holds', kept)", step.replace("NAME", "end"),
                      ranks=2, options=KEEP_GOING)
        run.ranks = range(5)
        said = run.said()
        expected = {"four": numbers(4), "pair": numbers(4, 2, 2), "were": numbers(4, 2, 2), "default": numbers(4),
                    "last": {rank: numbers(4, of=2)[rank] for rank in (1, 3)}, "back": numbers(4), "both": numbers(4), "two": numbers(2), "five": numbers(5),
                    "kept": {rank: str(10 + rank) for rank in range(4)}, "keeps": {rank: str(10 + rank) for rank in range(4)},
                    "holds": {rank: str(10 + rank) for rank in range(5)}, "step": dict.fromkeys(range(4), "2.5"), "after": dict.fromkeys(range(4), "2.5"),
                    "end": dict.fromkeys(range(5), "3.0")}
        for what, each in expected.items():
            self.assertEqual({rank: found for rank, found in run.lines(what + " ").items() if found}, {rank: [f"{what} {line}"] for rank, line in each.items()},
                             f"{what}: {said} {run.events}")
        self.assertIn("ran without it: cell 2", said)
        errors = "\n".join(each["message"] for each in run.of("error"))
        for each in ("name 'own' is not defined", "name 'loss' is not defined", "have not made group"):
            self.assertIn(each, errors)
        self.assertEqual([each["ranks"] for each in run.of("session")], [[0, 1], [0, 1, 2, 3], [0, 1, 2, 3, 4]])

    def test_groups_of_other_backends_stay(self):
        run = Session("1", "%dist_init -n 3", "world_size", options=[*KEEP_GOING, "--backend", "gloo"])
        self.assertIn("%dist_init in a running session needs the backend lockstep", run.of("error")[-1]["message"])
        self.assertEqual(run.values()[-1], ([0, 1], "2"))


if __name__ == "__main__":
    unittest.main()

"""A session in Python goes on without the ranks that were lost: %dist_continue."""

import tempfile
import unittest

from sessions import DIGEST, FIRST, KEEP_GOING, SECOND, WRAPPED, Session

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
        said = run.said()
        trained = run.lines("digest")
        self.assertEqual([trained[0], trained[2]], [fewer.lines("digest")[rank] for rank in (0, 1)], f"{said} {run.events} {fewer.events}")
        self.assertTrue(trained[0])
        expected = {"three": {0: "0 2 0 2 0 2.0 0.0", 2: "1 2 1 2 1 2.0 0.0"}, "pair": {0: "0 2 0 2 0 2.0 0.0", 2: "1 2 1 2 1 2.0 0.0"},
                    "default": {0: "0 2 0 2 0 2.0 0.0", 2: "1 2 1 2 1 2.0 0.0"}, "new": {0: "0 2 0 2 0 2.0 0.0", 2: "1 2 1 2 1 2.0 0.0"},
                    "groups": {0: "[0, 1]", 2: "[0, 1]"}, "message": {0: "1 7.0"}, "means": {0: "[[2.0, 2.0], [2.0, 2.0]]", 2: "[[2.0, 2.0], [2.0, 2.0]]"},
                    "back": {rank: f"{rank} 3 {rank} 3 {rank} 3.0 0.0" for rank in range(3)},
                    "others": {1: "0 2 0 2 0 2.0 1.0", 2: "1 2 1 2 1 2.0 1.0"}, "all": {rank: f"{rank} 3 {rank} 3 {rank} 3.0 0.0" for rank in range(3)}}
        for what, each in expected.items():
            self.assertEqual({rank: found for rank, found in run.lines(what + " ").items() if found}, {rank: [f"{what} {line}"] for rank, line in each.items()}, f"{said} {run.events}")
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

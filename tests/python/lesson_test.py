"""The lessons in Python, on two ranks: what a class sees in the first one, and that its checks bite."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from ranks import LOCKSTEP, TREE, environment

FOLDER = TREE / "scripts" / "lessons" / "python"
LESSON = FOLDER / "01-ddp-from-scratch.py"


class Run:
    """What `lockstep run` says about a script."""

    def __init__(self, script, *options, ranks=2):
        with tempfile.TemporaryDirectory(prefix="ls", dir="/tmp") as folder:  # a socket's path is short
            events = pathlib.Path(folder) / "events"
            done = subprocess.run([LOCKSTEP, "run", str(script), "-n", str(ranks), "--json", str(events), *options],
                                  env=environment(XDG_RUNTIME_DIR=folder, LOCKSTEP_PYTHON=sys.executable), cwd=TREE,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            self.code, self.shown = done.returncode, done.stdout
            self.events = [json.loads(line) for line in events.read_text().splitlines()]

    def of(self, title, kind):
        """The events of this kind of the cell with this title."""
        cells = [each["cell"] for each in self.events if each["event"] == "cell" and each["title"] == title]
        assert cells, f"no cell ended with the title {title!r}\n{self.shown}"
        return [each for each in self.events if each["event"] == kind and each.get("cell") == cells[0]]

    def fault(self, title):
        (fault,) = [each for each in self.of(title, "finding") if each["severity"] == "fault"]
        return fault


class Lesson(unittest.TestCase):
    def test_on_two_ranks(self):
        run = Run(LESSON)
        self.assertEqual(run.code, 0, run.shown)

        same = run.of("the world size: the same everywhere", "value")
        different = run.of("the rank: different everywhere", "value")
        self.assertEqual([(each["ranks"], each["text"]) for each in same + different],
                         [([0, 1], "(2, 2)"), ([0], "0"), ([1], "1")])

        title = "wrap a model that was made with different seeds"
        (error,) = run.of(title, "error")
        self.assertEqual((error["ranks"], error["type"]), ([1], "RuntimeError"))
        self.assertIn("6 parameters are not those of rank 0, first conv1.weight", error["message"])
        self.assertEqual(run.of(title, "cell")[0]["rank_status"], {"0": "ok", "1": "error"})
        self.assertIn("different seeds", run.fault("what %verify says")["message"])

        self.assertEqual(len(run.of("every rank its own sample", "value")), 2)
        (error,) = run.of("are the replicas still the same?", "error")
        self.assertEqual(error["ranks"], [0, 1])
        self.assertIn("rank 1, tensor 0 (conv1.weight) differs", error["message"])
        self.assertIn("trained separately", run.fault("which parameters have parted?")["message"])
        self.assertEqual(run.fault("are the gradients the same?")["inspector"], "grads")

        table = "".join(each["text"] for each in run.of("what holds how much?", "output"))
        self.assertIn("optimizer: ", table)
        self.assertIn("given back", run.of("let go of everything", "output")[0]["text"])
        self.assertEqual(run.of("every digit is in one shard, and in one only", "finding")[0]["verdict"], "ok")

        drift = run.fault("a training that drifts")
        self.assertEqual((drift["ranks"], drift["tensor"], drift["step"]), ([0, 1], "fc.weight", 8))
        self.assertIn("equal at step 6, not at step 8", drift["message"])
        self.assertEqual([each["verdict"] for each in run.of("what Lockstep says about it", "finding")], ["ok", "ok"])

    def test_the_others_run_to_their_end(self):
        for name in ("02-one-device-to-many", "03-accumulation", "04-inside-ddp"):
            run = Run(FOLDER / f"{name}.py")
            self.assertEqual(run.code, 0, run.shown)
            self.assertTrue(all(each["expected"] for each in run.events if each["event"] == "cell"), run.shown)

    def test_one_device_or_several(self):
        first_losses = [Run(FOLDER / f"{name}.py", ranks=1).of(title, "output")[0]["text"]
                        for name, title in (("02-one-device-to-many", "train on all of them"),
                                            ("03-accumulation", "train"))]
        self.assertEqual([each.count("loss") for each in first_losses], [2, 2])

    def test_it_notices_what_it_is_there_to_notice(self):
        lines = LESSON.read_text()
        for title, right, wrong in (
                ("the same step, with the average", "    replica.sync_gradients()\n", ""),
                ("version 4", "self.do_sync = before", "self.do_sync = True"),
                ("accumulate over four micro-batches", "/ window\n", "\n"),
                ("the right one", "(index + 1) % window == 0", "index % window == 0")):
            before, marker, after = lines.partition(f"# %% {title}\n")
            self.assertTrue(marker and right in after, title)
            lines = before + marker + after.replace(right, wrong, 1)
        answers = ("\n# %% exercise 1\nrank_there, local_rank_there = 5, rank\n%check second_machine\n"
                   "\n# %% exercise 2\nanswers = (6, 0, 0)\n%check old_object\n"
                   "\n# %% exercise 4\ntorch.manual_seed(43)\nnet = Net()\n%check one_model\n"
                   "\n# %% exercise 5\nreplica = SimpleDistributedDataParallelism(net)\nmicro_step(replica, 0)\n"
                   "%check one_gradient\n")
        with tempfile.NamedTemporaryFile("w", suffix=".py") as copy:
            copy.write(lines + answers)
            copy.flush()
            run = Run(copy.name, "--keep-going")
        self.assertEqual(run.code, 1, run.shown)
        for title in ("and the same check", "and the answer", "the block puts back what was there before",
                      "one step with the large batch", "and these?", "exercise 1", "exercise 2", "exercise 4",
                      "exercise 5"):
            self.assertEqual(run.of(title, "cell")[0]["status"], "error", title)
        (error,) = run.of("exercise 1", "error")
        self.assertEqual((error["ranks"], error["message"]),
                         ([0], "the local rank counts the processes of one machine, from 0"))
        for exercise, said in (("exercise 2", "hasattr is False"), ("exercise 4", "nothing has trained them"),
                               ("exercise 5", "not that of the large batch")):
            self.assertIn(said, run.of(exercise, "error")[0]["message"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv)

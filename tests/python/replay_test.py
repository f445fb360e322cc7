"""`lockstep run --record` and `lockstep replay`: a rank runs again alone with the same bits, fails at the same line, and
says where it is no longer the recorded run."""

import functools
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import copies
from ranks import HERE, LOCKSTEP, environment, launcher, line_in
from terminal_screen import Program

JOB = HERE / "jobs" / "replay.py"
line_of = functools.partial(line_in, JOB)
KEPT = [0, 1, *range(5, 10)]  # of ten steps with --record 3


def run(command, **more):
    return subprocess.run([str(each) for each in command], env=environment(**more), cwd=HERE / "jobs",
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)


class Recorded(unittest.TestCase):
    """A case is recorded once, on three ranks."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.recordings = {}

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def record(self, case, code=0, *options, runs=None, **more):
        """The folder of what the ranks wrote, with the recording; and what was printed."""
        if case not in self.recordings:
            folder = pathlib.Path(self.folder.name, case)
            folder.mkdir()
            done = run([LOCKSTEP, "run", "--record", 3, "--recording", folder / "recording", *options, "--", *launcher(3, copied=True), JOB,
                        folder, runs or case], **more)
            self.assertEqual(done.returncode, code, done.stdout[-6000:])
            self.recordings[case] = folder, done.stdout
        return self.recordings[case]

    def command(self, case, folder, *options, rank=2, runs=None, copied=True):
        """Replays what was recorded of `case`, with a script that is in case `runs`."""
        recording = self.recordings[case][0] / "recording"
        python = copies.interpreter() if copied else sys.executable
        command = [LOCKSTEP, "replay", recording, "--rank", rank, *options, "--", python, JOB, folder, runs or case]
        return [str(each) for each in command]

    def replay(self, case, *options, rank=2, runs=None, copied=True, code=0, input=None, **more):
        """What the replay printed, and the lines that it wrote."""
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(self.command(case, folder, *options, rank=rank, runs=runs, copied=copied), env=environment(**more),
                                  cwd=HERE / "jobs", input=input, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  timeout=300)
            if code is not None:
                self.assertEqual(done.returncode, code, done.stdout[-6000:])
            file = pathlib.Path(folder, f"rank-{rank}")
            return done.stdout, file.read_text().splitlines() if file.exists() else []

    def lines(self, case, steps, rank=2):
        all_lines = (self.recordings[case][0] / f"rank-{rank}").read_text().splitlines()
        return [each for each in all_lines if int(each.split()[0]) in steps]

    def check_equal(self, case, rank=2, runs=None):
        text, lines = self.replay(case, rank=rank, runs=runs)
        # What stands behind a step that was left out runs with what there was before.
        self.assertEqual([each for each in lines if int(each.split()[0]) in KEPT], self.lines(case, KEPT, rank), text)
        self.assertRegex(text, rf"lockstep: rank {rank} was replayed in steps 0-1 and 5-9: [0-9]+ collectives, in all of which "
                               r"it sent what it had sent when it was recorded\n$")
        return text


class Equal(Recorded):
    def test_data_parallel_training(self):
        self.record("data_parallel")
        for rank in (0, 2):
            self.check_equal("data_parallel", rank)

    def test_sharded_training(self):
        self.record("sharded")
        self.check_equal("sharded")

    def test_tensor_parallel_training(self):
        self.record("tensor_parallel")
        self.check_equal("tensor_parallel")

    def test_every_kind_of_collective(self):
        self.record("by_hand")
        for rank in (0, 1, 2):
            self.check_equal("by_hand", rank)

    def test_every_kind_of_collective_on_gloo(self):
        self.record("on_gloo", runs="by_hand", LOCKSTEP_BACKEND="gloo")
        self.check_equal("on_gloo", runs="by_hand")


class Ends(Recorded):
    def test_an_exception_comes_back_at_its_line(self):
        folder, printed = self.record("fails", 1)
        self.assertRegex(printed, r"lockstep: ranks 0-2 of 3 recorded in [^ ]*/fails/recording \(")
        error = re.search(r"FloatingPointError: (.*)", printed)[0]
        text, lines = self.replay("fails", code=1)
        self.assertIn(error, text)
        self.assertRegex(text, rf'File "[^"]*replay.py", line {line_of("raise FloatingPointError")}, in data_parallel')
        self.assertRegex(text, r"was replayed in steps 0-1 and 5-9: [0-9]+ collectives")

    def test_pdb_opens_at_the_exception(self):
        self.record("fails", 1)
        text, _ = self.replay("fails", "--pdb", code=1, input="p ('here', step, dist.get_rank())\nq\n")
        self.assertIn("('here', 9, 2)", text)

    def test_until(self):
        self.record("fails", 1)
        text, lines = self.replay("fails", "--until", 6)
        self.assertEqual([int(each.split()[0]) for each in lines][-1], 5)
        self.assertRegex(text, "was replayed in steps 0-1 and 5: .* when it was recorded\n$")

    def test_control_c_is_the_programs(self):
        self.record("fails", 1)
        with tempfile.TemporaryDirectory() as folder:
            with Program(self.command("fails", folder, "--until", 6, "--pdb"), rows=100, environment=environment()) as program:
                program.wait_for(r"\(Pdb\)$")
                # Python takes one that comes between the prompt and its wait for a key only at the next key.
                program.press_until("\x03", "--KeyboardInterrupt--")
                program.wait_for(r"--KeyboardInterrupt--\n\(Pdb\)$")
                program.send("p ('here', step)\n")
                program.wait_for(r"^\('here', 6\)")
                program.send("q\n")
                self.assertEqual(program.wait_end(), 1)

    def test_a_run_that_ends_earlier_than_the_recorded_one(self):
        self.record("fails", 1)
        text, _ = self.replay("fails", runs="stops")
        self.assertRegex(text, r"was replayed in steps 0-1 and 5-7: .* when it was recorded\. [1-9][0-9]* recorded collectives "
                               r"were not reached, the first: [^\n]*; the recording goes on to step 9\n")

    def test_what_was_not_recorded_is_found_at_its_collective(self):
        self.record("fails", 1)
        text, _ = self.replay("fails", runs="spoiled", code=1)
        self.assertRegex(text, rf"in step 6: all_reduce float32 [^\n]*replay.py:{line_of('loss.backward()')} in data_parallel\) "
                               r"sends other values than the recorded rank did: norm [^ ]* \(hash [0-9a-f]{16}\) now, norm ")
        self.assertRegex(text, r"was replayed in steps 0-1 and 5-6: .* Then it departed in step 6: all_reduce")

    def test_a_rank_whose_peer_died(self):
        self.record("dies", 5)
        text, _ = self.replay("dies", rank=0, code=1)
        self.assertRegex(text, r"[a-z_]+[^\n]* in step [78], failed on the recorded rank: ")
        text, lines = self.replay("dies", rank=1, code=137)
        self.assertEqual([int(each.split()[0]) for each in lines][-1], 6)

    def test_a_collective_that_never_ended(self):
        self.record("hangs", 4, "--hang-timeout", 6)
        text, _ = self.replay("hangs", rank=0, code=1)
        self.assertRegex(text, r"[a-z_]+[^\n]* in step 8, never ended on the recorded rank")

    def test_a_recording_that_ended_before_the_job(self):
        folder, printed = self.record("gives_up")
        reason = "Counter['counts'] is a set, which a recording does not keep"
        self.assertEqual(printed.count(f"lockstep: recording has ended: {reason}"), 3, printed)
        self.assertEqual(printed.count("lockstep: "), 4, printed)  # and where the recording is
        self.assertEqual(len((folder / "rank-2").read_text().splitlines()), 10)  # the job went on
        text, lines = self.replay("gives_up")
        self.assertEqual(lines, self.lines("gives_up", (0, 1)))
        self.assertIn(f"lockstep: recording had ended before the program did: {reason}", text)
        self.assertRegex(text, r"was replayed in steps 0-1: .* The recording ends before step 2: " + re.escape(reason))


class Refusals(Recorded):
    def refused(self, *arguments):
        done = run([LOCKSTEP, "replay", *arguments, "--", sys.executable, JOB, "/nowhere", "none"])
        self.assertEqual(done.returncode, 2, done.stdout)
        return done.stdout

    def test_recordings_that_can_not_be_used(self):
        folder, _ = self.record("fails", 1)
        recording = folder / "recording"
        self.assertIn("has no rank 7; it has ranks 0-2", self.refused(recording, "--rank", 7))
        self.assertIn("can't be opened: No such file", self.refused(folder / "absent", "--rank", 0))
        self.assertIn("is no recording", self.refused(JOB, "--rank", 0))
        damaged = bytearray(recording.read_bytes())
        damaged[len(damaged) // 2] ^= 1
        (folder / "damaged").write_bytes(damaged)
        texts = [run([LOCKSTEP, "replay", folder / "damaged", "--rank", rank, "--", sys.executable, "-c", ""]) for rank in range(3)]
        self.assertIn("damaged", "".join(each.stdout for each in texts))
        (folder / "short").write_bytes(recording.read_bytes()[:-100])
        self.assertIn("cut off", self.refused(folder / "short", "--rank", 0))
        self.assertIn("this step of rank 0 was not recorded; these were: 0-1,5-9",
                      self.refused(recording, "--rank", 0, "--until", 3, "--pdb"))

    def test_programs_that_can_not_be_replayed(self):
        folder, _ = self.record("fails", 1)
        begin = [LOCKSTEP, "replay", folder / "recording", "--rank", 1, "--"]
        done = run(begin[:-1])
        self.assertEqual((done.returncode, "the program is missing" in done.stdout), (2, True), done.stdout)
        done = run([*begin, sys.executable, "-c", "import lockstep"])
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, r"lockstep: no collective of rank 1 was replayed: the program made none\. [1-9][0-9]* "
                                      r"recorded collectives were not reached")
        done = run([*begin, "env", "RANK=0", sys.executable, "-c", "import lockstep"])
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("this process is rank 0, and lockstep replay runs rank 1 alone", done.stdout)

    def test_arguments(self):
        done = run([LOCKSTEP, "run", "--recording", "x", "--", sys.executable, "-c", ""])
        self.assertEqual((done.returncode, "--recording requires --record" in done.stdout), (2, True), done.stdout)
        # Before the job runs.
        for path, problem in (("/nowhere/x", "into /nowhere: No such file"), (f"{JOB}/x", "replay.py: Not a directory"),
                              (HERE, "is a folder")):
            done = run([LOCKSTEP, "run", "--record", 1, "--recording", path, "--", sys.executable, "-c", "print('has run')"])
            self.assertEqual((done.returncode, "has run" in done.stdout), (2, False), done.stdout)
            self.assertIn(problem, done.stdout)

    def test_other_threads_are_said(self):
        self.record("fails", 1)
        # A copy has the threads of its server. Sums may differ, and end the replay.
        text, _ = self.replay("fails", "--until", 1, copied=False, code=None, OMP_NUM_THREADS="2")
        self.assertIn("torch has 2 threads here, and had 1 when this was recorded", text)


class Marks(unittest.TestCase):
    def test_steps_of_a_program_that_is_not_recorded(self):
        import torch

        import lockstep

        model = torch.nn.Linear(2, 2)
        steps = [lockstep.step(model, torch.optim.SGD(model.parameters(), 0.1), batch=torch.ones(2)) for _ in range(2)]
        for each in steps:
            with each:
                pass
        self.assertEqual(steps[1].number, steps[0].number + 1)
        with self.assertRaisesRegex(lockstep.ArgumentError, "a int has no state_dict"):
            lockstep.step(3)
        with self.assertRaisesRegex(lockstep.ArgumentError, "a batch is recorded with a model"):
            lockstep.step(batch=3)

    def test_why_a_program_is_not_recorded_is_said_once(self):
        for backend, steps, said in (("gloo", 3, "this step is not recorded: no process group of this rank has the backend"),
                                     ("lockstep", 0, "nothing is recorded: 0 is no number of steps")):
            program = f"""if True:
                import torch, torch.distributed as dist, lockstep
                dist.init_process_group({backend!r}, store=dist.HashStore(), rank=0, world_size=1)
                for _ in range(2):
                    with lockstep.step(torch.nn.Linear(1, 1)):
                        pass
            """
            done = run([sys.executable, "-c", program], LOCKSTEP_RECORD=str(steps))
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertRegex(done.stdout, rf"\Alockstep: {said}[^\n]*\n\Z")


if __name__ == "__main__":
    unittest.main(verbosity=2)

"""`lockstep compare`: one script in several layouts is the same training, and each fault is found at its first value. The
reference is recorded once, and compared with all candidates."""

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import unittest

import copies
from ranks import HERE, LOCKSTEP, environment, launcher

SCRIPT = str(HERE / "jobs" / "compare_gpt.py")


def command(ranks, layout, fault="", **variables):
    words = [*(launcher(ranks, copied=True) if ranks > 1 else [copies.interpreter()]), SCRIPT, layout, *([fault] if fault else [])]
    return " ".join([*(f"{key}={each}" for key, each in variables.items()), shlex.join(words)])


def compare(*arguments):
    """The exit code, what was said, and the first event of --json."""
    done = subprocess.run([LOCKSTEP, "compare", "--json", *arguments], env=environment(), capture_output=True, text=True)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    return done.returncode, events, done.stderr


class Compare(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.kept = os.path.join(cls.folder.name, "kept")
        code, _, said = compare("--reference", command(1, "single"), "--steps", "1", "--runs", "3", "--keep", cls.kept)
        assert code == 0, said
        # It waits half a minute for a rank that never comes, beside the other tests.
        cls.without_step = subprocess.Popen([LOCKSTEP, "compare", "--json", "--steps", "1", cls.kept, "--candidate",
                                             command(2, "ddp", "no step")], env=environment(), stdout=subprocess.PIPE,
                                            stderr=subprocess.PIPE, text=True)

    @classmethod
    def tearDownClass(cls):
        with cls.without_step:
            cls.without_step.kill()
        cls.folder.cleanup()

    def judged(self, *candidate, **variables):
        """The first event, and the first fault."""
        code, events, said = compare(self.kept, "--candidate", command(*candidate, **variables), "--steps", "1")
        self.assertIn(code, (0, 1), said)
        faults = [each for each in events if each["event"] == "finding" and each["severity"] == "fault"]
        self.assertEqual((len(faults), events[0]["same"]), (code, code == 0), events)
        return events[0], faults[0] if faults else None

    def test_the_same_training_in_every_layout(self):
        for ranks, layout, least in ((1, "accumulate", 250), (2, "ddp+accumulate", 300), (2, "fsdp", 250), (4, "tp+fsdp", 500),
                                     (2, "by-hand", 250), (2, "fsdp1", 250), (2, "fsdp1+names", 250), (1, "checkpoint", 150)):
            with self.subTest(layout):
                about, fault = self.judged(ranks, layout)
                self.assertIsNone(fault)
                self.assertGreater(about["compared"], least)
                self.assertEqual((about["not_recorded"], about["only_in_candidate"], about["steps"]), ([], [], 1))
                self.assertLess(about["largest"], 1)
                # Attention is the same whatever is added to all keys.
                self.assertEqual(sorted(about["says_nothing"]), ["the gradient of blocks.0.k.bias",
                                                                 "the gradient of blocks.1.k.bias"])

    def test_faults_are_found_at_their_first_value(self):
        for ranks, layout, fault, words in (
                (1, "accumulate", "not divided", ["the loss is not", "4 × the reference's", "not divided by their number"]),
                (2, "ddp", "shifted", ["4 of the 4 samples of rank 1 are not in the reference's batch"]),
                (2, "ddp", "same shard", ["4 of the 8 samples", "ranks 0-1 are given the same samples"]),
                (2, "ddp", "mask", ["the output of blocks.0.attention on rank 1"]),
                (2, "ddp", "no gradient", ["the gradient of head.bias is None on rank 1"]),
                (2, "by-hand", "sum", ["the gradient of token.weight", "2 × the reference's", "the mean is meant"]),
                (2, "by-hand", "not reduced", ["the gradient of head.weight on ranks 0-1", "not averaged over"]),
                (2, "by-hand", "seed", ["the initial value of token.weight on rank 1", "other weights"]),
                (2, "fsdp1", "rate", ["the value after the step of token.weight", "learning rate"]),
                (2, "fsdp1+names", "frozen", ["the gradient of blocks.0.q.weight is read by no optimizer on ranks 0-1"]),
                (2, "tp", "norm not reduced", ["the gradient of blocks.1.ln1.weight on ranks 0-1", "not reduced over"])):
            with self.subTest(fault):
                _, found = self.judged(ranks, layout, fault)
                self.assertIsNotNone(found)
                for each in words:
                    self.assertIn(each, found["message"])

    def test_all_faults_are_found_where_values_are_replaced(self):
        for ranks, layout, faults, expected in (
                (2, "ddp", "mask+clipped+rate", [("output of blocks.0.attention on rank 1",), ("gradient of token.weight on rank 0",),
                                                 ("value after the step of token.weight", "learning rate", "; likewise ")]),
                (2, "tp", "norm not reduced+norm reduced twice", [
                    ("gradient of blocks.0.ln2.weight", "it is 2 ×"), ("gradient of blocks.1.ln1.weight", "not reduced over")]),
                (4, "tp+fsdp", "mask+decay", [("output of blocks.0.attention on rank 1",), ("output of blocks.1.attention on rank 1",),
                                              ("value after the step of token.weight",)]),
                (1, "checkpoint", "epsilon", [("output of blocks.0.ln1 ",), ("output of blocks.1.ln1 ",)])):
            with self.subTest(faults):
                code, events, said = compare(self.kept, "--candidate", command(ranks, layout, faults), "--steps", "1",
                                             "--all-faults")
                self.assertEqual((code, events[0]["replaced"], events[0]["not_replaced"]), (1, True, []), said + str(events))
                found = [each for each in events if each["event"] == "finding" and each["severity"] == "fault"]
                for words in expected:
                    self.assertTrue(any(all(word in each["message"] for word in words) for each in found), found)
        code, events, said = compare(self.kept, "--candidate", command(2, "ddp"), "--steps", "1", "--all-faults")
        self.assertEqual((code, events[0]["same"], events[0]["replaced"]), (0, True, False), said)

    def test_a_second_run_that_fails_leaves_the_first_answer(self):
        once = os.path.join(self.folder.name, "once")
        candidate = f"if [ -e {once} ]; then exit 7; fi; : > {once}; {command(2, 'ddp', 'mask')}"
        code, events, said = compare(self.kept, "--candidate", candidate, "--steps", "1", "--all-faults")
        self.assertEqual((code, events[0]["replaced"]), (1, False), said)
        self.assertIn("blocks.0.attention on rank 1", events[1]["message"])
        self.assertTrue(any("only the first fault is known" in each["message"] for each in events[2:-1]), events)

    def test_bfloat16(self):
        kept = os.path.join(self.folder.name, "bfloat16")
        code, _, said = compare("--reference", command(1, "single", DTYPE="bfloat16"), "--steps", "1", "--keep", kept)
        self.assertEqual(code, 0, said)
        for fault, words in (("", None), ("norm not reduced", "the gradient of blocks.1.ln1.weight on ranks 0-1")):
            with self.subTest(fault):
                code, events, said = compare(kept, "--candidate", command(2, "tp", fault, DTYPE="bfloat16"), "--steps", "1")
                self.assertEqual(code, 1 if fault else 0, said)
                self.assertEqual(sorted(events[0]["says_nothing"])[:2], ["the gradient of blocks.0.k.bias",
                                                                         "the gradient of blocks.1.k.bias"])
                if words:
                    self.assertIn(words, events[1]["message"])

    def test_a_rank_that_makes_no_step_is_not_waited_for(self):
        shown, said = self.without_step.communicate()
        self.assertEqual((self.without_step.returncode, shown), (2, ""))
        self.assertIn("s later rank 1 has not: does an optimizer skip steps there?", said)

    def test_a_job_of_torchrun(self):
        torchrun = [*launcher(2, torchrun=True), SCRIPT, "ddp", "mask"]
        code, events, _ = compare(self.kept, "--candidate", shlex.join(torchrun), "--steps", "1")
        self.assertEqual(code, 1)
        self.assertIn("blocks.0.attention on rank 1", events[1]["message"])

    def test_batch_norm_is_a_difference_that_is_meant(self):
        kept = os.path.join(self.folder.name, "norm")
        code, events, _ = compare("--reference", command(1, "single", NORM="batch"), "--candidate",
                                  command(2, "ddp", NORM="batch"), "--steps", "1", "--runs", "2", "--keep", kept)
        self.assertEqual(code, 1)
        self.assertIn("other training by definition", events[1]["message"])
        # Two recordings of one layout: the same bits.
        code, events, _ = compare(os.path.join(kept, "reference"), os.path.join(kept, "reference"))
        self.assertEqual((code, events[0]["same"], events[0]["largest"]), (0, True, 0))

    def test_what_can_not_be_compared(self):
        folder, reference = os.path.join(self.folder.name, "other"), os.path.join(self.kept, "reference")
        for arguments, words in (
                (["--reference", "echo so; exit 3"], "compares two runs"),
                (["--reference", "echo so; exit 3", "--keep", folder], "exited with code 3"),
                (["--reference", "echo lockstep compare: so; seq 1000; exit 3", "--keep", folder],
                 "Its recorder:\n  lockstep compare: so"),
                (["--reference", "true", "--keep", folder], "recorded nothing"),
                ([self.kept, "--candidate", f"{sys.executable} -c 'import torch'"], "recorded nothing"),
                ([self.kept, os.path.join(folder, "none")], "no such folder"),
                ([self.kept, HERE.as_posix()], "no recording of rank 0"),
                (["--reference", command(2, "ddp"), "--candidate", "true", "--steps", "1"], "the reference has 2 ranks"),
                ([self.kept, self.kept, "--rtol", "0.1"], "--rtol is for recordings without perturbed runs"),
                (["--reference", "true", "--candidate", "true", "--rtol", "0.1"], "--rtol is for recordings without"),
                ([self.kept, self.kept, "--steps", "1"], "--steps is for runs that are recorded"),
                ([self.kept, self.kept, "--keep", folder], "--keep is for runs that are recorded"),
                ([self.kept, self.kept, "--runs", "1"], "--runs are those of --reference"),
                ([self.kept, self.kept, "--all-faults"], "--all-faults runs --candidate once more"),
                (["--candidate", "true", "--keep", folder, "--all-faults"], "--all-faults runs --candidate once more"),
                ([reference, "--candidate", "true", "--all-faults"], "--all-faults needs to know how far values may differ"),
                ([os.path.join(self.kept, "perturbed-1"), "--candidate", "true", "--rtol", "1", "--all-faults"], "has sketches only"),
                ([reference, reference, "--factor", "9"], "--factor is for perturbed runs")):
            with self.subTest(words):
                code, events, said = compare(*arguments)
                self.assertEqual((code, events), (2, []), said)
                self.assertIn(words, said)

    def small(self, *arguments, ranks=1, **options):
        """Of jobs/compare_small.py."""
        words = [*(launcher(ranks, copied=True, **options) if ranks > 1 else [copies.interpreter()]),
                 str(HERE / "jobs" / "compare_small.py")]
        return shlex.join([*words, *arguments])

    def small_compared(self, *candidate, reference=("plain",), **options):
        """The exit code, events, and what was said."""
        return compare("--reference", self.small(*reference), "--candidate", self.small(*candidate, **options), "--steps",
                       "1", "--runs", "1")

    def test_a_new_reference_is_not_judged_by_runs_of_an_older_one(self):
        kept = os.path.join(self.folder.name, "again")
        for seed, runs in (("1", "2"), ("2", "1")):
            code, _, said = compare("--reference", self.small("plain", seed), "--steps", "1", "--runs", runs, "--keep", kept)
            self.assertEqual(code, 0, said)
        code, events, said = compare(kept, "--candidate", self.small("plain", "3"), "--steps", "1")
        self.assertEqual((code, events[0]["perturbed"], events[0]["same"]), (1, 1, False), said)

    def test_inputs_in_objects_are_samples(self):
        code, events, said = self.small_compared("nested", reference=("nested",), ranks=2)
        self.assertEqual((code, events[0]["same"]), (0, True), said + str(events))
        code, events, said = compare(self.kept, "--candidate", self.small("opaque", ranks=2), "--steps", "1")
        self.assertEqual((code, events), (2, []))
        self.assertIn("the model is given no tensor that could be recorded", said)

    def test_a_second_model_that_is_called_before_the_first(self):
        code, events, said = compare("--reference", self.small("two models"), "--candidate",
                                     self.small("two models", ranks=2), "--steps", "2", "--runs", "1")
        self.assertEqual((code, events[0]["same"], events[0]["steps"]), (0, True, 2), said + str(events))

    def test_two_losses_of_one_output(self):
        kept = os.path.join(self.folder.name, "two")
        code, events, said = compare("--reference", self.small("two losses"), "--candidate",
                                     self.small("two losses", ranks=2), "--steps", "1", "--runs", "1", "--keep", kept)
        self.assertEqual((code, events[0]["same"]), (0, True), said + str(events))
        code, events, said = compare(kept, "--candidate", self.small("plain"), "--steps", "1")
        self.assertIn("the gradient of the output of linear (backward 2)", events[0]["not_recorded"], said)

    def test_complex_values_are_noted_and_not_compared(self):
        code, events, said = self.small_compared("complex", reference=("complex",), ranks=2)
        self.assertEqual((code, events[0]["same"]), (0, True), said)
        notes = [each["message"] for each in events if each["event"] == "finding"]
        self.assertIn("the candidate, ranks 0-1: spectrum is complex, which is not compared", notes)

    def test_a_recorder_that_gives_up_ends_the_run(self):
        for options in ({}, {"torchrun": True}):
            code, events, said = compare(self.kept, "--candidate", self.small("unwritable", ranks=2, **options))
            self.assertEqual((code, events), (2, []))
            self.assertIn("lockstep compare: this rank can't be recorded: ", said)

    def test_what_one_run_has_not_recorded_is_not_the_same(self):
        code, events, said = self.small_compared("wrapped")
        self.assertEqual((code, events[0]["same"]), (2, False), said)
        notes = [each["message"] for each in events if each["event"] == "finding"]
        self.assertTrue(any('behind "model."' in each for each in notes), notes)
        self.assertIn("the initial value of model.linear.weight", events[0]["only_in_candidate"])

    def test_an_interrupted_run_shows_its_output(self):
        has_begun, kept = os.path.join(self.folder.name, "has-begun"), os.path.join(self.folder.name, "interrupted")
        os.mkfifo(has_begun)
        words = [LOCKSTEP, "compare", "--reference", f"echo began; : > {has_begun}; exec sleep 100", "--keep", kept]
        with subprocess.Popen(words, env=environment(), stderr=subprocess.PIPE, text=True) as running:
            with open(has_begun, encoding="utf-8"):  # until it is opened at the other end
                pass
            running.send_signal(signal.SIGTERM)
            said = running.stderr.read()
        self.assertEqual(running.returncode, 128 + signal.SIGTERM)
        self.assertIn("the reference was interrupted. The end of its output:", said)
        self.assertIn("  began", said)


if __name__ == "__main__":
    unittest.main()

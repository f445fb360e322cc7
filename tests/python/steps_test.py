"""A shell over a job that is at no breakpoint: cells between two training steps, and collectives that are ended."""

import json
import socket
import sys
import unittest

from attached_job import Job, of


class Steps(unittest.TestCase):
    def test_cells_between_the_steps_of_a_job_that_trains(self):
        with Job("steps") as job:
            job.wait_for("trains")
            with socket.socket(socket.AF_UNIX) as agent:
                agent.connect(str(job.folder / "lockstep" / f"job-{job.id()}" / "rank-1.sock"))
                agent.sendall(b'{"request": "status"}\n')
                self.assertGreaterEqual(json.loads(agent.makefile().readline())["step"], 2)
            events = job.run_cells("step, rank", "%stack\n%hang\n%collectives -n 3", "%stop", "step", "step",
                                   "import time; time.sleep(0.2)\nkeep = False")
            (first, second) = [each["data"] for each in of(events, "value")[:2]]
            self.assertEqual((first[0], first[1], second[1]), (second[0], 0, 1))
            stopped = [each["text"] for each in of(events, "value")[2:]]
            self.assertEqual(len(stopped), 2)
            self.assertEqual(stopped[0], stopped[1])
            self.assertEqual([each["ranks"] for each in of(events, "value")[2:]], [[0, 1]] * 2)
            said = " ".join(each["text"] for each in of(events, "message"))
            self.assertIn("all_reduce", said)
            self.assertIn("in train", said)
            results = job.results()
            self.assertEqual(results[0]["total"], results[1]["total"])

    def test_stop_never_holds_ranks_at_different_steps(self):
        with Job("short steps") as job:  # ranks pass the step that is asked for before all are asked
            job.wait_for("trains")
            for _ in range(2):
                events = job.run_cells("%stop", "step")
                self.assertEqual([each["ranks"] for each in of(events, "value")], [[0, 1]], events)
            job.run_cells("keep = False")
            results = job.results()
            self.assertEqual(results[0]["total"], results[1]["total"])

    def test_a_job_that_ends_well_after_continue_has_lost_no_rank(self):
        with Job("steps") as job:
            job.wait_for("trains")
            job.run_cells("%stop", "keep = False", "%continue")  # its exit code is 0
            job.results()

    def test_stop_needs_all_ranks(self):
        with Job("half counts") as job:
            job.wait_for("trains")
            (error,) = of(job.run_cells("%stop", code=2), "error")
            self.assertIn("rank 1 can't be asked from here", error["message"])
            (error,) = of(job.run_cells("step", code=2), "error")
            self.assertIn("rank 1 can't be asked from here", error["message"])
            (job.folder / "attached").touch()
            job.results()

    def test_abort_frees_a_job_that_hangs(self):
        with Job("hang") as job:
            job.wait_for("hangs")
            events = job.run_cells("%abort", "%abort 0 --yes")
            asked, done = [each["text"] for each in of(events, "message") if "bort" in each["text"] or "ended" in each["text"]]
            self.assertIn("%abort --yes ends the connections of all process groups of ranks 0-1", asked)
            self.assertIn("rank 0: 1 connection of Gloo ended", done)
            (job.folder / "attached").touch()
            for total in [each["total"] for each in job.results()]:
                self.assertIn("Connection closed by peer", total)  # the program has made new groups since

    def test_a_rank_that_the_others_wait_for(self):
        words = (r"rank 1 is the last to enter [0-9]+ of the [0-9]+ collectives of group default_pg in which ranks waited: "
                 r"[0-9.]+ ms between collectives, rank 0 [0-9.]+ ms, [0-9.]+ times as long")
        for backend, how in (("lockstep", "$"), ("gloo", "; by the Flight Recorder's times$")):
            for mode in ("late", "late in turn"):
                # A copy has the compiler of torch from the start.
                copied = mode != "late"
                with self.subTest(backend=backend, mode=mode), Job(mode, copied=copied, PROMPT_BACKEND=backend) as job:
                    job.wait_for("has trained", times=2)
                    said = of(job.run_cells("%hang", "%collectives -n 3"), "message")
                    (hang,) = [each["data"] for each in said if "hang" in (each["data"] or {})]
                    (collectives,) = [each for each in said if "all_reduce" in each["text"]]
                    (job.folder / "attached").touch()
                    results = job.results()
                    self.assertEqual([each["ranks"] for each in results], [2, 2])
                    # Lines of calls were read: that has neither loaded the compiler of torch nor kept the group.
                    self.assertEqual([each["compiler of torch"] for each in results], [copied, copied])
                    self.assertEqual([each["threads of groups"] for each in results], [[], []])
                    self.assertIn("all_reduce [2] float32", collectives["text"])
                    ok, *late = hang["hang"]
                    found = [(each["verdict"], each["severity"], each["ranks"], each["reference_ranks"]) for each in late]
                    self.assertEqual((ok["verdict"], ok["ranks"]), ("ok", [0, 1]))
                    if mode == "late":
                        self.assertEqual(found, [("straggler", "note", [1], [0])])
                        self.assertRegex(late[0]["message"], "^" + words + how)
                        self.assertRegex(collectives["text"].splitlines()[-1], "^" + words + how)
                    else:
                        self.assertEqual(found, [])
                        self.assertNotIn("is the last to enter", collectives["text"])



if __name__ == "__main__":
    unittest.main(argv=sys.argv)

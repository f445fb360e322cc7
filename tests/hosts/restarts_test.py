"""A job on two hosts that torchrun starts again: of the attempt before there is a note, and no verdict."""


import hosts as module
import launchers
import verdicts_test as verdicts


class Restarts(verdicts.OnTwoHosts):
    def test_ranks_that_are_started_again(self):
        torchrun = [*launchers.torchrun(self.hosts, 2), "--max-restarts=1", str(verdicts.SCRIPT), "restarted"]
        # A store that outlives the attempt has the addresses of its ranks, which Gloo may try to connect to.
        self.run_job(("node1", [*verdicts.PATIENT_RUN, "--hosts", "node2", "--", *torchrun]),
                     ("node2", [*verdicts.PATIENT_RUN, "--", *torchrun]), TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
        self.assertEqual((self.codes, self.output), ([0, 0], "rank 0 is done\n"), self.said)
        for errors in self.errors:  # torch may write between its lines
            self.assertRegex(errors, r"(?ms)lockstep: the launcher starts the ranks again; of the attempt before:\n.*"
                                     r"^• rank 3 raised ValueError: the first time")
            self.assertNotIn("✗", errors)
        self.assert_nothing_is_left()


if __name__ == "__main__":
    module.main()

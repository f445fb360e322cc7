"""`lockstep run` of jobs with two ranks on each of two hosts: one verdict, on one host, that names rank, host and line,
and one exit code. Rank 3, on node2, does what the others do not (tests/python/jobs/hangs.py)."""

import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time
import unittest

import hosts as module
import launchers
from hosts import BUILD, Hosts

PYTHON_TESTS = pathlib.Path(__file__).resolve().parents[1] / "python"
LIMIT_S = 300  # ends what hangs; judges nothing
SCRIPT = PYTHON_TESTS / "jobs" / "hangs.py"
RUN = [str(BUILD / "bin" / "lockstep"), "run", "--hang-timeout", "6"]  # ranks start within it, also on a busy machine
# For ranks that fail: on a busy machine the others come to their ends much later.
PATIENT_RUN = [*RUN[:3], "60"]
VARIABLES = {"NNODES": "2", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "node1", "MASTER_PORT": "29500",
             "HANGS_RANK": "3", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1",
             "LOCKSTEP_CHECK_COLLECTIVES": "0",  # calls that differ would raise before they hang
             "PYTHONPATH": os.environ.get("PYTHONPATH", "")}


def line_of(text, case=""):
    """`case`: the text is after the beginning of this one."""
    lines = SCRIPT.read_text().splitlines()
    begin = lines.index(f"def {case}(rank):") if case else 0
    return f"hangs.py:{next(number for number, line in enumerate(lines, 1) if text in line and number > begin)} in"


def ranks_of_host(case, number, each=2):
    """The command that starts `each` ranks on a host. `number` of the host, as a shell reads it."""
    launch = [sys.executable, str(PYTHON_TESTS / "launch.py"), str(each), str(SCRIPT), case]
    return ["sh", "-c", f"NODE_RANK={number} exec {shlex.join(launch)}"]


def one_rank(case, rank, local_rank):
    return ["sh", "-c", f"RANK={rank} LOCAL_RANK={local_rank} exec {shlex.join([sys.executable, str(SCRIPT), case])}"]


class OnTwoHosts(unittest.TestCase):
    services = (launchers.Sshd,)

    @classmethod
    def setUpClass(cls):
        cls.hosts = cls.enterClassContext(Hosts("node1", "node2"))
        for each in cls.services:
            if missing := launchers.missing(cls.hosts, *each.programs):
                raise unittest.SkipTest(missing)
            each(cls.hosts)

    def run_job(self, *commands, **more):
        """Runs them side by side, each as (host, command). Sets their codes, and what they have said together."""
        self.finish_job(commands, self.start_job(commands, **more))

    def start_job(self, commands, **more):
        return [self.hosts[host].start(*command, env={**VARIABLES, **more}, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                for host, command in commands]

    def finish_job(self, commands, started):
        outputs = [self.wait_for(each) for each in started]
        self.codes = [each.returncode for each in started]
        self.output = "".join(output for output, _ in outputs)
        self.errors = [errors for _, errors in outputs]
        self.said = "\n".join(f"=== {host}: {shlex.join(map(str, command))[:200]}: {code}\n{errors}"
                              for (host, command), code, errors in zip(commands, self.codes, self.errors))

    def wait_for(self, process):
        """Its output. What hangs is killed, for the sake of the tests that follow."""
        try:
            return process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            for host in process.host.hosts:
                host.run("kill", "-KILL", *self.processes_of_job(host), check=False)
            process.kill()
            output, errors = process.communicate()
            return output, f"{errors}\nIT WAS KILLED: it hung"

    def processes_of_job(self, host):
        return [pid for pid, line in host.processes().items() if str(SCRIPT) in line]

    def by_hand(self, case, each, run=None):
        """As a person does in two terminals: `lockstep run` on both hosts, the first of which asks the other by ssh."""
        run = run or (PATIENT_RUN if case in ("killed", "threw", "returned") else RUN)
        return (("node1", [*run, "--hosts", "node2", "--", *ranks_of_host(case, 0, each)]),
                ("node2", [*run, "--", *ranks_of_host(case, 1, each)]))

    def run_by_hand(self, case, each=2, run=None, **more):
        self.run_job(*self.by_hand(case, each, run), TORCHELASTIC_RUN_ID=case, **more)

    def assert_one_verdict(self, *words, code):
        self.assert_verdict(*words, code=code)
        self.assert_nothing_is_left()

    def assert_verdict(self, *words, code):
        """One fault is printed, last of the findings, with these words."""
        self.assertEqual(self.codes, [code] * len(self.codes), self.said)
        findings = [line for line in self.said.splitlines() if line.startswith(("✗ ", "• "))]
        self.assertEqual([line[0] for line in findings].count("✗"), 1, self.said)
        self.assertEqual(findings[-1][0], "✗", f"the first cause is not last:\n{self.said}")
        for each in words:
            self.assertIn(each, findings[-1], self.said)
        self.assertNotIn("there is no dump", self.said)

    def assert_nothing_is_left(self):
        """A relay ends after who has asked for it, by the end of its input."""
        deadline = time.monotonic() + LIMIT_S
        while (left := self.what_is_left()) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(left, [])

    def what_is_left(self):
        left = []
        for host in self.hosts:
            left += [line for line in host.processes().values() if str(SCRIPT) in line or "relay" in line]
            left += (host.root / "run/user/0/lockstep").glob("*")
        return left


class ByHand(OnTwoHosts):
    def test_a_healthy_job(self):
        self.run_by_hand("healthy")
        self.assertEqual((self.codes, self.output), ([0, 0], "rank 0 is done\n"), self.said)
        self.assertNotIn("✗", self.said)
        self.assertNotIn("lockstep:", self.said)
        self.assert_nothing_is_left()

    def test_a_rank_that_sleeps(self):
        self.run_by_hand("sleeps")
        self.assert_one_verdict("ranks 0-2 wait in all_reduce #4", "rank 3", "node2", "sleeps",
                                line_of("time.sleep(FOREVER)  # the culprit"), code=4)

    def test_another_collective(self):
        self.run_by_hand("mismatch")
        self.assert_one_verdict("rank 3 called all_reduce float32 [2, 2]",
                                line_of("dist.all_reduce(torch.ones(2, 2))"),
                                "ranks 0-2 called broadcast float32 [4, 3]", line_of("dist.broadcast("), "node2",
                                code=4)

    def test_a_rank_that_is_killed(self):
        self.run_by_hand("killed")
        self.assert_one_verdict("rank 3", "node2", "was killed by SIGKILL", code=5)

    def test_an_exception(self):
        self.run_by_hand("threw")
        self.assert_one_verdict("rank 3", "node2", "raised ValueError: no such sample: 17", line_of("raise ValueError"),
                                code=1)


class Kinds(OnTwoHosts):
    """The other hangs of tests/python/hangs_test.py, and a message that nobody sends. Jobs of a test run side by side."""
    WAIT = ("ranks 0-2 wait in all_reduce #4", line_of("dist.all_reduce(torch.ones(4, 3))"), "node2")
    RUN = [*RUN[:3], "15"]  # the ranks of all jobs start at once

    def assert_verdicts(self, cases):
        """The words of each case are in its verdict."""
        jobs = {case: self.by_hand(case, each=2, run=None if case == "returned" else self.RUN) for case in cases}
        started = [self.start_job(commands, TORCHELASTIC_RUN_ID=case, MASTER_PORT=str(29500 + number))
                   for number, (case, commands) in enumerate(jobs.items())]
        for (case, commands), processes in zip(jobs.items(), started):
            with self.subTest(case):
                self.finish_job(commands, processes)
                self.assert_verdict(*cases[case], code=4)
        self.assert_nothing_is_left()

    def test_a_rank_that_does_something_else(self):
        self.assert_verdicts({
            "spins": (*self.WAIT, "rank 3 computes", line_of("while True: pass")),
            "locked": (*self.WAIT, "rank 3 waits for a lock", line_of("lock.acquire()  # again")),
            "loader": (*self.WAIT, "rank 3 waits for its data loader", line_of("for _ in torch.utils.data.DataLoader")),
            "returned": ("rank 3 has finished, and ranks 0-2 were still in a collective with it", *self.WAIT[1:])})

    def test_calls_that_do_not_match(self):
        self.assert_verdicts({
            "shapes": ("ranks 0-2 called all_reduce float32 [4]", "rank 3 called all_reduce float32 [5]",
                       line_of("dist.all_reduce(torch.ones(5"), "node2"),
            "order": ("ranks 0-2 wait in all_reduce #1 of group 1", "rank 3 waits in all_reduce #1 of group 2",
                      line_of("dist.all_reduce(torch.ones(4), group"), "none of them can continue", "node2"),
            # Ranks of node2 sleep, and do not hear that the others have ended.
            "unsent": ("rank 0 is in recv", line_of("dist.recv(torch.ones(4), src=CULPRIT)")[:-3], "rank 3 sleeps")})


class Calls(OnTwoHosts):
    """One rank on each host, with logs of what they call. Neither can read the other's."""

    def run_logged(self, case, run=None):
        self.run_by_hand(case, each=1, run=run, WORLD_SIZE="2", LOCAL_WORLD_SIZE="1", HANGS_RANK="1",
                         HANGS_BACKEND="lockstep", LOCKSTEP_CHECK_COLLECTIVES="1")

    def assert_raised(self, case, *words):
        """The ranks of both hosts raise the same, long before anybody looks whether the job goes on."""
        self.run_logged(case, PATIENT_RUN)
        said = f"rank 0 called {words[0]}"
        self.assert_one_verdict(f"✗ collectives: {said}", "rank 0 on node1, rank 1 on node2", *words[1:], code=1)
        for rank, errors in enumerate(self.errors):
            self.assertIn(f"[rank{rank}]: RuntimeError: {said}", errors, self.said)

    def test_another_collective(self):
        self.assert_raised("mismatch", "broadcast float32 [4, 3] root 1 as #4 of group 0", line_of("dist.broadcast("),
                           "rank 1 all_reduce float32 [2, 2] SUM", line_of("dist.all_reduce(torch.ones(2, 2))"))

    def test_a_dtype_with_which_the_job_goes_on(self):
        self.assert_raised("unending", "all_reduce float32 [4] SUM as #504 of group 0", "rank 1 all_reduce int32 [4] SUM",
                           line_of("torch.int32 if", "unending"))

    def test_a_dtype_with_which_the_job_ends(self):
        """The ranks may be told, or have ended by then."""
        self.run_logged("silent")
        self.assert_one_verdict("✗ collectives: ", "rank 0 called all_reduce float32 [4]", "all_reduce int32 [4]",
                                "rank 1 on node2", line_of("torch.int32 if"), code=1)

    def test_groups_that_are_made_again(self):
        self.run_logged("anew")
        self.assertEqual((self.codes, self.output), ([0, 0], "rank 0 is done\n"), self.said)

    def test_calls_that_differ_on_one_host(self):
        """Ranks 2 and 3 find it themselves; the others are told."""
        self.run_by_hand("unending", run=PATIENT_RUN, HANGS_BACKEND="lockstep", LOCKSTEP_CHECK_COLLECTIVES="1")
        self.assert_one_verdict("✗ collectives: ", "rank 3", "all_reduce int32 [4]", "node2", code=1)
        told, found = "rank 3 called all_reduce int32 [4] SUM", "rank 2 called all_reduce float32 [4] SUM"
        for rank, said in enumerate((told, told, found, found)):
            self.assertIn(f"[rank{rank}]: RuntimeError: {said} as #504 of group 0", self.said)

    def test_a_message_of_another_size(self):
        self.run_logged("messages")
        self.assert_one_verdict("✗ collectives: rank 0 sends 16 bytes of float32 to rank 1", line_of("dist.send(")[:-3],
                                "which expects 32 bytes of float32", line_of("dist.recv(")[:-3],
                                "message #1 between them with tag 0 of group default_pg", "rank 1 on node2", code=1)

    def test_parts_of_an_all_to_all(self):
        self.run_logged("parts")
        self.assert_one_verdict("✗ collectives: rank 0 sends 8 elements to rank 1", "which expects 12 elements",
                                "all_to_all #4 of group default_pg", code=1)

    def test_a_job_whose_ranks_call_the_same(self):
        self.run_logged("healthy")
        self.assertEqual((self.codes, self.output), ([0, 0], "rank 0 is done\n"), self.said)
        self.assertNotIn("✗", self.said)


class ByLaunchers(OnTwoHosts):
    services = (launchers.Sshd, launchers.Slurm, launchers.OpenMpi)

    def test_torchrun_on_each_node_of_slurm(self):
        torchrun = [*launchers.torchrun(self.hosts, 2), str(SCRIPT), "sleeps"]
        self.run_job(("hub", ["srun", "-N2", "--ntasks-per-node=1", *RUN, "--", *torchrun]))
        # Which host has rank 3 is up to the rendezvous.
        self.assert_one_verdict("ranks 0-2 wait in all_reduce #4", "rank 3", "node", "sleeps",
                                line_of("time.sleep(FOREVER)  # the culprit"), code=4)

    def test_lockstep_run_for_each_task_of_slurm(self):
        rank = one_rank("killed", "$SLURM_PROCID", "$SLURM_LOCALID")
        self.run_job(("hub", ["srun", "-N2", "--ntasks-per-node=2", *PATIENT_RUN, "--", *rank]))
        self.assert_one_verdict("rank 3", "node2", "was killed by SIGKILL", code=5)

    def test_lockstep_run_around_srun(self):
        srun = ["srun", "-N2", "--ntasks-per-node=1", *ranks_of_host("mismatch", "$SLURM_NODEID")]
        self.run_job(("hub", ["salloc", "-Q", "-N2", *RUN, "--", *srun]))
        self.assert_one_verdict("rank 3 called all_reduce float32 [2, 2]", "ranks 0-2 called broadcast", "node2",
                                code=4)

    def test_lockstep_run_around_srun_of_torchrun(self):
        """Both launchers report that a rank of theirs failed; the folders of the ranks have the same path on both hosts."""
        torchrun = shlex.join([*launchers.torchrun(self.hosts, 2, number="NODE"), str(SCRIPT), "killed"])
        srun = ["srun", "-N2", "--ntasks-per-node=1", "sh", "-c", "exec " + torchrun.replace("NODE", "$SLURM_NODEID")]
        self.run_job(("hub", ["salloc", "-Q", "-N2", *PATIENT_RUN, "--", *srun]), HANGS_RANK="0")
        self.assert_one_verdict("rank 0", "node1", "was killed by SIGKILL", code=5)

    def test_lockstep_run_around_mpirun(self):
        rank = one_rank("threw", "$OMPI_COMM_WORLD_RANK", "$OMPI_COMM_WORLD_LOCAL_RANK")
        exported = [word for name in VARIABLES for word in ("-x", name)]
        mpirun = launchers.OpenMpi.command(self.hosts, 2, *rank)
        self.run_job(("hub", [*PATIENT_RUN, "--hosts", "node1,node2", "--", *mpirun[:1], *exported, "-x", "LOCKSTEP_JOB",
                              *mpirun[1:]]))
        self.assert_one_verdict("rank 3", "node2", "raised ValueError: no such sample: 17", code=1)


class Preempted(OnTwoHosts):
    services = (launchers.Sshd, launchers.Slurm)

    def test_a_job_that_is_preempted(self):
        script, output = self.hosts.folder / "preempted.sh", self.hosts.folder / "preempted"
        srun = ["srun", "-N2", "--ntasks-per-node=1", *ranks_of_host("sleeps", "$SLURM_NODEID")]
        run = [*RUN[:2], "--hang-timeout", "100", "--", *srun]
        script.write_text(f"#!/bin/sh\n{shlex.join(run)}\necho it ended with $?\n")
        hub = self.hosts["hub"]
        hub.run("sbatch", "-N2", "-o", output, script, env={**VARIABLES, "HANGS_SAYS": "pid"})
        deadline = time.monotonic() + LIMIT_S
        # Every rank has come to its case, and torch may have warned.
        while not output.exists() or sum(line.isdigit() for line in output.read_text().splitlines()) < 4:
            self.assertLess(time.monotonic(), deadline, "the job does not start")
            time.sleep(0.05)
        hub.run("srun", "--partition=urgent", "-N2", "--exclusive", "true")
        self.assertIn("lockstep: Slurm preempts job ", output.read_text())
        self.assertIn("it ended with 130\n", output.read_text())
        self.assert_nothing_is_left()
        self.assertNotIn("✗", output.read_text())


class Unreached(unittest.TestCase):
    """A job is started all the same."""

    def run_job(self, hosts):
        if missing := launchers.missing(hosts, *launchers.Sshd.programs):
            self.skipTest(missing)
        launchers.Sshd(hosts)
        job = hosts["node1"].start(*RUN, "--hosts", "node2", "--", "echo", "it runs", stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        output, errors = job.communicate(timeout=LIMIT_S)
        self.assertEqual((job.returncode, output), (0, "it runs\n"), errors)
        return errors

    def test_a_name_that_does_not_resolve(self):
        with Hosts("node1", "node2", names_resolve=False) as hosts:
            self.assertRegex(self.run_job(hosts), "(?s)Could not resolve hostname node2.*"
                                                  "host node2: its relay ended .ssh exited with code 255.")

    def test_a_route_to_nowhere(self):
        with Hosts("node1", "node2") as hosts:
            hosts["node1"].run("ip", "route", "add", "blackhole", f"{hosts['node2'].address}/32")
            self.assertIn("host node2: its relay ended (ssh exited with code 255)", self.run_job(hosts))

    def test_a_full_disk(self):
        with Hosts("node1", "node2") as hosts:
            folder = "/run/user/0/lockstep"
            hosts["node2"].run("mkdir", "-m", "700", folder)
            hosts["node2"].small_disk(folder, 65536)
            hosts["node2"].fill(folder)
            self.assertIn(f"node2: {folder} has 0 bytes left (df {folder}): ranks that start there can't be watched",
                          self.run_job(hosts))

    def test_a_firewall(self):
        with Hosts("node1", "node2") as hosts:
            hosts["node2"].drop(22)
            self.assertIn("host node2: its relay has not answered for 10 s", self.run_job(hosts))


class Losses(OnTwoHosts):
    """What happens while rank 3 sleeps and the others wait for it."""

    def start(self, hosts, case="sleeps", run_of_node2=None):
        """Starts the job by hand, and returns when all ranks are there, and node1 judges those of node2."""
        variables = {**VARIABLES, "TORCHELASTIC_RUN_ID": f"{self.id()} {case}", "HANGS_SAYS": "pid"}
        run = PATIENT_RUN if "threw" in case else RUN
        commands = (("node1", [*run, "--hosts", "node2"]), ("node2", run_of_node2 or run))
        jobs = [hosts[name].start(*command, "--", *ranks_of_host(case, number), stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables)
                for number, (name, command) in enumerate(commands)]
        for job in jobs:
            for _ in range(2):
                self.assertTrue(job.stdout.readline().strip().isdigit(), "a rank did not start")
        self.wait_for_judge(hosts["node2"])
        return jobs

    def wait_for_judge(self, node2):
        end = time.monotonic() + LIMIT_S
        while not list((node2.root / "run/user/0/lockstep").glob("job-*/judge.json")):
            self.assertLess(time.monotonic(), end, "node1 does not judge the ranks of node2")
            time.sleep(0.05)

    def finish(self, jobs):
        """Their codes, and what they have written to standard error."""
        errors = [self.wait_for(job)[1] for job in jobs]
        return [job.returncode for job in jobs], errors

    def end(self, job):
        """Nobody else does where `lockstep run` was killed, or is cut off."""
        if job.host.keeper.poll() is None:
            job.host.run("kill", "-KILL", *self.processes_of_job(job.host), check=False)
        job.communicate()

    def fault_in(self, errors):
        (fault,) = (line for line in errors.splitlines() if line.startswith("✗"))
        return fault

    def assert_host_is_lost(self, hosts, lose):
        """The verdict on node1 says of the ranks on node2, which have all been there, that their host is lost."""
        jobs = self.start(hosts)
        lose(hosts["node2"])
        codes, errors = self.finish(jobs[:1])
        self.end(jobs[1])
        self.assertEqual(codes, [5], errors)
        self.assertIn("ranks 2-3", self.fault_in(errors[0]), errors)
        self.assertIn("node2", self.fault_in(errors[0]), errors)

    def test_a_relay_that_is_killed(self):
        self.assert_host_is_lost(self.hosts, lambda node2: node2.run("kill", "-KILL", *self.relays_on(node2)))

    def test_a_cable_that_is_cut(self):
        with Hosts("node1", "node2") as hosts:
            launchers.Sshd(hosts)
            self.assert_host_is_lost(hosts, lambda node2: node2.cut())

    def test_a_host_without_power(self):
        with Hosts("node1", "node2") as hosts:
            launchers.Sshd(hosts)
            self.assert_host_is_lost(hosts, lambda node2: node2.power_off())

    def test_a_cable_that_is_out_for_a_second(self):
        jobs = self.start(self.hosts)
        self.hosts["node2"].cut()
        time.sleep(1)
        self.hosts["node2"].restore()
        codes, errors = self.finish(jobs)
        self.assertEqual(codes, [4, 4], errors)
        self.assertIn("rank 3 sleeps", self.fault_in("".join(errors)))
        self.assert_nothing_is_left()

    def test_the_judge_is_killed(self):
        jobs = self.start(self.hosts)
        jobs[0].kill()
        codes, errors = self.finish(jobs[1:])  # which judges what it sees
        self.assertEqual(codes, [4], errors)
        self.assertIn("rank 3 sleeps", self.fault_in(errors[0]))
        self.assertEqual(self.relays_on(self.hosts["node2"]), [], "the relay outlives who has asked for it")
        self.end(jobs[0])

    def test_the_judge_is_silent(self):
        jobs = self.start(self.hosts)
        jobs[0].send_signal(signal.SIGSTOP)
        while (line := jobs[1].stderr.readline()) and "which judges this job" not in line:
            pass
        self.assertIn("no word for 10 s from `lockstep run` on node1", line)
        jobs[0].send_signal(signal.SIGCONT)
        while (line := jobs[1].stderr.readline()) and "answers again" not in line:
            pass
        self.assertIn("`lockstep run` on node1 answers again", line)
        codes, errors = self.finish(jobs)
        self.assertEqual(codes, [4, 4], errors)
        self.assert_nothing_is_left()

    def test_the_judge_is_interrupted(self):
        """The rank of node2 sleeps, and does not hear that the other one has gone."""
        variables = {**VARIABLES, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "HANGS_RANK": "1", "HANGS_SAYS": "pid",
                     "TORCHELASTIC_RUN_ID": self.id()}
        jobs = [self.hosts[name].start(*RUN[:2], "--hang-timeout", "300", *options, "--", *ranks_of_host("sleeps", number, 1),
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                       env=variables)
                for number, (name, options) in enumerate((("node1", ["--hosts", "node2"]), ("node2", [])))]
        jobs[1].stdout.readline()
        self.wait_for_judge(self.hosts["node2"])
        jobs[0].send_signal(signal.SIGINT)
        codes, errors = self.finish(jobs)
        self.assertEqual(codes, [130, 130], errors)
        self.assertIn("the verdict is that of `lockstep run` on node1", errors[1])
        self.assert_nothing_is_left()

    def test_a_verdict_that_is_read_late(self):
        """The judge has ended by then. Ranks of node2 sleep, and do not hear that the others have gone."""
        jobs = self.start(self.hosts, "unsent", run_of_node2=RUN[:2])  # which would let them sleep
        jobs[1].send_signal(signal.SIGSTOP)
        codes, errors = self.finish(jobs[:1])
        jobs[1].send_signal(signal.SIGCONT)
        late, said = self.finish(jobs[1:])
        self.assertEqual(codes + late, [4, 4], errors + said)
        self.assertIn("the verdict is that of `lockstep run` on node1", said[0])
        self.assertNotIn("✗", said[0])
        self.assert_nothing_is_left()

    def test_clocks_that_are_an_hour_apart(self):
        with Hosts("node1", "node2", monotonic_s={"node2": 3600}, time_of_day_s={"node2": 3600}) as hosts:
            launchers.Sshd(hosts)
            codes, errors = self.finish(self.start(hosts))
            self.assertEqual(codes, [4, 4], errors)
            self.assertIn("ranks 0-2 wait in all_reduce #4", self.fault_in("".join(errors)))
            self.assertIn("rank 3 sleeps", self.fault_in("".join(errors)))
            # Of two ranks that fail by themselves, the one that was first comes last, whatever the clock of its host says.
            codes, errors = self.finish(self.start(hosts, "both_threw"))
        faults = [line for line in "".join(errors).splitlines() if line.startswith("✗")]
        self.assertEqual([len(faults), *codes], [2, 1, 1], errors)
        self.assertIn("rank 0 raised ValueError: the second", faults[0])
        self.assertIn("rank 3 raised ValueError: the first", faults[1])

    def test_another_user_does_not_see_the_job(self):
        jobs = self.start(self.hosts)
        node2 = self.hosts["node2"]

        def as_nobody(*command):
            process = node2.start(*command, user="nobody", group="nogroup", extra_groups=[], stdin=subprocess.DEVNULL,
                                  env={"XDG_RUNTIME_DIR": "", "HOME": "/tmp"}, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True)
            return process.communicate()[0]

        self.assertIn("no Python job of yours", as_nobody(RUN[0], "attach"))
        self.assertIn("Permission denied", as_nobody("ls", "/run/user/0/lockstep"))
        self.finish(jobs)

    def relays_on(self, host):
        """Their process ids."""
        return [pid for pid, line in host.processes().items() if line.split()[1:2] == ["relay"]]


if __name__ == "__main__":
    module.main()

#!/usr/bin/env python3
"""A session records its ranks, and `lockstep replay` runs one of them again alone, with the same bits. Usage: record_test.py
LOCKSTEP [TEST...]"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from faults_test import check, run_tests

LOCKSTEP = pathlib.Path(sys.argv[1]).resolve()
KEPT = [0, 1, *range(5, 10)]  # of ten steps, of which the last three are kept

SCRIPT = r"""// %% net
set_seed(7);
torch::nn::Sequential net(torch::nn::Linear(8, 16), torch::nn::BatchNorm1d(16), torch::nn::Dropout(0.2), torch::nn::Linear(16, 4));
auto model = ddp::DistributedDataParallel(net, ddp::Options().bucket_cap_mb(0.0005));
torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(0.01));

// %% of rank 1
%%rank 1
int only_there = 5;

// %% collectives without a step
auto gathered = dist::all_gather_object(rank * 2.5);
auto half = dist::new_group({0, 2});
auto sum = torch::ones({3}) * (rank + 1);
if (rank != 1) dist::all_reduce(sum, dist::ReduceOp::SUM, half);
auto part = torch::zeros({2});
dist::reduce_scatter_tensor(part, torch::arange(6, torch::kFloat) + rank);
sum += part[1];

// %% an error that does not end the session tags=["raises-exception", "expects-finding"]
if (rank == 0) throw std::runtime_error("rank 0 does not come");
dist::barrier();

// %% an inspector
%verify model

// %% training
#include <csignal>
#include <fstream>
void write(const std::string& line) { std::ofstream(arg("out") + "/rank-" + std::to_string(rank), std::ios::app) << line << std::endl; }
void train(int first, int last, int fails_at = -1) {
  for (int i = first; i < last; ++i) {
    if (auto step = ddp::step(model, optimizer)) {
      auto x = torch::randn({8, 8}) + rank;
      if (std::getenv("CHANGED") && i == 7) x[3] *= 1.5;
      optimizer.zero_grad();
      auto loss = model(x).square().mean();
      loss.backward();
      optimizer.step();
      double bits = 0;
      for (auto& each : net->parameters()) bits = bits * 0.75 + each.detach().to(torch::kDouble).square().sum().item<double>();
      write(std::to_string(i) + c10::str(" ", std::hexfloat, loss.item<double>(), " ", bits, " ", sum[0].item<float>()));
      if (i == 9 && rank == 2 && arg("fault", "") == "throws") throw std::runtime_error("step 9 looks wrong");
      if (i == 9 && rank == 2 && arg("fault", "") == "dies") std::raise(SIGKILL);
      if (i == fails_at) throw std::runtime_error("that was the last one");
    }
    dist::all_gather_object(std::to_string(i * (rank + 1)));
  }
}

// %% half of it, which ends in a step that is not kept tags=["raises-exception"]
train(0, 10, 3);

// %% an inspector between steps that are not kept
%verify model

// %% all of it
train(4, 10);
"""


scratch = tempfile.TemporaryDirectory()


def run(*command, input="", **environment):
    done = subprocess.run([str(each) for each in command], env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, input=input, cwd=scratch.name, text=True, timeout=300)
    done.stdout = " ".join(done.stdout.split())
    return done


class Recorded:
    """The script, recorded on three ranks. Each fault of it is recorded once."""

    all = {}

    @classmethod
    def of(cls, fault="", code=0):
        if fault not in cls.all:
            folder = pathlib.Path(scratch.name, fault or "none")
            folder.mkdir()
            cls.all[fault] = cls(folder, fault, code)
        return cls.all[fault]

    def __init__(self, folder, fault, code, *options):
        self.folder = folder
        script = self.folder / "script.cpp"
        script.write_text(SCRIPT)
        self.recording = self.folder / "recording"
        self.text = self.run("run", script, "-n", 3, "--record", 3, "--recording", self.recording, "--arg", f"out={folder}",
                             "--arg", f"fault={fault}", *options, code=code)

    def run(self, *command, code=0, **environment):
        done = run(LOCKSTEP, *command, **environment)
        check(done.returncode == code, f"{command} ended with {done.returncode}, not {code}:\n{done.stdout}")
        return done.stdout

    def lines(self, rank):
        return (self.folder / f"rank-{rank}").read_text().splitlines()

    def replay(self, *options, rank=2, code=0, **environment):
        """What it printed, and the lines that it wrote."""
        before = len(self.lines(rank))
        text = self.run("replay", self.recording, "--rank", rank, *options, code=code, **environment)
        return text, self.lines(rank)[before:]


def of_steps(lines, steps):
    return [each for each in lines if int(each.split()[0]) in steps]


def test_a_rank_runs_again_with_the_same_bits():
    recorded = Recorded.of()
    check("ranks 0-2 of 3 recorded in" in " ".join(recorded.text.split()), recorded.text)
    for rank in (2, 0, 1):
        lines = recorded.lines(rank)[:10]
        check([int(each.split()[0]) for each in lines] == list(range(10)), lines)
        text, again = recorded.replay(rank=rank)
        check(again == of_steps(lines, KEPT), f"rank {rank}:\n{lines}\n{again}\n{text}")
        check(re.search(rf"rank {rank} was replayed in steps 0-1 and 5-9: [0-9]+ collectives, in all of which it sent what it had "
                        "sent when it was recorded ✓", text), text)
        check("rank 0 does not come" in text if rank == 0 else "failed on the recorded rank" in text, text)
        check(("only_there" in text) == (rank == 1), text)


def test_groups_on_gloo():
    folder = pathlib.Path(scratch.name, "gloo")
    folder.mkdir()
    recorded = Recorded(folder, "", 0, "--backend", "gloo")
    text, again = recorded.replay(rank=1)
    check(again == of_steps(recorded.lines(1)[:10], KEPT), f"{recorded.lines(1)}\n{again}\n{text}")
    check("in all of which it sent what it had sent when it was recorded ✓" in text, text)


def test_a_replay_ends_where_it_is_asked_to():
    recorded = Recorded.of()
    text, again = recorded.replay("--until", 6)
    check(again == of_steps(recorded.lines(2)[:10], [0, 1, 5]), again)
    check("the replay ends before step 6, as --until says" in text, text)
    check(re.search("was replayed in steps 0-1 and 5: [0-9]+ collectives, .* recorded ✓", text), text)


def test_a_replay_says_where_it_departs():
    text, again = Recorded.of().replay(code=1, CHANGED="1")
    check([int(each.split()[0]) for each in again] == [0, 1, 5, 6], again)
    check(re.search("Then it departed in step 7: all_reduce .* sends other values than the recorded rank did", text), text)


def test_an_exception_comes_back():
    recorded = Recorded.of("throws", code=1)
    text, again = recorded.replay()
    check(again == of_steps(recorded.lines(2)[:10], KEPT), again)
    check("step 9 looks wrong" in text and "this cell failed before" in text, text)


def test_a_rank_that_was_killed():
    recorded = Recorded.of("dies", code=5)
    lines = recorded.lines(2)
    text, again = recorded.replay()  # the same program does the same
    check(again == of_steps(lines, KEPT), again)
    check("SIGKILL" in text and "rank 2 has ended, and can't say how far" in text, text)
    text, again = recorded.replay(rank=0)
    check(again == of_steps(recorded.lines(0)[:10], KEPT), again)
    check("was replayed in steps 0-1 and 5-9" in text, text)


def test_record_as_a_magic():
    folder = pathlib.Path(scratch.name, "magic")
    folder.mkdir()
    dies = "if (rank == 1) std::abort();"
    cells = ("%record {0}/early", "int one = 1;", "%record on 2", "auto sum = torch::ones(2) * (rank + one);", "dist::all_reduce(sum);",
             "%record on 5", "%record {0}/recording", dies, "%restart", "%record on 2", "%record off", "%record on 3", "%record on nine", "%record off 3")
    text = run(LOCKSTEP, "-n", 2, input="\n".join(cells).format(folder) + "\n").stdout
    check("nothing is recorded: %record on" in text, text)
    check(f"ranks 0-1 of 2 recorded in {folder}/recording" in text, text)
    check("this rank is recorded already, or was" in text, text)  # on 5
    check(text.count("the ranks were recorded already") == 2, text)  # after %restart, and after off
    check("%record off takes no number" in text, text)
    done = run(LOCKSTEP, "replay", folder / "recording", "--rank", 1)
    check(done.returncode == 0, done.stdout)
    check("rank 1 was replayed before the first step: 1 collective, in all" in done.stdout, done.stdout)
    late = run(LOCKSTEP, "-n", 2, input="torch::nn::Linear net(2, 2); auto model = ddp::DistributedDataParallel(net);\n%record on\n"
               f"dist::barrier();\n%record on\n{dies}\n%restart\n%record on\n%record {folder}/late\n").stdout
    check(late.count("has made collectives already") == 3 and "nothing is recorded" in late, late)
    check(not (folder / "late").exists(), late)


def test_cells_end_where_they_ended():
    """Cells and parts of cells that did not run on the rank, an interrupted one, and groups after a regroup."""
    folder = pathlib.Path(scratch.name, "ends")
    folder.mkdir()
    fails = 'if (rank == 1) throw std::runtime_error("only rank 1");'
    cells = ("int parts = 0;", f"{fails} auto pair = dist::new_group({{0, 1}});",
             "auto other = dist::new_group({0, 1}); dist::barrier(other);", f"{fails}\n%time ++parts;\n++parts;",
             f"auto only_0 = [] {{ {fails} return 5; }}();", "parts += only_0;",
             "if (parts != 0) throw std::runtime_error(\"a part ran that had not\");",
             "auto all = dist::all_gather_object(parts);", "%sync")
    (folder / "script.cpp").write_text("".join(f"// %%\n{cell}\n" for cell in cells))
    text = run(LOCKSTEP, "run", folder / "script.cpp", "-n", 2, "--keep-going", "--record", 2, "--recording", folder / "recording").stdout
    check("ranks 0-1 of 2 recorded" in text and "in cell 7" not in text, text)
    for rank in (0, 1):
        done = run(LOCKSTEP, "replay", folder / "recording", "--rank", rank)
        check(done.returncode == 0 and "departed" not in done.stdout and "in cell 7" not in done.stdout, done.stdout)
        check(re.search(rf"rank {rank} was replayed before the first step: [0-9]+ collectives, .* recorded ✓", done.stdout), done.stdout)


def test_a_prompt_in_a_replayed_rank():
    cells = "rank * 100 + world_size\ngathered[1]\n%%rank 0\nstd::abort();\n\n%dist_status\n%verify model\n"
    text = run(LOCKSTEP, "replay", Recorded.of().recording, "--rank", "2", "--until", "6", "-i", input=cells).stdout
    check("203" in text and "2.5" in text, text)
    check("this cell is none of the recording, and no other rank is here" in text, text)


def test_what_is_refused():
    recording = Recorded.of().recording
    done = run(LOCKSTEP, "replay", recording, "--rank", 1, "--until", 3, "-i")
    check(done.returncode == 2 and "was not recorded; these were: 0-1,5-9" in done.stdout, done.stdout)
    for options, words in ((["--rank", 7], "has no rank 7; it has ranks 0-2"),
                           (["--rank", 1, "--pdb"], "--pdb and --gdb are for recorded jobs"),
                           (["--rank", 1, "--", "python", "x.py"], "is of a session, and has its cells")):
        done = run(LOCKSTEP, "replay", recording, *options)
        check(done.returncode == 2 and words in done.stdout, done.stdout)
    whole = recording.read_bytes()
    damaged = pathlib.Path(scratch.name, "damaged")
    for end in (20, len(whole) // 2, len(whole) - 8):
        damaged.write_bytes(whole[:end])
        done = run(LOCKSTEP, "replay", damaged, "--rank", 1)
        check(done.returncode == 2 and "damaged" in done.stdout, done.stdout)
    done = run(LOCKSTEP, "run", recording.parent / "script.cpp", "-n", 2, "--record", 3, "--recording", "/nowhere/at/all")
    check(done.returncode == 2 and "the recording can't be written into /nowhere/at" in done.stdout, done.stdout)
    done = run(LOCKSTEP, "run", recording.parent / "script.cpp", "-n", 2, "--recording", "x")
    check(done.returncode == 2 and "--recording requires --record" in done.stdout, done.stdout)


if __name__ == "__main__":
    sys.exit(run_tests(globals()))

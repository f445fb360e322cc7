#!/usr/bin/env python3
"""Runs that cells have recorded: %compare, and `lockstep compare` of scripts in C++. Usage: compare_test.py LOCKSTEP [TEST...]"""
import json
import pathlib
import subprocess
import sys
import tempfile

from faults_test import LIMIT, LOCKSTEP, Session, check, run_tests

TRAIN = """// %% train
void train(inspect::CompareRecorder& recorder, int part, int parts, bool averages) {
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(8, 16), torch::nn::ReLU(), torch::nn::Linear(16, 4));
  torch::optim::AdamW optimizer(net->parameters(), 0.01);
  recorder.model(net);
  for (int step = 0; step < 9 && !recorder.is_over(); ++step) {
    torch::manual_seed(2);
    auto x = torch::randn({8, 8}).chunk(parts)[part], y = torch::randn({8, 4}).chunk(parts)[part];
    optimizer.zero_grad();
    recorder.samples({x, y});
    auto out = recorder.output("2", net->forward(x));
    recorder.loss(torch::mse_loss(out, y)).backward();
    if (parts > 1 && averages)
      for (auto& each : net->parameters()) {
        dist::all_reduce(each.mutable_grad());
        each.mutable_grad().div_(parts);
      }
    recorder.step(optimizer);
  }
}
"""


def candidate(folder, averages):
    return (f"inspect::record_candidate(\"{folder}\", [](auto& recorder) "
            f"{{ train(recorder, rank, world_size, {averages}); }});\n")


def test_a_session():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder) / "runs"
        script = TRAIN + f"""// %% reference
inspect::record_reference("{folder}", [](auto& recorder) {{ train(recorder, 0, 1, true); }});
// %% nothing yet
%compare {folder}
// %% same
{candidate(folder, "true")}%compare {folder}
// %% not averaged
{candidate(folder, "false")}%compare {folder}
// %% one run and itself
%compare {folder}/reference {folder}/reference
"""
        run = Session(script, "--keep-going", "-n", "2")
        run.finish()
        findings = [(e["severity"], e["message"]) for e in run.of("finding") if e["inspector"] == "compare"]
        check(findings[0][0] == "note" and "same training: " in findings[0][1], f"{findings}")
        check(findings[1][0] == "fault" and "step 0: the gradient of 0.weight on ranks 0-1 is not the reference's" in
              findings[1][1], f"{findings}")
        check("same training: " in findings[-1][1], f"{findings}")
        check(len(run.of("error")) == 1 and "candidate has no recording: record one with" in
              run.of("error")[0]["message"], f"{run.of('error')}")


def test_what_can_not_be_compared():
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "run").mkdir()
        (pathlib.Path(folder) / "run" / "rank-0.rec").write_bytes(b"x" * 100)
        bad = {"": "needs FOLDER", f"{folder}/none": "there is no such folder", f"--rtol -1 {folder}": "--rtol is a number",
               f"{folder}/run {folder}/run": "rank-0.rec", f"{folder} {folder} {folder}": "one word too many",
               f"{folder}/run": "run/candidate has no recording"}
        run = Session("".join(f"// %% bad\n%compare {words}\n" for words in bad), "--keep-going", "-n", "1")
        check(run.finish() == 2, f"{run.events}")
        errors = [e["message"] for e in run.of("error")]
        check(len(errors) == len(bad) and all(part in error for part, error in zip(bad.values(), errors)), f"{errors}")


def test_the_command():
    """The same script on one rank and on two. It records nothing where nobody compares."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "train.cpp"
        path.write_text(TRAIN + "// %% run\ninspect::CompareRecorder recorder;\nif (std::getenv(\"LOCKSTEP_COMPARE\")) "
                        "train(recorder, rank, world_size, arg(\"averages\") == \"yes\");\n")

        def run(averages):
            train = f"{LOCKSTEP} run {path} --arg averages={averages}"
            result = subprocess.run([LOCKSTEP, "compare", "--json", "--reference", f"{train} -n 1", "--candidate",
                                     f"{train} -n 2", "--runs", "2"], capture_output=True, text=True, timeout=LIMIT)
            return result.returncode, [json.loads(line) for line in result.stdout.splitlines()], result.stderr

        code, events, errors = run("yes")
        check(code == 0 and events[0]["same"] and events[0]["steps"] == 2 and events[0]["perturbed"] == 2,
              f"{code} {events} {errors}")
        code, events, errors = run("no")
        check(code == 1 and "the gradient of 0.weight" in events[1]["message"], f"{code} {events} {errors}")


if __name__ == "__main__":
    sys.exit(run_tests(globals()))

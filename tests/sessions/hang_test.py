#!/usr/bin/env python3
"""Ranks that wait for one another, on real ranks: what is found, where, and that the next cell goes on. Usage: hang_test.py LOCKSTEP [TEST...]

No limit is given unless a test says so: what is proven is told by itself.
"""
import subprocess
import sys

from faults_test import LIMIT, LOCKSTEP, Session, check, run_tests

BACKENDS = ("shared_memory", "gloo")
NEXT = """
// %% next
auto after = torch::ones({2});
dist::all_reduce(after);
std::cout << "sum " << after[0].item<float>() << std::endl;
"""


def finding_of(body, ranks, *options, before="", code=4):
    """The one fault of a session whose cell is `body`; the session has to go on afterwards."""
    session = Session(before + "// %% hangs\n" + body + NEXT, "-n", str(ranks), "--keep-going", *options)
    got = session.finish()
    faults = [e for e in session.of("finding") if e["severity"] == "fault"]
    check(len(faults) == 1, f"one fault was expected: {faults}, {session.of('error')}")
    sums = [e for e in session.of("output") if f"sum {ranks}" in e.get("text", "")]
    check(sums and sums[0]["ranks"] == list(range(ranks)), f"the next cell did not run on all ranks: {session.events}")
    check(got == code, f"exit code {got}")
    statuses = [e["status"] for e in session.of("cell")]
    return faults[0], session, statuses


def test_two_groups_crossed():
    finding, session, statuses = finding_of("""auto a = dist::new_group({0, 1});
auto b = dist::new_group({0, 1});
auto t = torch::ones({2});
if (rank == 0) dist::all_reduce(t, dist::ReduceOp::SUM, a);
else dist::all_reduce(t, dist::ReduceOp::SUM, b);
""", 2)
    check(finding["inspector"] == "hang" and finding["verdict"] == "hang", f"{finding}")
    check(finding["kind"] == "other_collective" and finding["ranks"] == [0, 1], f"{finding}")
    for part in ("rank 0 waits in all_reduce #1 of group_1 (cell 1, line 4) for rank 1",
                 "rank 1 waits in all_reduce #1 of group_2 (cell 1, line 5) for rank 0"):
        check(part in finding["message"], f"{finding['message']}")
    check(statuses == ["aborted", "ok"], f"{statuses}")


def faults_with_a_root(*options):
    """The fault of each collective with a root where ranks 0 and 1 call it in two groups."""
    calls = {"broadcast": "dist::broadcast(t, 0, group)", "reduce": "dist::reduce(t, 0, dist::ReduceOp::SUM, group)",
             "scatter": "dist::scatter(t, parts, 0, group)", "gather": "dist::gather(t, 0, group)"}
    cells = "".join(f"""// %% {op}
{{
  auto a = dist::new_group({{0, 1}}), b = dist::new_group({{0, 1}}), group = rank == 0 ? a : b;
  auto t = torch::ones({{2}});
  std::vector<torch::Tensor> parts;
  if (rank == 0) parts = {{t.clone(), t.clone()}};
  {call};
}}
""" for op, call in calls.items())
    session = Session(cells + NEXT, "-n", "2", "--keep-going", *options)
    check(session.finish() == 4, f"{session.of('error')}")
    faults = [e for e in session.of("finding") if e["severity"] == "fault"]
    check([e["op"]["name"] for e in faults] == list(calls), f"{faults}, {session.of('error')}")
    return {each["op"]["name"]: (each["kind"], each["ranks"]) for each in faults}


def test_collectives_with_a_root():
    """Over Gloo who sends waits until it is received. In shared memory it leaves its data there, and goes on."""
    circle = ("other_collective", [0, 1])
    over_gloo = faults_with_a_root("--backend", "gloo")
    check(all(each == circle for each in over_gloo.values()), f"{over_gloo}")
    shared = faults_with_a_root()
    check(shared == {"broadcast": ("finished", [0]), "reduce": circle, "scatter": circle, "gather": ("finished", [1])}, f"{shared}")


def test_one_of_three_sits_elsewhere():
    finding, _, _ = finding_of("""auto pair = dist::new_group({0, 2});
auto t = torch::ones({2});
if (rank == 2) dist::barrier(pair);
else dist::all_reduce(t);
""", 3)
    check(finding["ranks"] == [2] and finding["reference_ranks"] == [0, 1], f"{finding}")
    check("cell 1, line 3" in finding["message"] and "cell 1, line 4" in finding["message"], f"{finding['message']}")


def test_a_collective_against_a_receive():
    finding, _, _ = finding_of("""auto t = torch::ones({2});
if (rank == 0) dist::all_reduce(t);
else dist::recv(t, 0);
""", 2)
    check(finding["ranks"] == [0, 1], f"{finding}")
    check("recv #1 from rank 0 (cell 1, line 3)" in finding["message"], f"{finding['message']}")


def test_a_receive_that_nobody_sends():
    finding, _, _ = finding_of("""auto t = torch::ones({2});
if (rank == 0) dist::recv(t, 1);
""", 2)
    check(finding["ranks"] == [1] and finding["kind"] == "finished", f"{finding}")


def test_tags_that_never_match():
    finding, _, statuses = finding_of("""auto t = torch::ones({2});
for (int i = 0; i < 3; ++i) {
  if (rank == 0) dist::send(t, 1, {}, i);
  else dist::recv(t, 0, {}, i);
}
if (rank == 0) dist::send(t, 1, {}, 7);
else dist::recv(t, 0, {}, 8);
""", 2)
    check(finding["kind"] == "tag" and finding["ranks"] == [0, 1], f"{finding}")
    for part in ("send #4 to rank 1 with tag 7 (cell 1, line 6)", "recv #4 from rank 0 with tag 8 (cell 1, line 7)",
                 "the tags 7 and 8 do not match"):
        check(part in finding["message"], f"{finding['message']}")
    check(statuses == ["aborted", "ok"], f"{statuses}")


def test_objects_go_by_the_name_of_the_call():
    finding, _, _ = finding_of("""auto values = dist::all_gather_object(rank);
if (rank == 0) values = dist::all_gather_object(int(values.size()));
""", 2)
    check("rank 0 waits in all_gather_object #2 (cell 1, line 2)" in finding["message"], f"{finding['message']}")
    check("all_gather_object #1 (cell 1, line 1)" in finding["message"], f"{finding['message']}")


def test_objects_that_do_not_fit_together():
    finding, _, _ = finding_of("""if (rank == 0) dist::all_gather_object(std::string("x"));
else dist::barrier();
""", 2, code=1)
    check(finding["inspector"] == "collectives" and finding["verdict"] == "op_mismatch", f"{finding}")
    check("rank 0 called all_gather_object as #1 of group default (cell 1, line 1), rank 1 barrier (cell 1, line 2)"
          in finding["message"], f"{finding['message']}")


def test_an_asynchronous_collective_that_is_waited_for_late():
    finding, _, _ = finding_of("""#include <thread>
auto a = dist::new_group({0, 1});
auto t = torch::ones({2});
if (rank == 0) {
  auto work = dist::all_reduce(t, dist::ReduceOp::SUM, a, true);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  work.wait();
} else {
  dist::barrier();
}
""", 2)
    check(finding["kind"] == "other_collective", f"{finding}")


def test_a_rank_that_threw():
    finding, session, statuses = finding_of("""auto t = torch::ones({2});
if (rank == 1)
  throw std::runtime_error("no data");
dist::all_reduce(t);
""", 2, code=1)
    check(finding["ranks"] == [1] and finding["kind"] == "threw", f"{finding}")
    check("rank 1 threw std::runtime_error (cell 1, line 3)" in finding["message"], f"{finding['message']}")
    check("cell 1, line 4" in finding["message"], f"{finding['message']}")
    causes = [e for e in session.of("error") if e["root_cause"]]
    check(len(causes) == 1 and causes[0]["ranks"] == [1], f"{session.of('error')}")


def test_a_rank_that_finished():
    finding, _, _ = finding_of("""auto t = torch::ones({2});
dist::all_reduce(t);
if (rank == 0) dist::broadcast(t, 1);
""", 2)
    check(finding["kind"] == "finished" and "its last call was all_reduce #1 (cell 1, line 2)" in finding["message"], f"{finding}")


def test_a_rank_outside_the_group():
    finding, _, _ = finding_of("""auto pair = dist::new_group({0, 2});
auto t = torch::ones({2});
if (rank < 2) dist::all_reduce(t, dist::ReduceOp::SUM, pair);
""", 3, code=1)
    check(finding["kind"] == "outside_group" and finding["ranks"] == [1, 2], f"{finding}")
    check("rank 1, which is not in group_1 (ranks 0,2)" in finding["message"], f"{finding['message']}")


def test_calls_that_do_not_match_name_both_lines():
    finding, _, _ = finding_of("""auto t = torch::ones({2});
if (rank == 1) dist::broadcast(t, 0);
else dist::all_reduce(t);
""", 3, code=1)
    check(finding["inspector"] == "collectives" and finding["verdict"] == "op_mismatch", f"{finding}")
    check(finding["ranks"] == [1] and finding["where"] == "cell 1, line 2", f"{finding}")
    check("(cell 1, line 2)" in finding["message"] and "(cell 1, line 3)" in finding["message"], f"{finding['message']}")


def test_calls_of_a_backward_pass_have_its_line():
    finding, session, _ = finding_of("""torch::nn::Linear model(4, 2);
ddp::DistributedDataParallel net(model);
auto out = net(torch::ones({3, 4})).sum();
if (rank == 1) dist::barrier();
out.backward();
""", 3, code=1)
    check(finding["verdict"] == "op_mismatch" and finding["ranks"] == [1], f"{finding}")
    for part in ("barrier as", "(cell 1, line 4), ranks 0,2 all_reduce float32 [10] SUM (cell 1, line 5)"):
        check(part in finding["message"], f"{finding['message']}")


def test_a_death_names_what_the_others_waited_in():
    for backend in BACKENDS:
        session = Session("""// %% dies
#include <csignal>
auto t = torch::ones({2});
dist::all_reduce(t);
if (rank == 1) raise(SIGKILL);
dist::all_reduce(t);
// %% next
std::cout << "next" << std::endl;
""", "-n", "3", "--keep-going", "--backend", backend)
        check(session.finish() == 5, "exit code")
        faults = [e for e in session.of("finding") if e["severity"] == "fault"]
        check(len(faults) == 1 and faults[0]["verdict"] == "dead" and faults[0]["ranks"] == [1], f"{faults}")
        check(faults[0]["op"]["seq"] == 2 and faults[0]["where"] == "cell 1, line 5", f"{faults}")
        last = [e for e in session.of("output") if "next" in e.get("text", "")]
        check(last and last[0]["ranks"] == [0, 2], "the others did not go on")


def test_who_closed_a_group_is_named_where_nobody_waits_any_more():
    finding, _, statuses = finding_of("""auto side = dist::new_group({0, 1});
auto t = torch::ones({2});
if (rank == 1) dist::destroy_process_group(side);
else dist::all_reduce(t, dist::ReduceOp::SUM, side);
""", 2, code=1)
    check(finding["kind"] == "left_group" and finding["ranks"] == [1], f"{finding}")
    check("rank 0 waited in all_reduce #1 of group_1 (cell 1, line 4)" in finding["message"], f"{finding['message']}")


def test_whoever_waits_after_a_mismatch_is_no_second_fault():
    finding, _, _ = finding_of("""auto side = dist::new_group({1, 2});
auto t = torch::ones({2});
if (rank == 2) dist::barrier(side);
else if (rank == 0) dist::all_reduce(t);
else dist::barrier();
""", 3, code=1)
    check(finding["inspector"] == "collectives" and finding["verdict"] == "op_mismatch", f"{finding}")


def test_the_same_calls_in_another_order():
    finding, _, _ = finding_of("""auto t = torch::ones({2});
auto u = torch::ones({3});
for (int step = 0; step < 3; ++step) {
  if (step < 2 || rank == 0) dist::all_reduce(t);
  dist::all_reduce(u);
  if (step == 2 && rank == 1) dist::all_reduce(t);
}
""", 2, code=1)
    check(finding["verdict"] == "order_mismatch", f"{finding}")
    check("so rank 1 left out the first or changed the order" in finding["message"], f"{finding['message']}")
    check("cell 1, line 4" in finding["message"] and "cell 1, line 5" in finding["message"], f"{finding['message']}")


def test_nobody_compares():
    finding, _, _ = finding_of("""auto t = torch::ones({2});
if (rank == 1) dist::barrier();
else dist::all_reduce(t);
""", 2, "--check-collectives", "off", "--backend", "gloo")  # in shared memory it is an error at once
    check(finding["inspector"] == "hang" and finding["verdict"] == "op_mismatch", f"{finding}")
    check("cell 1, line 2" in finding["message"] and "cell 1, line 3" in finding["message"], f"{finding['message']}")


def stalled(body, kind, words):
    finding, _, _ = finding_of("""#include <thread>
#include <mutex>
#include <future>
auto t = torch::ones({2});
""" + body + """
dist::all_reduce(t);
""", 2, "--hang-timeout", "1")
    check(finding["ranks"] == [1] and finding["reference_ranks"] == [0], f"{finding}")
    check(finding["kind"] == kind and words in finding["message"], f"{finding}")
    check("cell 1, line 5" in finding["message"] and "cell 1, line 6" in finding["message"], f"{finding['message']}")


def test_a_rank_that_sleeps():
    stalled("if (rank == 1) std::this_thread::sleep_for(std::chrono::hours(1));", "sleeping", "rank 1: sleeps at cell 1")


def test_an_endless_loop():
    stalled("if (rank == 1) for (volatile long i = 0;; i = i + 1) {}", "computing", "rank 1: computes at cell 1")


def test_an_endless_loop_that_a_freed_rank_has_waited_for():
    session = Session("""// %% threw, loops, was freed
auto t = torch::ones({2});
if (rank == 1) throw std::runtime_error("no data");
if (rank == 2) for (volatile long i = 0;; i = i + 1) {}
dist::all_reduce(t);
""" + NEXT, "-n", "3", "--keep-going", "--hang-timeout", "0.4")
    check(session.finish() == 1, "exit code")
    faults = [e for e in session.of("finding") if e["severity"] == "fault"]
    check([e["kind"] for e in faults] == ["threw", "computing"], f"{faults}")
    check(faults[1]["ranks"] == [2] and faults[1]["reference_ranks"] == [0], f"{faults}")
    check("rank 2: computes at cell 1, line 3; rank 0 waited in all_reduce #1 (cell 1, line 4)" in faults[1]["message"],
          f"{faults}")
    sums = [e for e in session.of("output") if "sum 3" in e.get("text", "")]
    check(sums and sums[0]["ranks"] == [0, 1, 2], f"the next cell did not run on all ranks: {session.events}")


def test_long_waits_are_state():
    session = Session("""// %% late
#include <thread>
auto t = torch::ones({2});
if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(3500));
dist::all_reduce(t);
""" + NEXT, "-n", "2")
    check(session.finish() == 0, "exit code")
    check(not session.of("finding"), f"{session.of('finding')}")
    said = [e for e in session.of("rank") if e["state"] == "waiting"]
    check(len(said) == 1 and said[0]["rank"] == 0, f"{said}")
    check("in all_reduce #1 (cell 1, line 4) for rank 1, which sleeps at cell 1, line 3" in said[0]["message"], f"{said}")


def test_a_straggler_is_a_note():
    session = Session("""// %% slow
#include <thread>
auto t = torch::ones({2});
for (int step = 0; step < 24; ++step) {
  if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(130));
  dist::all_reduce(t);
}
""" + NEXT, "-n", "2")
    check(session.finish() == 0, "exit code")
    notes = session.of("finding")
    check(len(notes) == 1 and notes[0]["verdict"] == "straggler" and notes[0]["severity"] == "note", f"{notes}")
    check(notes[0]["ranks"] == [1], f"{notes}")


def test_hang_and_abort_at_a_prompt():
    cells = """auto a = dist::new_group({0, 1});
auto t = torch::ones({2});
if (rank == 0) dist::barrier(a); else dist::barrier();
%hang
%stack 1
%abort
%hang
dist::all_reduce(t);
std::cout << "sum " << t[0].item<float>() << std::endl;
"""
    done = subprocess.run([LOCKSTEP, "-n", "2"], input=cells, capture_output=True, text=True, timeout=LIMIT)
    text = done.stdout
    for part in ("✗ hang: rank 0 waits in barrier #1 of group_1 (cell 3, line 1) for rank 1",
                 "hang: rank 0 waits in barrier #1 of group_1 (cell 3, line 1) for rank 1",
                 "lockstep::dist::barrier", "ranks 0-1 were freed", "ranks 0-1: are idle", "0-1 │ sum 2"):
        check(part in text, f"{part!r} is missing in:\n{text}\n{done.stderr}")
    check(text.count("✗ hang:") == 1, text)


def test_training_goes_on_after_an_abort():
    before = """// %% model
torch::manual_seed(1);
torch::nn::Linear model(4, 2);
ddp::DistributedDataParallel net(model);
torch::optim::SGD optimizer(model->parameters(), 0.1);
auto step = [&] {
  optimizer.zero_grad();
  net(torch::full({3, 4}, 1.0 + rank)).sum().backward();
  optimizer.step();
};
step();
auto weight = model->weight.detach().clone();
"""
    session = Session(before + """// %% hangs tags=["expects-finding=hang:hang"]
auto other = dist::new_group({0, 1});
if (rank == 0) dist::barrier(other);
else step();
// %% goes on
std::cout << "kept " << torch::equal(weight, model->weight) << std::endl;
for (int i = 0; i < 3; ++i) step();
dist::barrier(other);
auto sum = model->weight.detach().clone();
dist::all_reduce(sum);
std::cout << "equal " << torch::allclose(sum, 2 * model->weight) << std::endl;
""", "-n", "2")
    check(session.finish() == 0, f"{session.of('error')}")
    text = "".join(e.get("text", "") for e in session.of("output"))
    check("kept 1" in text and "equal 1" in text, text)


if __name__ == "__main__":
    sys.exit(run_tests(globals()))

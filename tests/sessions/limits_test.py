#!/usr/bin/env python3
"""--cell-timeout and --hang-timeout in each combination of three ranks that threw, spin and wait. Usage: limits_test.py LOCKSTEP [TEST...]

In scripts. Each row of the table is a session; docs/reliability.md has the same table.
"""
import itertools
import sys

from faults_test import Session, check, run_tests

DOES = {"threw": 'throw std::runtime_error("no data");', "spins": "for (volatile long i = 0;; i = i + 1) {}", "waits": "dist::all_reduce(t);"}

# What the three ranks do → findings of --hang-timeout (kind, ranks, ranks that wait for them), and the exit code. A rank that
# computes while nobody waits for it is no hang, however long it takes: --cell-timeout ends it. Where a rank threw, that was first.
HANGS = {
    "threw threw threw": ([], 1),
    "threw threw spins": ([], 1),
    "threw threw waits": ([("threw", [0, 1], [2])], 1),
    "threw spins spins": ([], 1),
    "threw spins waits": ([("threw", [0], [2]), ("computing", [1], [2])], 1),
    "threw waits waits": ([("threw", [0], [1, 2])], 1),
    "spins spins spins": ([], 4),
    "spins spins waits": ([("computing", [0, 1], [2])], 4),
    "spins waits waits": ([("computing", [0], [1, 2])], 4),
    "waits waits waits": ([], 0),
}
OTHER = {"blocks": "{ std::mutex own; own.lock(); std::lock_guard again(own); }", "sleeps": "std::this_thread::sleep_for(std::chrono::hours(1));"}


def run(combination, *options):
    cell = "".join(f"if (rank == {rank}) {(DOES | OTHER)[does]}\n" for rank, does in enumerate(combination.split()))
    session = Session("// %% ranks differ\nauto t = torch::ones({2});\n" + cell + """// %% next
auto after = torch::ones({2});
dist::all_reduce(after);
std::cout << "sum " << after[0].item<float>() << std::endl;
""", "-n", "3", "--keep-going", *options)
    code = session.finish()
    sums = [e for e in session.of("output") if "sum 3" in e.get("text", "")]
    check({rank for e in sums for rank in e["ranks"]} == {0, 1, 2}, f"{combination}: the next cell did not run on all ranks: {session.events}")
    check(not [e for e in session.of("rank") if e["state"] == "dead"], f"{combination}: a rank was lost")
    return session, code, session.of("cell")[0]


def test_every_combination_has_a_row():
    check(list(HANGS) == [" ".join(each) for each in itertools.combinations_with_replacement(DOES, 3)], "the table")


def test_hang_timeout():
    for combination, (findings, expected) in HANGS.items():
        ends = not findings and "spins" in combination
        session, code, cell = run(combination, "--hang-timeout", "1", *(["--cell-timeout", "4"] if ends else []))
        got = [(e["kind"], e["ranks"], e["reference_ranks"]) for e in session.of("finding")]
        check(got == findings, f"{combination}: {got}, {session.of('error')}")
        check(code == expected, f"{combination}: exit code {code}")
        first = "ok" if expected == 0 else "error" if expected == 1 else "timeout" if ends else "aborted"
        check(cell["status"] == first, f"{combination}: {cell}")


def test_hang_timeout_where_nobody_is_in_a_collective():
    session, code, cell = run("blocks blocks sleeps", "--hang-timeout", "1")
    (finding,) = session.of("finding")
    check((finding["kind"], finding["ranks"]) == ("lock", [0, 1, 2]), f"{finding}")
    check((cell["status"], code) == ("aborted", 4), f"{cell}, exit code {code}")


def test_cell_timeout():
    """It ends ranks that spin. Those that wait are freed before by what is proven, or with the others."""
    for combination in HANGS:
        if "spins" not in combination:
            continue
        session, code, cell = run(combination, "--cell-timeout", "3")
        does = combination.split()
        status = cell["rank_status"]
        for rank, each in enumerate(does):
            allowed = {"threw": ["error"], "spins": ["timeout"], "waits": ["timeout", "aborted"]}[each]
            check(status[str(rank)] in allowed, f"{combination}: {cell}")
        check(code == (1 if "threw" in does else 4), f"{combination}: exit code {code}")


if __name__ == "__main__":
    sys.exit(run_tests(globals()))

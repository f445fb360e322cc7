#!/usr/bin/env python3
"""Calls that wait, and what an interrupt does to them: the table in docs/reliability.md. Usage: interrupts_test.py LOCKSTEP [TEST...]

--cell-timeout interrupts each cell. An interrupt that comes before the call ends the cell as well, so that a slow machine makes
no difference.
"""
import concurrent.futures
import re
import signal
import sys

from faults_test import Session, check, run_tests
from processes import start_time, wait_gone

SETUP = """// %% setup
#include <atomic>
#include <condition_variable>
#include <fcntl.h>
#include <fstream>
#include <future>
#include <latch>
#include <mutex>
#include <poll.h>
#include <semaphore>
#include <semaphore.h>
#include <shared_mutex>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
std::mutex held, unlocked;
std::shared_mutex shared;
std::timed_mutex timed;
std::condition_variable changed;
int kept = 6, ends[2];
(void)!::pipe(ends);
std::promise<void> locked;
std::thread holder([] { held.lock(); shared.lock(); timed.lock(); locked.set_value(); for (;;) ::pause(); });
locked.get_future().wait();
"""

LAST = """// %% last
std::lock_guard<std::mutex> free(unlocked);
::fcntl(ends[0], F_SETFL, O_NONBLOCK);
std::FILE* const never_waits = ::fdopen(ends[0], "r");
if (std::fgetc(never_waits) != EOF || errno != EAGAIN) throw std::runtime_error("a file that does not block has blocked");
std::cout << "kept " << kept << std::endl;
"""

# What is called → cells that call it, with objects that have destructors. system() is first: the session ends what it left.
ENDED = {
    "system": "(void)!std::system(\"sleep 1000 & echo started $!; wait\");",
    "std::mutex": "{ std::lock_guard guard(held); }",
    "std::mutex of two": "{ std::mutex own; std::scoped_lock guard(own, held); }",
    "std::timed_mutex": "{ std::unique_lock lock(timed, std::chrono::hours(1)); }",
    "std::shared_mutex": "{ std::shared_lock guard(shared); }",
    "std::shared_mutex, alone": "{ std::unique_lock guard(shared); }",
    "std::condition_variable": "{ std::unique_lock lock(unlocked); changed.wait(lock, [] { return false; }); }",
    "std::condition_variable_any": "{ std::unique_lock lock(unlocked); std::condition_variable_any any; any.wait(lock, [] { return false; }); }",
    "std::condition_variable::wait_for": "{ std::mutex own; std::unique_lock lock(own); changed.wait_for(lock, std::chrono::hours(1), [] { return false; }); }",
    "std::future::get": "{ std::promise<int> promise; promise.get_future().get(); }",
    "std::future::wait_for": "{ std::promise<int> promise; promise.get_future().wait_for(std::chrono::hours(1)); }",
    "std::thread::join, of a variable of the session": "holder.join();",
    "sem_wait": "{ sem_t semaphore; sem_init(&semaphore, 0, 0); sem_wait(&semaphore); }",
    "read": "{ std::string text(10, ' '); (void)!::read(ends[0], text.data(), 10); }",
    "write": "{ int full[2]; (void)!::pipe(full); std::string text(::fcntl(full[1], F_GETPIPE_SZ), ' '); (void)!::write(full[1], text.data(), text.size()); (void)!::write(full[1], \"x\", 1); }",
    "poll": "{ std::vector<pollfd> items = {{ends[0], POLLIN, 0}}; ::poll(items.data(), 1, -1); }",
    "select": "{ fd_set set; FD_ZERO(&set); FD_SET(ends[0], &set); timeval limit{3600, 0}; ::select(ends[0] + 1, &set, nullptr, nullptr, &limit); }",
    "epoll_wait": "{ epoll_event event; ::epoll_wait(::epoll_create1(0), &event, 1, -1); }",
    "recv": "{ int pair[2]; ::socketpair(AF_UNIX, SOCK_STREAM, 0, pair); char byte; ::recv(pair[0], &byte, 1, 0); }",
    "fgets of popen": "{ std::string line(100, ' '); std::fgets(line.data(), 100, ::popen(\"exec sleep 1000\", \"r\")); }",
    "std::getline of a pipe": "{ std::ifstream file(\"/dev/fd/\" + std::to_string(ends[0])); std::string line; std::getline(file, line); ::pause(); }",
    "waitpid": "{ const pid_t child = ::fork(); if (child == 0) for (;;) ::pause(); ::waitpid(child, nullptr, 0); }",
    "pause": "{ std::string text; ::pause(); }",
    "at::parallel_for": "at::parallel_for(0, 4, 1, [](int64_t, int64_t) { for (;;) {} });",
    "the same call after it was caught": "for (;;) try { std::lock_guard guard(held); } catch (const std::exception&) { ++kept; --kept; }",
}

# What no exception may leave → a cell, and what the message names. MKL's kernels have no unwind information, so that the
# stack ends there.
NAMED = {
    "a noexcept function": ("void lets_nothing_out() noexcept { for (;;) {} }\nlets_nothing_out();", "lets_nothing_out() at cell 2, line"),
    "a destructor": ("struct Slow { ~Slow() { for (;;) {} } };\n{ Slow slow; }", "~Slow() at cell 2, line"),
    "a lock in a noexcept function": ("void locks() noexcept { std::lock_guard guard(held); }\nlocks();", "locks() at cell 2, line"),
    "std::atomic::wait": ("void waits() { std::atomic<int> value(0); value.wait(0); }\nwaits();", "waits() at cell 2, line"),
    "std::thread::join of a local": ("void joins() { std::thread local([] { for (;;) ::pause(); }); local.join(); }\njoins();", "joins() at cell 2, line"),
    "an operator of LibTorch": ("torch::Tensor a = torch::ones({20000, 20000});\na = a.matmul(a).matmul(a);", "in libtorch_cpu.so"),
}


def not_ended(session):
    """The message about the rank that could not be interrupted, or None."""
    return next((e["text"] for e in session.of("message") if "could not be interrupted" in e["text"]), None)


def test_calls_that_are_ended():
    cells = "".join(f"// %% {name}\n{body}\n" for name, body in ENDED.items())
    session = Session(SETUP + cells + LAST, "-n", "2", "--keep-going", "--cell-timeout", "1")
    session.until(lambda e: e["event"] == "cell" and e["title"] == "system")
    started = [int(pid) for e in session.of("output") for pid in re.findall(r"started (\d+)", e.get("text", ""))]
    left = wait_gone({(pid, start_time(pid)): "sleep" for pid in started if start_time(pid)}, limit=5)
    check(not left, f"system() has left {left}")
    code = session.finish()
    check(not_ended(session) is None, f"{not_ended(session)}")
    got = dict(zip(["setup", *ENDED, "last"], [e["status"] for e in session.of("cell")]))
    wrong = {name: status for name, status in got.items() if status != ("ok" if name in ("setup", "last") else "timeout")}
    check(not wrong and len(got) == len(ENDED) + 2, f"{wrong}, {got}, {session.of('error')}")
    last = [e for e in session.of("output") if "kept 6" in e.get("text", "")]
    check({rank for e in last for rank in e["ranks"]} == {0, 1}, f"{last}")
    check(code == 4, f"exit code {code}")


def end_named_call(name, body, named):
    at = body.rindex("\n") + 1
    script = SETUP + f"// %% {name}\n{body[:at]}std::cout << \"in\\n\" << std::flush;\n{body[at:]}\n"
    for _ in range(10):
        session = Session(script, "-n", "1")
        check(session.until_text("in\n"), f"{name}: {session.events}")
        session.process.send_signal(signal.SIGINT)
        said = session.until(lambda e: e["event"] == "message" and "has not come back yet" in e["text"])
        if said or session.of("cell")[-1]["status"] != "interrupted":
            break  # else the interrupt came before the call, and has ended the cell
    check(said and named in said["text"], f"{name}: {said}, {session.of('cell')}")
    session.process.send_signal(signal.SIGTERM)
    session.finish()
    text = not_ended(session)
    check(text and named in text, f"{name}: {text}, {session.of('cell')}")


def test_calls_that_are_named():
    """Ctrl-C leaves the rank as it is, and says where; the session's end ends it, and says where."""
    with concurrent.futures.ThreadPoolExecutor(3) as pool:  # most of the time is the shell's patience
        for done in [pool.submit(end_named_call, name, *row) for name, row in NAMED.items()]:
            done.result()


if __name__ == "__main__":
    sys.exit(run_tests(globals()))

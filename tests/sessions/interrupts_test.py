#!/usr/bin/env python3
"""Calls that wait, and what an interrupt does to them: the table in docs/reliability.md. Usage: interrupts_test.py LOCKSTEP [TEST...]

--cell-timeout interrupts each cell. An interrupt that comes before the call ends the cell as well, so that a slow machine makes
no difference.
"""
import concurrent.futures
import ctypes
import pathlib
import re
import signal
import sys
import tempfile

from faults_test import Session, check, run_tests
from processes import start_time, wait_gone

SETUP = """// %% setup
#include <atomic>
#include <condition_variable>
#include <dlfcn.h>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <future>
#include <latch>
#include <mutex>
#include <poll.h>
#include <semaphore>
#include <semaphore.h>
#include <shared_mutex>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
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
pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
std::thread holder([] { held.lock(); shared.lock(); timed.lock(); ::pthread_rwlock_wrlock(&rwlock); locked.set_value(); for (;;) ::pause(); });
locked.get_future().wait();
const std::string folder = arg("released") + "-" + std::to_string(rank);  // in the folder of the test's session
std::filesystem::create_directory(folder);
::mkfifo((folder + "/pipe").c_str(), 0600);
int lock_file = ::memfd_create("lock", 0);
::flock(lock_file, LOCK_EX);
struct flock whole_file{.l_type = F_WRLCK};
if (int child[2]; ::pipe(child) == 0) {
  if (::fork() == 0) {
    ::fcntl(lock_file, F_SETLK, &whole_file);
    ::close(child[1]);
    for (;;) ::pause();
  }
  char byte;
  ::close(child[1]);
  (void)!::read(child[0], &byte, 1);
}
int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
sockaddr_un address{.sun_family = AF_UNIX};
socklen_t length = sizeof address;
::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address.sun_family);
::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
::listen(listener, 0);
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
    "pthread_mutex_lock": "{ std::string text; ::pthread_mutex_lock(held.native_handle()); }",
    "pthread_rwlock_rdlock": "{ std::string text; ::pthread_rwlock_rdlock(&rwlock); }",
    "pthread_rwlock_wrlock": "{ std::string text; ::pthread_rwlock_wrlock(&rwlock); }",
    "pthread_cond_wait": "{ pthread_cond_t never = PTHREAD_COND_INITIALIZER; std::unique_lock lock(unlocked); ::pthread_cond_wait(&never, unlocked.native_handle()); }",
    "sem_wait": "{ sem_t semaphore; sem_init(&semaphore, 0, 0); sem_wait(&semaphore); }",
    "read": "{ std::string text(10, ' '); (void)!::read(ends[0], text.data(), 10); }",
    "write": "{ int full[2]; (void)!::pipe(full); std::string text(::fcntl(full[1], F_GETPIPE_SZ), ' '); (void)!::write(full[1], text.data(), text.size()); (void)!::write(full[1], \"x\", 1); }",
    "poll": "{ std::vector<pollfd> items = {{ends[0], POLLIN, 0}}; ::poll(items.data(), 1, -1); }",
    "select": "{ fd_set set; FD_ZERO(&set); FD_SET(ends[0], &set); timeval limit{3600, 0}; ::select(ends[0] + 1, &set, nullptr, nullptr, &limit); }",
    "epoll_wait": "{ epoll_event event; ::epoll_wait(::epoll_create1(0), &event, 1, -1); }",
    "recv": "{ int pair[2]; ::socketpair(AF_UNIX, SOCK_STREAM, 0, pair); char byte; ::recv(pair[0], &byte, 1, 0); }",
    "send": "{ int pair[2]; ::socketpair(AF_UNIX, SOCK_STREAM, 0, pair); std::string text(65536, ' '); for (;;) ::send(pair[0], text.data(), text.size(), 0); }",
    "accept": "{ std::string text; ::accept(listener, nullptr, nullptr); ::accept(listener, nullptr, nullptr); }",
    "connect": "{ std::string text; for (;;) ::connect(::socket(AF_UNIX, SOCK_STREAM, 0), reinterpret_cast<sockaddr*>(&address), length); }",
    "flock": "{ std::string path = \"/proc/self/fd/\" + std::to_string(lock_file); ::flock(::open(path.c_str(), O_RDWR), LOCK_EX); }",
    "fcntl": "{ std::string text; ::fcntl(lock_file, F_SETLKW, &whole_file); }",
    "open of a pipe": "{ std::string path = folder + \"/pipe\"; ::open(path.c_str(), O_RDONLY); }",
    "fopen of a pipe": "{ std::string path = folder + \"/pipe\"; std::fopen(path.c_str(), \"r\"); }",
    "fread": "{ std::string text(10, ' '); (void)!std::fread(text.data(), 1, 10, ::fdopen(::dup(ends[0]), \"r\")); }",
    "fgetc": "{ std::string text; std::fgetc(::fdopen(::dup(ends[0]), \"r\")); }",
    "getline": "{ char* line = nullptr; size_t size = 0; (void)!::getline(&line, &size, ::fdopen(::dup(ends[0]), \"r\")); }",
    "fgets of popen": "{ std::string line(100, ' '); std::fgets(line.data(), 100, ::popen(\"exec sleep 1000\", \"r\")); }",
    "std::getline of a pipe": "{ std::ifstream file(\"/dev/fd/\" + std::to_string(ends[0])); std::string line; std::getline(file, line); ::pause(); }",
    "waitpid": "{ const pid_t child = ::fork(); if (child == 0) for (;;) ::pause(); ::waitpid(child, nullptr, 0); }",
    "pause": "{ std::string text; ::pause(); }",
    "at::parallel_for": "at::parallel_for(0, 4, 1, [](int64_t, int64_t) { for (;;) {} });",
    "a loop of a header of the user's": "spins();",
    "a call in a header of the user's": "waits();",
    "the same call after it was caught": "for (;;) try { std::lock_guard guard(held); } catch (const std::exception&) { ++kept; --kept; }",
}

HEADER = """#include <mutex>
inline void spins() { for (;;) {} }
inline void waits() { std::mutex mutex; mutex.lock(); std::lock_guard again(mutex); }
"""

# What no exception may leave → a cell, and what the message names. MKL's kernels have no unwind information: the statement is
# named.
NAMED = {
    "a noexcept function": ("void lets_nothing_out() noexcept { for (;;) {} }\nlets_nothing_out();", "lets_nothing_out() at cell 2, line"),
    "a destructor": ("struct Slow { ~Slow() { for (;;) {} } };\n{ Slow slow; }", "~Slow() at cell 2, line"),
    "a lock in a noexcept function": ("void locks() noexcept { std::lock_guard guard(held); }\nlocks();", "locks() at cell 2, line"),
    "std::atomic::wait": ("void waits() { std::atomic<int> value(0); value.wait(0); }\nwaits();", "waits() at cell 2, line"),
    "std::thread::join of a local": ("void joins() { std::thread local([] { for (;;) ::pause(); }); local.join(); }\njoins();", "joins() at cell 2, line"),
    "an operator of LibTorch": ("torch::Tensor a = torch::ones({20000, 20000});\na = a.matmul(a).matmul(a);", "cell 2, line 3"),
}

# The same of ranks of one session, each in another call → the function that the message names.
OF_RANKS = {
    "in_latch()": "std::latch latch(1); latch.wait();",
    "in_semaphore()": "std::counting_semaphore<2> semaphore(0); semaphore.acquire();",
    "in_async()": "auto future = std::async(std::launch::async, [] { for (;;) ::pause(); }); future.get();",
    "in_jthread()": "std::jthread thread([] { for (;;) ::pause(); });",
    "in_library()": "gzgetc(gzdopen(ends[0], \"r\"));",
    "in_openmp()": "volatile long turns = 0;\n#pragma omp parallel num_threads(2)\n{ for (;;) { turns = turns + 1; } }\n",
}
OPTIMISED = """// %% optimised
%%O2
struct Loud { ~Loud() { std::cout << "gone\\n"; } };
void in_optimised() { Loud loud; std::lock_guard guard(held); std::cout << kept; }
"""


def not_ended(session):
    """The message about the rank that could not be interrupted, or None."""
    return next((e["text"] for e in session.of("message") if "could not be interrupted" in e["text"]), None)


def test_calls_that_are_ended():
    cells = "".join(f"// %% {name}\n{body}\n" for name, body in ENDED.items())
    with tempfile.NamedTemporaryFile("w", suffix=".h") as header:
        header.write(HEADER)
        header.flush()
        end_calls(f'{SETUP}#include "{header.name}"\n{cells}{LAST}')


def end_calls(script):
    session = Session(script, "-n", "2", "--keep-going", "--cell-timeout", "1")
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


def test_ranks_that_are_named():
    of_ranks = dict(OF_RANKS)
    try:
        ctypes.CDLL("libz.so.1")
    except OSError as error:
        print(f"  without in_library(): {error}")
        del of_ranks["in_library()"]
    names = [*of_ranks, "in_optimised()"]  # which has no lines
    functions = "".join(f"void {name} {{\n{body}\n}}\n" for name, body in of_ranks.items())
    calls = "".join(f"if (rank == {rank}) {name};\n" for rank, name in enumerate(names))
    script = SETUP + """// %% library
void* libz = ::dlopen("libz.so.1", RTLD_NOW);
auto* gzdopen = reinterpret_cast<void* (*)(int, const char*)>(::dlsym(libz, "gzdopen"));
auto* gzgetc = reinterpret_cast<int (*)(void*)>(::dlsym(libz, "gzgetc"));
""" + OPTIMISED + f"// %% functions\n{functions}// %% calls\nstd::cout << \"in\\n\" << std::flush;\n{calls}"
    for _ in range(5):
        session = Session(script, "-n", str(len(names)))
        are_in = lambda: {rank for e in session.of("output") if "in\n" in e.get("text", "") for rank in e["ranks"]}
        check(session.until(lambda e: len(are_in()) == len(names)), f"{session.events}")
        session.process.send_signal(signal.SIGINT)
        said = session.until(lambda e: e["event"] == "message" and "not come back yet" in e["text"])
        session.process.send_signal(signal.SIGTERM)
        session.finish()
        texts = [(said or {}).get("text", ""), not_ended(session) or ""]
        missing = [name for name in names if not all(name + " at cell" * (name in OF_RANKS) in text for text in texts)]
        if not missing:
            break  # else the interrupt came before a call, and has ended the cell there
    check(not missing, f"{missing}: {texts} {session.events}")


if __name__ == "__main__":
    sys.exit(run_tests(globals()))

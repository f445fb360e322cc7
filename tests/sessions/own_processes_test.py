#!/usr/bin/env python3
"""What belongs to a session ends with it, and nobody else has a part in it. Usage: own_processes_test.py LOCKSTEP [TEST...]

A cell starts programs that leave the rank's process group, as daemons do. Another user of the machine connects to every port that
the session listens on; only root can be another user.
"""
import collections
import mmap
import os
import pathlib
import re
import select
import signal
import socket
import struct
import sys
import tempfile

from faults_test import Session, check, check_gone, run_tests
from processes import start_time
from waiting import wait_until

DAEMON = """// %% start a daemon
#include <sys/wait.h>
#include <unistd.h>
int pids[2];
if (pipe(pids) != 0) throw std::runtime_error("no pipe");
if (const pid_t child = fork(); child == 0) {
  setsid();
  pid_t daemon = fork();
  if (daemon == 0) {
    close(1);
    close(2);
    execlp("sleep", "sleep", "1000", nullptr);
    _exit(1);
  }
  (void)!write(pids[1], &daemon, sizeof daemon);
  _exit(0);
} else {
  waitpid(child, nullptr, 0);
}
pid_t daemon_pid = 0;
(void)!read(pids[0], &daemon_pid, sizeof daemon_pid);
std::cout << "daemon " << daemon_pid << " of " << getpid() << std::endl;
"""

# Until the test has seen the daemons.
HOLD = """// %% hold
while (access("GO", F_OK) != 0) usleep(1000);
"""

WAIT = """// %% wait
#include <unistd.h>
for (volatile long i = 0;; i = i + 1) usleep(1000);
"""

OTHER_USER = 65534
FOLDER = tempfile.TemporaryDirectory()


def with_daemons(*options, then=""):
    """A session whose two ranks have started a daemon each: the session, {(pid, start time): name}, {daemon: its rank's pid}.
    It goes on with the cells of `then`."""
    go = pathlib.Path(FOLDER.name, f"go-{len(os.listdir(FOLDER.name))}")
    session = Session(DAEMON + HOLD.replace("GO", str(go)) + then, "-n", "2", *options)
    owners = {}
    written = collections.defaultdict(str)  # by rank: a line can come in pieces

    def both(event):
        if event["event"] == "output":
            for rank in event["ranks"]:
                written[rank] += event["text"]
                owners.update((int(daemon), int(pid)) for daemon, pid in re.findall(r"daemon (\d+) of (\d+)\n", written[rank]))
        return len(owners) == 2
    check(session.until(both), "the cell did not run")
    daemons = {(pid, start_time(pid)): "daemon" for pid in owners}
    check(all(born for _, born in daemons), "a daemon does not run")
    go.touch()
    return session, daemons, owners


def test_daemons_end_with_the_session():
    session, daemons, _ = with_daemons()
    check(session.finish() == 0, "the session failed")
    check_gone(daemons)


def test_daemons_end_when_the_shell_is_killed():
    session, daemons, _ = with_daemons(then=WAIT)
    everything = {key: name for key, name in session.processes().items() if "--template" not in name}
    session.process.kill()
    session.process.wait()
    check_gone(everything | daemons)


def test_a_daemon_ends_with_its_rank():
    session, daemons, owners = with_daemons("--keep-going", "--cell-timeout", "20", then=WAIT)
    victim = next(daemon for daemon, _ in daemons)
    os.kill(owners[victim], signal.SIGKILL)
    check_gone({key: name for key, name in daemons.items() if key[0] == victim})
    session.process.terminate()
    session.finish()
    check_gone(daemons)


def test_programs_of_others_are_left_alone():
    # Of the same user, and with a variable that only looks alike.
    other = os.posix_spawnp("sleep", ["sleep", "1000"], {**os.environ, "LOCKSTEP_SESSION_DIR": "/nowhere", "LOCKSTEP_RANK": "0"})
    try:
        session, daemons, _ = with_daemons()
        check(session.finish() == 0, "the session failed")
        check(start_time(other) is not None, "a program of nobody's session was killed")
    finally:
        os.kill(other, signal.SIGKILL)
        os.waitpid(other, 0)


def listening_ports(pids):
    inodes = set()
    for pid in pids:
        for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            match = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(fd))
            if match:
                inodes.add(match[1])
    ports = set()
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and fields[9] in inodes:
            ports.add(int(fields[1].split(":")[1], 16))
    return ports


def answer(port, data, user):
    """What comes back when `user` sends `data`: bytes, "" when the connection is closed, None for nothing at all."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        result = b"none"
        try:
            os.close(reading)
            if user != os.geteuid():
                os.setgroups([])
                os.setresgid(user, user, user)
                os.setresuid(user, user, user)
            # No function that loads a module: the other user may not read Python's.
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
                connection.connect(("127.0.0.1", port))
                connection.sendall(data)
                if select.select([connection], [], [], 20)[0]:
                    result = b"got:" + connection.recv(100)
        except ConnectionError:
            result = b"got:"
        finally:
            os.write(writing, result)
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        result = pipe.read()
    os.waitpid(pid, 0)
    return result[4:] if result.startswith(b"got:") else None


def test_another_user_reaches_no_port():
    if os.geteuid() != 0:
        print("  skipped: only root can be another user")
        return
    script = """// %% groups
auto pair = dist::new_group();
dist::barrier(pair);
std::cout << "connected" << std::endl;
""" + WAIT
    session = Session(script, "-n", "2")
    try:
        check(session.until_text("connected"), "the cell did not run")
        ranks = [pid for pid, _ in session.workers()]
        store = [pid for pid, _ in session.processes("--store")]
        # c10d's protocol: the magic number, then the number of keys is asked for.
        count_keys = struct.pack("<BI", 0, 0x3C85F7CE) + struct.pack("<B", 7)
        (port,) = listening_ports(store)
        check(len(answer(port, count_keys, os.geteuid()) or b"") == 8, "this user gets no answer from the store")
        check(answer(port, count_keys, OTHER_USER) == b"", "another user is answered by the store")
        ports = listening_ports(ranks)
        check(len(ports) == 4, f"one for each group and rank was expected: {ports}")
        for port in ports:
            check(answer(port, struct.pack("<q", 0), OTHER_USER) == b"", f"another user stays connected to {port}")
    finally:
        session.process.terminate()
        session.finish()


def flood(ports, user, counted):
    """A process of `user` that connects as fast as it can, holds 500 connections, and counts them all."""
    pid = os.fork()
    if pid != 0:
        return pid
    try:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        held = []
        for number in range(10**9):
            connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            held.append(connection)
            try:
                connection.connect(("127.0.0.1", ports[number % len(ports)]))
                counted[:8] = (int.from_bytes(counted[:8], "little") + 1).to_bytes(8, "little")
            except OSError:  # this machine has no port left for it, or the group is gone
                pass
            if len(held) > 500:
                held.pop(0).close()
    finally:
        os._exit(1)


def test_another_user_floods_the_ports():
    if os.geteuid() != 0:
        print("  skipped: only root can be another user")
        return
    with tempfile.TemporaryDirectory() as folder:
        script = f"""// %% groups
auto pair = dist::new_group();
dist::barrier(pair);
std::cout << "connected" << std::endl;
while (access("{folder}/go", F_OK) != 0) usleep(1000);
// %% more groups
for (int i = 0; i < 5; ++i) {{
  auto ones = torch::ones({{1}});
  dist::all_reduce(ones, dist::ReduceOp::SUM, dist::new_group());
  if (i == 4) std::cout << "sum " << ones.item<int>() << std::endl;
}}
while (access("{folder}/over", F_OK) != 0) usleep(1000);
"""
        session = Session("// %%\n#include <unistd.h>\n" + script, "-n", "2")
        flooding = None
        try:
            check(session.until_text("connected"), "the cell did not run")
            pids = [pid for pid, _ in [*session.workers(), *session.processes("--store")]]

            def usage():
                """Descriptors, and kB of memory."""
                return (sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids),
                        sum(int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) for pid in pids))
            descriptors, memory = usage()
            counted = mmap.mmap(-1, 8)
            flooding = flood(sorted(listening_ports(pids)), OTHER_USER, counted)
            connected = lambda: int.from_bytes(counted[:8], "little")
            floods = lambda: os.waitid(os.P_PID, flooding, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
            wait_until(lambda: connected() > 2000)
            before = connected()
            pathlib.Path(folder, "go").touch()
            check(session.until_text("sum 2"), "the groups did not connect")
            wait_until(lambda: connected() > before or not floods())
            check(floods(), "the flood has ended")
            more = usage()
            check(more[0] - descriptors < 250, f"{descriptors} descriptors have become {more[0]}")  # of the groups
            check(more[1] - memory < 100_000, f"{memory} kB have become {more[1]} kB")
            pathlib.Path(folder, "over").touch()
            check(session.finish() == 0, "the session failed")
        finally:
            if flooding:
                os.kill(flooding, signal.SIGKILL)
                os.waitpid(flooding, 0)
            session.process.terminate()
            session.finish()


def test_a_new_group_without_a_store_fails_at_once():
    with tempfile.TemporaryDirectory() as folder:
        script = f"""// %% wait
#include <unistd.h>
std::cout << "waiting" << std::endl;
while (access("{folder}/go", F_OK) != 0) usleep(1000);
// %% group
dist::new_group();
// %% next
at::Tensor ones = at::ones({{3}});
dist::all_reduce(ones);
std::cout << "sum " << ones[0].item<int>() << std::endl;
"""
        session = Session(script, "-n", "2", "--keep-going", "--cell-timeout", "60")
        check(session.until_text("waiting"), "the cell did not run")
        ((store, born),) = session.processes("--store")
        os.kill(store, signal.SIGKILL)
        check_gone({(store, born): "store"})
        pathlib.Path(folder, "go").touch()
        code = session.finish()
        check(code == 1, f"exit code {code}: {session.of('error')}")
        cells = [e["status"] for e in session.of("cell")]
        check("timeout" not in cells and "error" in cells, f"{cells}")
        check(any("can't be reached any more" in e["message"] for e in session.of("error")), f"{session.of('error')}")


def test_keys_of_a_session_can_not_be_guessed():
    script = """// %% key
std::cout << "key " << std::getenv("LOCKSTEP_STORE_KEY") << std::endl;
"""
    keys = []
    for _ in range(2):
        session = Session(script, "-n", "1")
        check(session.finish() == 0, "the session failed")
        text = "".join(e.get("text", "") for e in session.of("output"))
        keys += re.findall(r"key ([0-9a-f]{32})\n", text)
    check(len(set(keys)) == 2, f"{keys}")


if __name__ == "__main__":
    sys.exit(run_tests(globals()))

"""Hosts on this machine: each has its own network, processes, mounts, host name, /tmp, /run, /dev/shm, /etc and /var.
A bridge joins them, as a switch would. They share a folder and the kernel. Root only: missing() says why they can't be.

    with Hosts("node1", "node2") as hosts:
        hosts["node1"].run("ping", "-c1", "node2")

One more host, `hub`, is where users log in. A host is a set of namespaces, held by its process 1, which ends when this
process closes its standard input or ends. With it end all processes of the host, its mounts and its network.
"""

import concurrent.futures
import ctypes
import errno
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

from packages import folder as packages_folder

TREE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("LOCKSTEP_BUILD", TREE / "build" / "release"))
TIME_OF_DAY = BUILD / "lib" / "libtests_time_of_day.so"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
OWN_FOLDERS = ("/tmp", "/run", "/dev/shm")  # empty at the host's start

UNSHARE = ("unshare", "--net", "--pid", "--mount", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc")

# Arguments: host name, addresses for /etc/hosts, folder with packages or "", then what stays visible in OWN_FOLDERS.
# /mnt is where mounts are prepared. What is below it lives on in the overlays after it has been unmounted.
START = r"""
set -e
name=$1 addresses=$2 packages=$3 home=$4
shift 4
hostname "$name"
mount -t tmpfs -o mode=755 hosts /mnt
number=0
for path; do
  number=$((number + 1))
  mkdir /mnt/keep$number
  mount --rbind "$path" /mnt/keep$number
done
for folder in etc var; do
  mkdir /mnt/$folder /mnt/$folder.work
  lower=${packages:+$packages/$folder:}/$folder
  mount -t overlay -o "lowerdir=$lower,upperdir=/mnt/$folder,workdir=/mnt/$folder.work" overlay /$folder
done
[ -z "$packages" ] || mount -t overlay -o "lowerdir=$packages/usr:/usr" overlay /usr
for folder in /tmp /run /dev/shm; do mount -t tmpfs -o mode=1777 hosts $folder; done
number=0
for path; do
  number=$((number + 1))
  mkdir -p "$path"
  mount --move /mnt/keep$number "$path"
done
umount -l /mnt
mkdir -m 755 -p /run/user
mkdir -m 700 /run/user/0
printf '127.0.0.1 localhost\n%s\n' "$addresses" > /etc/hosts
: > /etc/resolv.conf
sed -i "s|^root:.*|root:x:0:0:root:$home:/bin/bash|" /etc/passwd
ip link set lo up
echo ready
exec env --ignore-signal=CHLD cat > /dev/null  # the kernel takes orphans that have ended
"""


def missing():
    """What keeps hosts from being made here; empty if nothing does."""
    if os.geteuid() != 0:
        return "hosts are made of namespaces, which needs root"
    for program in ("unshare", "ip"):
        if shutil.which(program) is None:
            return f"hosts need the program {program} (Debian's util-linux and iproute2)"
    tried = subprocess.run([*UNSHARE, "sh", "-c",
                            "ip link add test0 type bridge && ip link add test1 type veth && mount -t tmpfs test /mnt"],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return "" if tried.returncode == 0 else f"this kernel does not let root make hosts: {tried.stdout.strip()}"


def lstat_device(path):
    """The file system on which it is; None: it has gone."""
    try:
        return path.lstat().st_dev
    except FileNotFoundError:
        return None


class Host:
    def __init__(self, hosts, name, number, monotonic_s, time_of_day_s):
        self.name, self.address, self.hosts = name, f"10.9.0.{10 + number}", hosts
        self.port = f"port{number}"  # of the bridge
        self.clock = monotonic_s is not None
        time = ["--time", f"--monotonic={monotonic_s}", f"--boottime={monotonic_s}"] if self.clock else []
        self.variables = {"LD_PRELOAD": str(TIME_OF_DAY), "AHEAD_S": str(time_of_day_s)} if time_of_day_s else {}
        self.keeper = subprocess.Popen(
            [*UNSHARE, *time, "sh", "-c", START, "sh", name, hosts.addresses(name), hosts.packages, str(hosts.home),
             *hosts.kept()],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.inside, self.started = None, []

    def wait_until_ready(self):
        said = self.keeper.stdout.readline()
        if said != "ready\n":
            raise RuntimeError(f"host {self.name} did not start: {said}{self.keeper.stdout.read()}")
        children = pathlib.Path(f"/proc/{self.keeper.pid}/task/{self.keeper.pid}/children").read_text()
        self.init = int(children.split()[0])
        self.root = pathlib.Path(f"/proc/{self.init}/root")  # its files as this process sees them
        self.inside = concurrent.futures.ThreadPoolExecutor(1, initializer=enter, initargs=(self.init,))

    def call(self, function, *arguments, **more):
        """Calls it in a thread that is on this host. What it opens or starts is the host's."""
        return self.inside.submit(function, *arguments, **more).result()

    def start(self, *command, env=None, cwd=None, **more):
        """A subprocess.Popen of a command on this host. `env` is added to the host's."""
        if self.clock:
            command = ("nsenter", "--time=/proc/1/ns/time", *command)
        process = self.call(subprocess.Popen, [str(each) for each in command], cwd=cwd or self.hosts.folder,
                            env={**self.environment(), **(env or {})}, **more)
        process.host = self
        self.started.append(process)
        return process

    def run(self, *command, input=None, check=True, **more):
        """Its standard output; raises AssertionError with what it said if it fails, unless `check` is False."""
        stdin = subprocess.DEVNULL if input is None else subprocess.PIPE
        process = self.start(*command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
        output, errors = process.communicate(input)
        assert not check or process.returncode == 0, (
            f"{self.name}: {command} ended with {process.returncode}:\n{output}{errors}")
        return output

    def environment(self):
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("XDG_", "SSH_", "LC_")) and name not in ("TMPDIR", "HOME", "HOSTNAME", "PWD")}
        return {**kept, "HOME": str(self.hosts.home), "XDG_RUNTIME_DIR": "/run/user/0", "PATH": path(), "LC_ALL": "C.UTF-8",
                **self.variables}

    def processes(self):
        """The command lines of its processes by id, without process 1."""
        found = {}
        for folder in (self.root / "proc").glob("[0-9]*"):
            try:
                line = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                found[int(folder.name)] = line.decode(errors="replace")
            except (FileNotFoundError, ProcessLookupError):
                pass  # it has just ended
        found.pop(1, None)
        return found

    def traces(self):
        """What there is of programs: processes without process 1, files and sockets in folders that are the host's own and in
        the home, ports that listen, sockets with names. The folder that hosts share is left out, and the cache."""
        found = {f"process {line}" for line in self.processes().values() if line}  # without those that have ended
        home = self.root / str(self.hosts.home)[1:]
        for top in (*(self.root / each[1:] for each in OWN_FOLDERS), home):
            device = top.stat().st_dev  # what is mounted in it, as the tree of the tests, is not the host's own
            for folder, folders, files in os.walk(top):
                inside = pathlib.Path(folder)
                folders[:] = [each for each in folders if lstat_device(inside / each) == device]
                found |= {f"/{(inside / each).relative_to(self.root)}" for each in (*folders, *files)}
        network = pathlib.Path(f"/proc/{self.init}/net")
        for protocol in ("tcp", "tcp6"):
            for line in (network / protocol).read_text().splitlines()[1:]:
                _, address, _, state, *_ = line.split()
                if state == "0A":
                    found.add(f"{protocol} port {int(address.rpartition(':')[2], 16)}")
        sockets = (line.split(maxsplit=7) for line in (network / "unix").read_text().splitlines()[1:])
        return found | {f"socket {fields[7]}" for fields in sockets if len(fields) == 8}

    def sent_to(self, host):
        """How many bytes have gone to another host since its start. For the hub, where all cables end."""
        line, = (each for each in (self.root / "proc/1/net/dev").read_text().splitlines() if f"{host.port}:" in each)
        return int(line.partition(":")[2].split()[8])

    def slow_down(self, bytes_a_second):
        """Makes the cable slow for what comes here; 0 makes it fast again. Skips the test where the kernel can't (sch_tbf)."""
        if bytes_a_second == 0:
            self.hosts.hub.run("tc", "qdisc", "del", "dev", self.port, "root")
            return
        try:
            self.hosts.hub.run("tc", "qdisc", "add", "dev", self.port, "root", "tbf", "rate", f"{bytes_a_second}bps",
                               "burst", "16kb", "limit", "64kb")
        except (AssertionError, FileNotFoundError) as error:
            raise unittest.SkipTest(f"cables can't be made slow here: {error}") from error

    def end_connections(self, to):
        """Ends its TCP connections to an address, or to a port of it; returns the list of those that have ended."""
        return self.run("ss", "--kill", "--tcp", "--no-header", "dst", to)

    def can_end_connections(self):
        """Tries it. Where the kernel can't (CONFIG_INET_DIAG_DESTROY), `ss` says nothing of it."""
        with self.call(socket.create_server, ("127.0.0.1", 0)) as server:
            with self.call(socket.create_connection, server.getsockname()):
                return self.end_connections(f"127.0.0.1:{server.getsockname()[1]}") != ""

    def cut(self):
        """Takes the cable out: no packet comes or goes, and nobody is told."""
        self.hosts.hub.run("ip", "link", "set", self.port, "down")

    def restore(self):
        self.hosts.hub.run("ip", "link", "set", self.port, "up")

    def drop(self, port=None):
        """Silently drops what others send to this tcp port, or to any."""
        ports = f"tcp dport {port}" if port else "meta l4proto tcp"
        self.run("nft", "-f", "-", input=f'table inet tests {{ chain input {{ type filter hook input priority 0; '
                                         f'iifname "eth0" {ports} drop; }}; }}')

    def accept(self):
        """The end of drop()."""
        self.run("nft", "delete", "table", "inet", "tests")

    def small_disk(self, folder, bytes):
        """Puts a file system of this size on a folder, and hides what is in it."""
        self.run("mount", "-t", "tmpfs", "-o", f"mode=700,size={bytes}", "small", folder)

    def fill(self, folder):
        """Writes until there is no space."""
        def write():
            with open(f"{folder}/filler", "wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
        try:
            self.call(write)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise

    def power_off(self):
        """The host is gone, and sends no word of it."""
        self.cut()
        self.end()

    def end(self):
        if self.inside is not None:
            self.inside.shutdown()
        self.keeper.stdin.close()  # ends process 1, and the kernel all others
        for each in self.started:  # process 1 is there until they have been waited for
            each.wait()
        self.keeper.wait()
        self.keeper.stdout.close()


class Hosts:
    """`names` are known to all hosts by /etc/hosts, unless `names_resolve` is False: then a host knows only itself.
    `monotonic_s` has the seconds by which the monotonic clock of a host, by name, is ahead of the machine's;
    `time_of_day_s` those of the time of day, for what is started there by this class or by sshd."""

    def __init__(self, *names, names_resolve=True, monotonic_s={}, time_of_day_s={}):
        self.names, self.names_resolve = ("hub", *names), names_resolve
        self.packages = packages_folder()
        # Shared by the hosts, as by a file server. Short, since paths of sockets are.
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ls-", dir="/tmp"))
        # Removes the folder when this process closes its end, or ends. Processes of hosts may still write then.
        self.janitor = subprocess.Popen(["sh", "-c", 'cat; until rm -rf "$1"; do :; done', "sh", self.folder],
                                        stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
        self.home = self.folder / "home"
        self.home.mkdir()
        if CACHE.is_dir():
            (self.home / ".cache").symlink_to(CACHE)
        self.by_name = {}
        try:
            for number, name in enumerate(self.names):
                self.by_name[name] = Host(self, name, number, monotonic_s.get(name), time_of_day_s.get(name))
            for host in self.by_name.values():
                host.wait_until_ready()
            self.hub = self.by_name["hub"]
            self.connect()
        except BaseException:
            self.end()
            raise

    def connect(self):
        bridge = ["link add eth0 type bridge", "link set eth0 up", f"addr add {self.hub.address}/24 dev eth0"]
        nodes = [host for host in self.by_name.values() if host is not self.hub]
        for host in nodes:
            bridge.append(f"link add {host.port} type veth peer name {host.port}n")
            bridge.append(f"link set {host.port} master eth0 up")
        self.hub.run("ip", "-batch", "-", input="\n".join(bridge))
        for host in nodes:  # process ids mean something else on hosts
            subprocess.run(["nsenter", f"--net=/proc/{self.hub.init}/ns/net", "ip", "link", "set", f"{host.port}n",
                            "netns", str(host.init)], check=True)
            host.run("ip", "-batch", "-", input=f"link set {host.port}n name eth0\nlink set eth0 up\n"
                                                f"addr add {host.address}/24 dev eth0\n")

    def addresses(self, name):
        return "\n".join(f"10.9.0.{10 + number} {each}" for number, each in enumerate(self.names)
                         if self.names_resolve or each == name)

    def kept(self):
        """What stays visible below folders that a host has for its own."""
        used = {str(each) for each in (TREE, BUILD, CACHE, sys.prefix, sys.base_prefix, *sys.path)
                if os.path.isdir(each)}
        inside = {each for each in used if each.startswith(tuple(f"{own}/" for own in OWN_FOLDERS))}
        return [str(self.folder), *sorted(inside)]

    def __getitem__(self, name):
        return self.by_name[name]

    def __iter__(self):
        """Those where ranks run."""
        return (host for name, host in self.by_name.items() if name != "hub")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        for host in self.by_name.values():
            host.end()
        self.janitor.communicate()


def path():
    """Where hosts look for programs: the tree's, those of the Python of these tests, the system's."""
    own = [BUILD / "bin", pathlib.Path(sys.executable).parent]
    return ":".join(map(str, own)) + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


CLONE_FS, CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWPID, CLONE_NEWNET = (
    0x200, 0x20000, 0x4000000, 0x8000000, 0x20000000, 0x40000000)


def enter(init):
    """Puts this thread on the host of that process 1. Its children have their ids there; its own id stays."""
    libc = ctypes.CDLL(None, use_errno=True)

    def checked(result, what):
        if result != 0:
            raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")

    checked(libc.unshare(CLONE_FS), "unshare")
    process = os.pidfd_open(init)
    try:
        checked(libc.setns(process, CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET), "setns")
    finally:
        os.close(process)


def main():
    """Runs the tests of the program, or says why hosts can't be made here, which is a skip."""
    if reason := missing():
        print(reason)
        sys.exit(77)
    unittest.main(argv=sys.argv)

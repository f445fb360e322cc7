"""Launchers on hosts of hosts.py, as clusters have them. What they start ends with the hosts; the machine's own /etc is
not touched.
"""

import shlex
import subprocess
import sys

from hosts import path

SSHD = """
PidFile none
UsePAM no
StrictModes no
PermitRootLogin yes
PasswordAuthentication no
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
SetEnv PATH={path} XDG_RUNTIME_DIR=/run/user/0 {variables}
Subsystem sftp internal-sftp
"""
SSH = """
BatchMode yes
IdentityFile {folder}/user
UserKnownHostsFile {folder}/known
"""
SLURM = """
ClusterName=tests
SlurmctldHost=hub({hub})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmdSpoolDir=/var/spool/slurmd
StateSaveLocation=/var/spool/slurmctld
SlurmctldLogFile=/var/log/slurmctld.log
SlurmdLogFile=/var/log/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_min_interval=0
ReturnToService=2
MpiDefault=none
KillWait=30
SlurmdParameters=config_overrides
{nodes}
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
PartitionName=all Nodes={names} Default=YES MaxTime=60 State=UP PriorityTier=1 GraceTime=60
PartitionName=urgent Nodes={names} MaxTime=60 State=UP PriorityTier=2
"""


def missing(hosts, *programs):
    """Why a launcher can't run on these hosts; empty if it can."""
    gone = [each for each in programs if hosts.hub.run("sh", "-c", f"command -v {each} || true") == ""]
    return f"{', '.join(gone)} is missing: tests/hosts/packages.py gets it" if gone else ""


def write(host, file, text):
    """A file in the host's own /etc, /run or /var."""
    host.run("sh", "-c", 'mkdir -p "$(dirname "$1")" && cat > "$1"', "sh", file, input=text)


class Sshd:
    """An sshd on each host, with keys of its own. `ssh NAME` works on all of them for root, without a question."""
    programs = ("sshd", "ssh", "ssh-keygen")

    def __init__(self, hosts):
        folder = hosts.folder / "ssh"
        folder.mkdir()
        for key in ("host", "user"):
            hosts.hub.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key)
        known = (folder / "host.pub").read_text()
        (folder / "known").write_text("".join(f"{name},{host.address} {known}" for name, host in hosts.by_name.items()))
        self.daemons = {}
        for host in hosts.by_name.values():
            write(host, "/etc/ssh/ssh_config", SSH.format(folder=folder))
            write(host, "/etc/ssh/sshd_config", SSHD.format(
                folder=folder, path=path(), variables=" ".join(f"{name}={value}" for name, value in host.variables.items())))
            host.run("sh", "-c", "mkdir -m 755 -p /run/sshd; grep -q ^sshd: /etc/passwd ||"
                                 " echo 'sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin' >> /etc/passwd")
            self.start(host)

    def start(self, host):
        """A daemon, where there is none."""
        self.daemons[host.name] = daemon = host.start("/usr/sbin/sshd", "-D", "-e", stderr=subprocess.PIPE, text=True)
        said = ""
        while "Server listening" not in said:
            line = daemon.stderr.readline()
            assert line, f"sshd of {host.name} did not start: {said}"
            said += line

    @staticmethod
    def command(name, *command):
        return ["ssh", name, shlex.join(map(str, command))]


class Slurm:
    """slurmctld on the hub, a slurmd on each other host, munged on all. The names of hosts have to resolve."""
    programs = ("slurmctld", "slurmd", "munged", "srun")

    def __init__(self, hosts):
        names = [host.name for host in hosts]
        nodes = [f"NodeName={host.name} NodeAddr={host.address} CPUs=8 RealMemory=1000 State=UNKNOWN" for host in hosts]
        configuration = SLURM.format(hub=hosts.hub.address, names=",".join(names), nodes="\n".join(nodes))
        key = hosts.folder / "munge.key"
        hosts.hub.run("sh", "-c", "umask 077; head -c 64 /dev/urandom > \"$1\"", "sh", key)
        for host in hosts.by_name.values():
            write(host, "/etc/slurm/slurm.conf", configuration)
            host.run("sh", "-ec", """
                mkdir -p /etc/munge /run/munge /var/lib/munge /var/log/munge /var/spool/slurmctld /var/spool/slurmd
                chmod 700 /etc/munge /var/lib/munge /var/log/munge
                chmod 755 /run/munge
                chown -R root: /etc/munge /run/munge /var/lib/munge /var/log/munge
                cp "$1" /etc/munge/munge.key
                munged --force >> /var/log/munge/said 2>&1""", "sh", key)
        hosts.hub.run("slurmctld")
        for host in hosts:
            host.run("slurmd")
        hosts.hub.run("srun", f"-N{len(names)}", "true")  # waits until slurmctld knows all of them


class OpenMpi:
    """mpirun from any host, over ssh."""
    programs = ("mpirun", *Sshd.programs)

    def __init__(self, hosts):
        """Needs an Sshd on the hosts, and nothing else."""

    @staticmethod
    def command(hosts, each, *command):
        """`each` ranks on each host."""
        network = f"{hosts.hub.address.rpartition('.')[0]}.0/24"
        slots = ",".join(f"{host.name}:{each}" for host in hosts)
        return ["mpirun", "--allow-run-as-root", "--bind-to", "none", "-H", slots,
                "--mca", "oob_tcp_if_include", network, "--mca", "btl_tcp_if_include", network, *command]


def torchrun(hosts, each, number=None):
    """torchrun's command for every host, `each` ranks on it. A host has its `number`, or the one that the rendezvous
    gives it."""
    names = [host.name for host in hosts]
    if number is None:
        meet = ["--rdzv_backend=c10d", f"--rdzv_endpoint={names[0]}:29500", "--rdzv_id=test"]
    else:
        meet = [f"--node_rank={number}", f"--master_addr={names[0]}", "--master_port=29500"]
    return [sys.executable, "-m", "torch.distributed.run", f"--nnodes={len(names)}", f"--nproc_per_node={each}", *meet]

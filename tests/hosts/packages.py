"""Debian packages that only tests of launchers need, unpacked into $XDG_CACHE_HOME/lockstep/test-environments
(~/.cache by default): 12 MB to get, 43 MB of disk. Nothing is installed: no service starts, no user is made, /etc stays
as it is. Hosts of these tests see the files in /usr, /etc and /var.

python3 packages.py    gets them if they are missing; exits with 77 where that can't be done
"""

import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

PACKAGES = ("munge", "nftables", "openmpi-bin", "openssh-client", "openssh-server", "slurm-wlm")
# What installing would make of them (update-alternatives).
LINKS = {"sbin/slurmctld": "slurmctld-wlm", "sbin/slurmd": "slurmd-wlm", "sbin/slurmstepd": "slurmstepd-wlm",
         "bin/mpirun": "mpirun.openmpi", "bin/mpiexec": "mpiexec.openmpi"}


def cached():
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    key = hashlib.sha256(repr((PACKAGES, LINKS)).encode()).hexdigest()[:12]
    return pathlib.Path(cache) / "lockstep" / "test-environments" / f"launchers-{key}"


def folder():
    """Where they are; empty if they have not been got."""
    return str(cached()) if (cached() / "ready").exists() else ""


def get(to):
    with tempfile.TemporaryDirectory() as archives:
        os.mkdir(f"{archives}/partial")
        subprocess.run(["apt-get", "install", "--download-only", "--no-install-recommends", "--reinstall", "--yes",
                        "-qq", "-o", f"Dir::Cache::archives={archives}/", "-o", "Debug::NoLocking=1", *PACKAGES],
                       check=True)
        for archive in pathlib.Path(archives).glob("*.deb"):
            subprocess.run(["dpkg", "-x", archive, to], check=True)
    for link, target in LINKS.items():
        if (to / "usr" / link).with_name(target).exists():
            (to / "usr" / link).symlink_to(target)
    for name in ("etc", "usr", "var"):
        (to / name).mkdir(exist_ok=True)


def main():
    to = cached()
    to.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{to}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several builds may test at the same time
        if (to / "ready").exists():
            return
        shutil.rmtree(to, ignore_errors=True)
        to.mkdir()
        try:
            get(to)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"Packages for tests of launchers can't be got: {error}\n"
                  f"They are {', '.join(PACKAGES)} of Debian 12. Is the network up? apt-get update may help.")
            sys.exit(77)
        (to / "ready").touch()


if __name__ == "__main__":
    main()

"""What only tests of launchers need, in $XDG_CACHE_HOME/lockstep/test-environments (~/.cache by default):
- Debian packages, unpacked: 12 MB to get, 43 MB of disk. Nothing is installed: no service starts, no user is made, /etc
  stays as it is. Hosts of these tests see the files in /usr, /etc and /var.
- Ray from PyPI, with what it needs, for the interpreter that runs this: 71 MB to get, 185 MB of disk.

python3 packages.py        gets Debian's if they are missing; exits with 77 where that can't be done
python3 packages.py ray    the same of Ray
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
RAY = "ray==2.49.2"


def cached(name, *contents):
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    key = hashlib.sha256(repr(contents).encode()).hexdigest()[:12]
    return pathlib.Path(cache) / "lockstep" / "test-environments" / f"{name}-{key}"


def cached_packages():
    return cached("launchers", PACKAGES, LINKS)


def cached_ray():
    return cached("ray", RAY, sys.version)


def ready(to):
    return str(to) if (to / "ready").exists() else ""


def folder():
    """Where Debian's are; empty if they have not been got."""
    return ready(cached_packages())


def ray_folder():
    """Where Ray is, for PYTHONPATH; empty if it has not been got."""
    return ready(cached_ray())


def get_packages(to):
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


def get_ray(to):
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile",
                    "--only-binary", ":all:", "--target", to, RAY], check=True)


def get_once(to, get, problem):
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
            print(problem.format(error))
            sys.exit(77)
        (to / "ready").touch()


def main():
    if sys.argv[1:] == ["ray"]:
        get_once(cached_ray(), get_ray, f"Ray can't be got: {{}}\nIt is {RAY} of PyPI, by pip of {sys.executable}. Is the "
                                        "network up?")
    else:
        get_once(cached_packages(), get_packages,
                 f"Packages for tests of launchers can't be got: {{}}\nThey are {', '.join(PACKAGES)} of Debian 12. Is the "
                 "network up? apt-get update may help.")


if __name__ == "__main__":
    main()

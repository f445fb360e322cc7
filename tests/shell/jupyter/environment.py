"""Python environments of the tests of the kernel: virtual environments with requirements-NAME.txt in
$XDG_CACHE_HOME/lockstep/test-environments (~/.cache by default), made once.

python3 environment.py NAME              makes it if it is missing
python3 environment.py NAME FILE ARGS    runs a script in it; fails where it is missing
"""
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys


def requirements(name):
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), f"requirements-{name}.txt")


def folder(name):
    with open(requirements(name), "rb") as file:
        text = file.read() + sys.version.encode()
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(cache, "lockstep", "test-environments",
                        f"jupyter-{name}-{hashlib.sha256(text).hexdigest()[:12]}")


def is_ready(path):
    return os.path.exists(os.path.join(path, "ready"))


def make(name):
    path = folder(name)
    if is_ready(path):
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several builds may test at the same time
        if is_ready(path):
            return
        shutil.rmtree(path, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", path], check=True)
        subprocess.run([os.path.join(path, "bin/python"), "-m", "pip", "install", "--quiet",
                        "--disable-pip-version-check", "--no-compile", "-r", requirements(name)], check=True)
        open(os.path.join(path, "ready"), "w").close()


def main():
    name = sys.argv[1]
    if len(sys.argv) == 2:
        try:
            make(name)
        except (OSError, subprocess.CalledProcessError) as error:
            sys.exit(f"The Python environment for tests of the kernel can't be made: {error}\n"
                     "It needs python3-venv (tools/setup installs it) and PyPI, once.")
        return
    path = folder(name)
    if not is_ready(path):
        sys.exit(f"There is no Python environment for tests of the kernel; python3 {__file__} {name} makes it.")
    python = os.path.join(path, "bin/python")
    os.execv(python, [python] + sys.argv[2:])


if __name__ == "__main__":
    main()

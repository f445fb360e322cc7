"""The Python environment of the tests of the kernel: a virtual environment with requirements.txt in
$XDG_CACHE_HOME/lockstep/test-environments (~/.cache by default), made once.

python3 environment.py              makes it if it is missing
python3 environment.py FILE ARGS    runs a script in it; fails where it is missing
"""
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys

REQUIREMENTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "requirements.txt")


def folder():
    with open(REQUIREMENTS, "rb") as file:
        text = file.read() + sys.version.encode()
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    name = "jupyter-" + hashlib.sha256(text).hexdigest()[:12]
    return os.path.join(cache, "lockstep", "test-environments", name)


def is_ready(path):
    return os.path.exists(os.path.join(path, "ready"))


def make():
    path = folder()
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
                        "--disable-pip-version-check", "-r", REQUIREMENTS], check=True)
        open(os.path.join(path, "ready"), "w").close()


def main():
    if len(sys.argv) == 1:
        try:
            make()
        except (OSError, subprocess.CalledProcessError) as error:
            sys.exit(f"The Python environment for tests of the kernel can't be made: {error}\n"
                     "It needs python3-venv (tools/setup installs it) and PyPI, once.")
        return
    path = folder()
    if not is_ready(path):
        sys.exit(f"There is no Python environment for tests of the kernel; python3 {__file__} makes it.")
    python = os.path.join(path, "bin/python")
    os.execv(python, [python] + sys.argv[1:])


if __name__ == "__main__":
    main()

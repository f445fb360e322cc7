"""A job that stops (jobs/prompt.py), and shells that attach to it."""

import json
import pathlib
import re
import signal
import subprocess
import tempfile
import threading

from ranks import HERE, LOCKSTEP, environment, launcher


class Job:
    """jobs/prompt.py, with a runtime folder of its own."""

    def __init__(self, mode, ranks=2, torchrun=False, copied=True, **more):
        self.temporary = tempfile.TemporaryDirectory(prefix="ls", dir="/tmp")  # a socket's path is short
        self.folder = pathlib.Path(self.temporary.name)
        # A rank that is ended by a signal says which of its threads was where.
        self.environment = environment(XDG_RUNTIME_DIR=str(self.folder), PYTHONFAULTHANDLER="1", **more)
        self.ranks = ranks
        command = [*launcher(ranks, torchrun, copied), str(HERE / "jobs" / "prompt.py"), str(self.folder), mode]
        self.process = subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, cwd=HERE / "jobs")
        self.output = ""
        self.changed = threading.Condition()
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            with self.changed:
                self.output += line
                self.changed.notify_all()
        with self.changed:
            self.output += "\nended\n"
            self.changed.notify_all()

    def wait_for(self, pattern, times=1):
        """Until that has been written so many times; fails where the job ends before."""
        with self.changed:
            self.changed.wait_for(lambda: len(re.findall(pattern, self.output)) >= times or "\nended\n" in self.output)
            assert len(re.findall(pattern, self.output)) >= times, self.output

    def attach(self, *arguments, text=None, code=0, **more):
        done = subprocess.run([LOCKSTEP, "attach", self.id(), *arguments], env={**self.environment, **more}, input=text,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == code, f"{done.returncode}\n{done.stdout}\n{self.output}"
        return done.stdout

    def id(self):
        """Jobs of others may run, too."""
        folders = list(self.folder.glob("lockstep/job-*"))
        return folders[0].name.removeprefix("job-") if folders else "none"

    def run_cells(self, *cells, code=0, options=()):
        """The events of a script of these cells."""
        script, events = self.folder / "cells.py", self.folder / "events"
        script.write_text("".join(f"# %%\n{cell}\n" for cell in cells))
        self.attach("--run", str(script), "--json", str(events), *options, code=code)
        return [json.loads(line) for line in events.read_text().splitlines()]

    def interrupt(self, cell, word):
        """Runs a cell with `attach --run`, and interrupts it when it has written `word`. Returns the exit
        code and the events after it."""
        script = self.folder / "cells.py"
        script.write_text(f"# %%\n{cell}\n")
        attached = subprocess.Popen([LOCKSTEP, "attach", self.id(), "--run", str(script), "--json", "-"],
                                    env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for line in attached.stdout:
            if word in line:
                break
        attached.send_signal(signal.SIGINT)
        rest = [json.loads(line) for line in attached.communicate()[0].splitlines()]
        return attached.returncode, rest

    def results(self):
        self.process.wait()
        self.reader.join()
        assert self.process.returncode == 0, self.output
        return [json.loads((self.folder / f"rank-{rank}.json").read_text()) for rank in range(self.ranks)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()
        self.temporary.cleanup()


def of(events, kind):
    return [each for each in events if each["event"] == kind]


def values(events):
    return [(each["ranks"], each["text"]) for each in of(events, "value")]

"""Kernels of Lockstep as frontends of Jupyter see them, with folders of their own."""
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../support"))
from waiting import LIMIT_S  # noqa: E402

SCRATCH = tempfile.TemporaryDirectory(prefix="ls-")  # short: sockets have their paths in it


def use_own_folders():
    """Nothing of these tests is seen by the user's Jupyter, and nothing of that by them. Before jupyter_client is
    imported."""
    for name in ("JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "XDG_STATE_HOME", "XDG_RUNTIME_DIR",
                 "IPYTHONDIR"):
        os.environ[name] = os.path.join(SCRATCH.name, name.lower())
        os.makedirs(os.environ[name], mode=0o700, exist_ok=True)
    os.environ["JUPYTER_PLATFORM_DIRS"] = "0"
    os.environ.pop("JUPYTER_PATH", None)


def install(lockstep, *options):
    subprocess.run([lockstep, "kernel", "install", *options], check=True, stdout=subprocess.DEVNULL)


class Kernel:
    """A running kernel with one frontend."""

    def __init__(self, name="lockstep", **environment):
        from jupyter_client.manager import KernelManager
        self.manager = KernelManager(kernel_name=name)
        self.manager.start_kernel(env=dict(os.environ, **environment), cwd="/")
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=LIMIT_S)

    @property
    def pid(self):
        return self.manager.provisioner.pid

    def close(self):
        self.client.stop_channels()
        if self.manager.is_alive():
            self.manager.shutdown_kernel(now=True)

    def run(self, code, **options):
        """The reply's content, and what was published in between without states."""
        return self.finish(self.client.execute(code, **options))

    def finish(self, request, published=None):
        published = published if published is not None else []
        while True:
            message = self.iopub()
            if message["parent_header"].get("msg_id") != request:
                continue
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                break
            if message["msg_type"] not in ("status", "execute_input"):
                published.append(message)
        return self.reply(request), published

    def iopub(self):
        try:
            return self.client.get_iopub_msg(timeout=LIMIT_S)
        except queue.Empty:
            raise AssertionError("nothing is published") from None

    def wait_for(self, request, condition):
        """Reads what is published until `condition` holds of a message under `request`."""
        while True:
            message = self.iopub()
            if message["parent_header"].get("msg_id") == request and condition(message):
                return message

    def reply(self, request):
        while True:
            message = self.client.get_shell_msg(timeout=LIMIT_S)
            if message["parent_header"].get("msg_id") == request:
                return message["content"]

    def ask(self, request):
        """The content of the reply to a request that was sent, whose states are read as well."""
        return self.finish(request)[0]

    def control(self, type_, content=None):
        """Asks on the control channel; the content of the reply."""
        message = self.client.session.msg(type_, content or {})
        self.client.control_channel.send(message)
        while True:
            reply = self.client.get_control_msg(timeout=LIMIT_S)
            if reply["parent_header"].get("msg_id") == message["header"]["msg_id"]:
                return reply["content"]

    def interrupt(self):
        return self.control("interrupt_request")


def text_of(published, name="stdout"):
    """What stands there in the end: streams, and the last text of displays that held output was shown in."""
    sign = " ┊ " if name == "stderr" else " │ "
    parts, displays = [], {}
    for message in published:
        content = message["content"]
        if message["msg_type"] == "stream" and content["name"] == name:
            parts.append(content["text"])
        elif message["msg_type"] in ("display_data", "update_display_data") and set(content["data"]) == {"text/plain"}:
            place = displays.setdefault(content["transient"].get("display_id"), len(parts))
            if place == len(parts):
                parts.append("")
            parts[place] = "".join(line + "\n" for line in content["data"]["text/plain"].splitlines() if sign in line)
    return "".join(parts)


def lines_by_rank(text, ranks=(0, 1)):
    """What each rank wrote: "0-1 │ a" is a line of both. Equal lines are merged only if they come in time."""
    lines = {rank: [] for rank in ranks}
    for line in text.splitlines():
        spec, _, words = line.partition(" │ " if " │ " in line else " ┊ ")
        for part in spec.strip().split(","):
            first, _, last = part.partition("-")
            for rank in range(int(first), int(last or first) + 1):
                lines[rank].append(words)
    return lines


def results_of(published):
    return [m["content"]["data"]["text/plain"] for m in published if m["msg_type"] == "execute_result"]


def kill(pid):
    os.kill(pid, signal.SIGKILL)


def spec(name="lockstep"):
    with open(os.path.join(os.environ["JUPYTER_DATA_DIR"], "kernels", name, "kernel.json")) as file:
        return json.load(file)

"""Copies of a process that has imported torch. Importing it takes most of the processor time of a small job; a copy has
it at once, and does what an interpreter would do that was started in its place:

    interpreter() SCRIPT ARGUMENT… or -c CODE; launch.py among the scripts

That program asks the process over a socket, hands its descriptors, variables and folder on, and ends as the copy does.
Signals go to the copy, which is killed when the program is. The copy is no child of it, so this is for tests to which
the parents of ranks and their command lines are nothing."""

import atexit
import faulthandler
import gc
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
HIGH = 500  # above the descriptors of any test, and below the usual limit of 1024
SIZE = struct.Struct("<I")
END = struct.Struct("<i")


# ---- In the test.

_server = None


def interpreter():
    """The path of a program that takes the arguments of an interpreter."""
    global _server
    if not _server:
        folder = tempfile.TemporaryDirectory(prefix="ls-", dir="/tmp")  # a socket's path is short
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"{folder.name}/torch")
        listener.listen(64)
        # Its standard input ends with the test. Frames of a file would be taken for those of the program.
        with open(__file__, encoding="utf-8") as file:
            server = [sys.executable, "-c", file.read(), "--serve", str(listener.fileno()), os.path.dirname(os.path.abspath(__file__))]
        process = subprocess.Popen(server, stdin=subprocess.PIPE,
                                   pass_fds=[listener.fileno()], start_new_session=True,
                                   env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"})
        listener.close()
        with open(f"{folder.name}/python", "w", encoding="utf-8") as program:
            program.write(f'#!/bin/sh\nexec {sys.executable} -I -S {__file__} {folder.name}/torch "$@"\n')
        os.chmod(program.name, 0o755)
        _server = (program.name, process, folder)

        def end():
            process.communicate()
            folder.cleanup()

        atexit.register(end)
    return _server[0]


# ---- In the program.


def ask(path, arguments):
    server = socket.socket(socket.AF_UNIX)
    descriptors = [each for each in map(int, os.listdir("/proc/self/fd")) if each != server.fileno() and is_open(each)]
    server.connect(path)
    order = json.dumps({"arguments": arguments, "folder": os.getcwd(), "variables": dict(os.environ),
                        "descriptors": descriptors}).encode()
    socket.send_fds(server, [SIZE.pack(len(order))], descriptors)
    server.sendall(order)
    copy = END.unpack(server.recv(END.size))[0]
    for each in FORWARDED:
        signal.signal(each, lambda number, _: os.kill(copy, number))
    end = server.recv(END.size)
    code = os.waitstatus_to_exitcode(END.unpack(end)[0]) if end else -signal.SIGKILL
    if code < 0:
        if -code in FORWARDED:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def is_open(descriptor):
    """The one that has listed them is not any more."""
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


# ---- In the process that has torch.


def serve(listener):
    import launch
    gc.disable()
    launch.import_torch()
    import torch._dynamo  # noqa: F401  2 s of processor time, in each rank that makes an optimizer or wraps a model
    gc.freeze()
    gc.enable()
    while listener in select.select([listener, 0], [], [])[0]:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            attend(connection)
        connection.close()
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass


def attend(connection):
    """Looks after one copy; does not return."""
    header, received, _, _ = socket.recv_fds(connection, SIZE.size, 250)
    order = b""
    while len(order) < SIZE.unpack(header)[0]:
        order += connection.recv(1 << 16)
    order = json.loads(order)
    copy = os.fork()
    if copy == 0:
        become(received, **order)
    for each in received:
        os.close(each)
    connection.sendall(END.pack(copy))
    end = os.pidfd_open(copy)
    if end not in select.select([connection, end], [], [])[0]:
        os.kill(copy, signal.SIGKILL)
    status = os.waitpid(copy, 0)[1]
    try:
        connection.sendall(END.pack(status))
    except OSError:
        pass  # the program was killed
    os._exit(0)


def become(received, arguments, folder, variables, descriptors):
    import launch
    moved = [os.dup2(each, HIGH + i) for i, each in enumerate(received)]
    os.closerange(0, HIGH)
    for each, number in zip(moved, descriptors):
        os.dup2(each, number)
    os.closerange(HIGH, HIGH + len(moved))
    paths = [set(filter(None, each.get("PYTHONPATH", "").split(":"))) for each in (os.environ, variables)]
    rest = [each for each in sys.path[1:] if each not in paths[0]]
    sys.path[1:] = [*filter(None, variables.get("PYTHONPATH", "").split(":")), *rest]
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    os.setpgid(0, 0)
    for each in FORWARDED:
        signal.signal(each, signal.SIG_DFL if each != signal.SIGINT else signal.default_int_handler)
    if "PYTHONFAULTHANDLER" in variables:
        faulthandler.enable()
    sys.path_importer_cache.clear()
    if arguments[0].endswith("launch.py"):
        sys.argv = arguments
        launch.main()
    elif arguments[0] == "-c":
        module = launch.main_module(["-c", *arguments[2:]], "")
        exec(compile(arguments[1], "<string>", "exec"), module.__dict__)
    else:
        launch.run_script(arguments[0], arguments[1:])
    sys.exit()


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        sys.path[0] = sys.argv[3]
        serve(socket.socket(fileno=int(sys.argv[2])))
    else:
        ask(sys.argv[1], sys.argv[2:])

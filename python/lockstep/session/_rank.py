"""A rank of a session: its process group, the names that cells find, and the prompt at which it waits for them."""

from __future__ import annotations

import atexit
import faulthandler
import json
import os
import signal
import sys
import traceback
import types
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from lockstep.core import _backend, _library
from lockstep.prompt import _capture, _frames, _magics
from lockstep.prompt._invitations import Invitation
from lockstep.session import _again, _members, _names, _preempt
from lockstep.session._prompt import SessionPrompt

SETTINGS = "LOCKSTEP_RANK_SETTINGS"
_SERVE = "__lockstep_serve__"


def run_as_told() -> NoReturn:
    """Runs the rank in a process that is no copy, by the settings in its environment."""
    run(json.loads(os.environ.pop(SETTINGS)))


def run(settings: dict[str, Any]) -> NoReturn:
    """Runs the rank until the session ends, and ends the process. `settings`: shell/jobs/python_ranks.cpp."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _preempt.outlive_slurm_signals()
        os.environ.update(settings["environment"])
        # No rank has windows, and the backend of an IPython kernel that has started the session draws nothing here.
        if "inline" in os.environ.get("MPLBACKEND", "inline"):
            os.environ["MPLBACKEND"] = "Agg"
        torch.set_num_threads(settings["threads"])
        _names.seed_afresh()
        if settings["device"] != "cpu":
            torch.cuda.set_device(settings["device"])
        _backend.label_of_world = "default"
        _backend.numbers_in_session, _backend.is_loopback = settings["world_size"], settings["loopback"]
        if settings["generation"] > 0:
            _backend.rejoining["loopback"] = settings["loopback"]
        _again.watch_wrappers()
        dist.init_process_group(settings["backend"])
        _members.begin(settings["threads"], settings["has_grown"])
        faulthandler.enable(all_threads=False)
        _library.call("write_frames_of_crashes")
        _capture.channels = [(settings["output"][i], settings["output"][i + 1]) for i in (0, 3)]
        if "PYTHONBREAKPOINT" not in os.environ:
            sys.breakpointhook = _pass_breakpoint
        _sit_at_prompt(settings)
        code = 0
    except BaseException:
        traceback.print_exc()
    _end(code)


def _sit_at_prompt(settings: dict[str, Any]) -> None:
    """Serves the prompt. Cells run in the module __main__, as in an interpreter: what they define can be pickled."""
    main = types.ModuleType("__main__")
    main.__dict__.update(_names.of_cells(settings))
    _magics.initial = {*main.__dict__, "display", _SERVE}
    sys.modules["__main__"] = main
    sys.argv = [""]

    def serve() -> None:
        frames = _frames.Frames(sys._getframe(1))
        prompt = SessionPrompt(Invitation(settings["hub"], settings["identity"]), settings["rank"], frames)
        names["display"] = prompt.display
        prompt.run()

    names = main.__dict__
    names[_SERVE] = serve
    exec(compile(f"{_SERVE}()", "<session>", "exec"), names)


def _pass_breakpoint(*_: Any, **__: Any) -> None:
    """Takes the place of Python's breakpoint(): pdb would read from a person, and a cell has no input."""
    sys.stderr.write("breakpoint() is passed over: a cell has no input; after an exception, %debug shows its frames\n")


def _end(code: int) -> NoReturn:
    """Ends the process as an interpreter ends, except for what waits for other ranks."""
    try:
        atexit._run_exitfuncs()
        _capture.flush()
    finally:
        os._exit(code)

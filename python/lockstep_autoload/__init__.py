"""What `import torch` calls in every process (the entry point group "torch.backends"): in a rank of a job that
`lockstep run -- …` watches, it starts the agent through which that asks what the rank is doing. Elsewhere it does nothing.

A package of its own, without imports: `import torch` fails if an entry point raises, also while it is loaded.
"""

import os
import sys

__all__ = ["start"]

_RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMI_RANK")
_LAUNCHERS = ("torchrun", "accelerate", "accelerate-launch", "deepspeed")
_LAUNCHER_MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.", "deepspeed.launcher.")


def _is_launcher() -> bool:
    """By its command line, since the variables of a Slurm step or of another launcher make it look like a rank."""
    words = iter(sys.orig_argv[1:])
    for word in words:  # Python's own options, up to the program
        if not word.startswith("-") or word.startswith("-c"):
            break
        if word in ("-X", "-W", "--check-hash-based-pycs"):
            next(words, None)
        elif not word.startswith("--") and "m" in word and not word.startswith(("-X", "-W")):  # -m MODULE, -um MODULE
            return (word.partition("m")[2] or next(words, "")).startswith(_LAUNCHER_MODULES)
    return os.path.basename(sys.argv[0]) in _LAUNCHERS


def _is_rank() -> bool:
    # Launchers import torch, too, and so do the workers of data loaders that are spawned.
    if not any(each in os.environ for each in _RANK_VARIABLES) or "--multiprocessing-fork" in sys.argv:
        return False
    return not _is_launcher()


def start() -> None:
    """Never raises."""
    if not os.environ.get("LOCKSTEP_JOB"):
        return
    try:
        if not _is_rank():
            return
        try:
            from lockstep import _agent
        except ModuleNotFoundError as error:
            # `lockstep run` names the package that lies beside it; one that is installed comes first.
            beside = os.environ.get("LOCKSTEP_PACKAGE")
            if error.name != "lockstep" or not beside:
                raise
            sys.path.append(beside)
            from lockstep import _agent
        problem = _agent.start(only_with_launcher=True)
        if not problem:
            from lockstep import _backend

            _backend.hook_groups()
        # A program that a rank starts has the rank's variables, and is none.
        if problem and not problem.startswith("another process"):
            print(f"lockstep: this rank is not watched: {problem}", file=sys.stderr)
    except Exception as error:
        try:
            print(f"lockstep: this rank is not watched: {error}", file=sys.stderr)
        except Exception:
            pass  # without a standard error there is nobody to say it to

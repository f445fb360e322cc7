"""What `import torch` calls in every process (the entry point group "torch.backends"): in a rank of a job that
`lockstep run -- …` watches, it starts the agent through which that asks what the rank is doing. Elsewhere it does nothing.

A package of its own, without imports: `import torch` fails if an entry point raises, also while it is loaded.
"""

import os
import sys

__all__ = ["start"]

_RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMI_RANK")


def _is_rank() -> bool:
    # Launchers import torch, too, and so do the workers of data loaders that are spawned.
    return any(each in os.environ for each in _RANK_VARIABLES) and "--multiprocessing-fork" not in sys.argv


def start() -> None:
    """Never raises."""
    if not os.environ.get("LOCKSTEP_JOB") or not _is_rank():
        return
    try:
        try:
            from lockstep import _agent
        except ModuleNotFoundError as error:
            # `lockstep run` names the package that lies beside it; one that is installed comes first.
            beside = os.environ.get("LOCKSTEP_PACKAGE")
            if error.name != "lockstep" or not beside:
                raise
            sys.path.append(beside)
            from lockstep import _agent
        _agent.start(only_with_launcher=True)
    except Exception as error:
        try:
            print(f"lockstep: this rank is not watched: {error}", file=sys.stderr)
        except Exception:
            pass  # without a standard error there is nobody to say it to

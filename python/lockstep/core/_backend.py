"""The backend `lockstep` of torch.distributed: shared memory or Gloo for CPU tensors and NCCL for CUDA tensors, with a
log of every collective and a comparison of the ranks' calls before data moves (python/operators/job_backend.h)."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from typing import Any, Iterator

import torch
import torch.distributed as dist

from lockstep.core import _library

NAME = "lockstep"
_boxes = itertools.count(1)
_options: dict[str, tuple[Any, Any]] = {}  # by the name of a group: what it was made with
label_of_world = ""  # what logs and errors call the default group; empty: as c10d does
numbers: list[int] = []
"""The numbers that the ranks of the default group have in a session of more ranks, in their order. Logs, errors and
connections go by these. Empty: they are the ranks of the default group."""
numbers_in_session = 0  # how many ranks the session has
is_loopback = False  # whether all ranks of the session are on this machine
rejoining: dict[str, Any] = {}
"""Set in a process that replaces a lost rank, until its first reconnect(): "loopback" is whether all ranks are on this
machine. The groups that it makes exist on the other ranks already; that call connects them."""


class _Plugins(dict):  # type: ignore[type-arg]
    """torch's table of backends that were registered. torch 2.11 to 2.13 choose no default backend for a group such as
    "cpu:gloo" once the table lists anything; so this one is found there, and not listed."""

    def __init__(self, plugins: dict[str, Any], hidden: Any) -> None:
        super().__init__(plugins)
        self._hidden = hidden

    def __contains__(self, name: object) -> bool:
        return name == NAME.upper() or super().__contains__(name)

    def __missing__(self, name: str) -> Any:
        if name == NAME.upper():
            return self._hidden
        raise KeyError(name)


def register() -> None:
    """Makes init_process_group("lockstep") and "cpu:lockstep,cuda:lockstep" work; no other backend changes. Once."""
    if not dist.is_available() or hasattr(dist.Backend, NAME.upper()):
        return
    dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])
    plugins = dist.Backend._plugins
    dist.Backend._plugins = _Plugins({key: each for key, each in plugins.items() if key != NAME.upper()},
                                     plugins[NAME.upper()])


def hook_groups() -> None:
    """Lets c10d's hooks log the groups of other backends and compare their calls (python/operators/job_hooks.h), in a
    job that `lockstep run` watches, with torch 2.14 or newer. Further calls have no effect."""
    from torch.distributed import distributed_c10d

    module: Any = distributed_c10d
    if not hasattr(dist.ProcessGroup, "register_pre_hook") or hasattr(module, "_lockstep_hooks"):
        return
    register_group = module._register_process_group  # called for each group, when it is complete

    def register_and_hook(name: str, group: Any) -> None:
        register_group(name, group)
        try:
            _hook(name, group)
        except Exception as error:  # the job runs as without Lockstep
            print(f"lockstep: the collectives of process group {name} are not logged: {error}", file=sys.stderr)

    module._lockstep_hooks = True
    module._register_process_group = register_and_hook


def _hook(name: str, group: Any) -> None:
    backend = group._get_backend(group._device_types[0])
    while hasattr(backend, "wrapped_pg"):  # TORCH_DISTRIBUTED_DEBUG=DETAIL
        backend = backend.wrapped_pg
    if backend.name() == NAME:
        return
    given = list(backend.options.global_ranks_in_group)
    ranks = given or list(range(group.size()))
    _library.call(
        "hook_group",
        group=str(name),
        rank=group.rank(),
        ranks=ranks,
        global_rank=ranks[group.rank()],
        world_size=dist.get_world_size() if given and dist.is_initialized() else group.size(),
        timeout=backend.options._timeout.total_seconds(),
        check=_checks(),
    )


def _checks() -> bool:
    return os.environ.get("LOCKSTEP_CHECK_COLLECTIVES", "1") != "0"


def _cuda_transport(options: Any, backend_options: Any, generation: int = 0) -> Any:
    """The NCCL group that init_process_group would make; None without NCCL: Gloo takes CUDA tensors, too."""
    if not torch.cuda.is_available() or not dist.is_nccl_available() or "LOCKSTEP_REPLAY" in os.environ:
        return None
    given = backend_options
    if given is None:
        given = dist.ProcessGroupNCCL.Options()
    elif not isinstance(given, dist.ProcessGroupNCCL.Options):
        raise TypeError(f"pg_options of the backend {NAME} are ProcessGroupNCCL.Options, not {type(given).__name__}")
    given._timeout = options.timeout
    given.global_ranks_in_group = options.global_ranks_in_group
    given.group_name = options.group_id
    store = _c10d().PrefixStore(f"nccl-{generation}/", options.store)
    transport = dist.ProcessGroupNCCL(store, options.group_rank, options.group_size, given)
    transport._set_sequence_number_for_group()
    return transport


def _c10d() -> Any:
    """c10d's classes and functions of Python, which torch.distributed exports in part."""
    from torch._C import _distributed_c10d

    return _distributed_c10d


@contextlib.contextmanager
def _box(options: Any, cuda: Any) -> Iterator[tuple[str, Any]]:
    """A process group, and its name in c10d's registry, in which the library takes `cuda` and leaves what it makes."""
    c10d = _c10d()
    box = dist.ProcessGroup(options.store, int(options.group_rank), options.group_size)
    if cuda is not None:
        box._register_backend(torch.device("cuda"), dist.ProcessGroup.BackendType.NCCL, cuda)
    name = f"lockstep-box-{os.getpid()}-{next(_boxes)}"
    c10d._register_process_group(name, box)
    try:
        yield name, box
    finally:
        c10d._unregister_process_group(name)


def _create(options: Any, backend_options: Any) -> Any:
    """Called by torch.distributed for each process group, on its ranks."""
    ranks = list(options.global_ranks_in_group) or list(range(options.group_size))
    whole = not options.global_ranks_in_group
    if numbers:
        ranks = [numbers[each] for each in ranks]
    group_rank = int(options.group_rank)
    group = str(options.group_id)
    cuda = _cuda_transport(options, backend_options)
    with _box(options, cuda) as (name, box):
        _library.call(
            "make_job_backend",
            box=name,
            group=group,
            label=(whole and label_of_world) or group,
            rank=group_rank,
            ranks=ranks,
            global_rank=ranks[group_rank],
            world_size=numbers_in_session if numbers else options.group_size if whole else dist.get_world_size(),
            timeout=options.timeout.total_seconds(),
            cuda=cuda is not None,
            check=_checks(),
            connects=not rejoining and not (whole and numbers),
            loopback=rejoining.get("loopback", is_loopback),
        )
    _options[group] = (options, backend_options)
    return box._get_backend(torch.device("cpu"))


def resize(size: int, backend: str) -> None:
    """Follows a session that has `size` ranks now, whose tensors on the CPU go by `backend` in groups that follow."""
    global numbers_in_session
    numbers_in_session = size
    if backend and "LOCKSTEP_BACKEND" in os.environ:
        os.environ["LOCKSTEP_BACKEND"] = backend
    if "LOCAL_WORLD_SIZE" in os.environ:
        os.environ["LOCAL_WORLD_SIZE"] = str(size)
    _library.call("resize_job", world_size=size)


def aborts() -> int:
    """How often the groups of this rank were aborted."""
    return int(_library.call("job_aborts")["count"])


def reconnect(generation: int, live: list[int], timeout: float, aborts: int) -> None:
    """Gives all groups of this rank new connections, except groups with a rank that is not among `live`: using these
    raises. Collective over the live ranks. `generation`: a number that no earlier call had; `aborts`: what aborts() was
    when the call was asked for, since an abort that comes later ends it."""
    compared = _library.call("compare_job_groups", generation=generation, live=live, timeout=timeout, aborts=aborts,
                             is_fresh=bool(rejoining))
    missing = compared["missing"]
    if compared["fresh"]:
        _library.call("detach", generation=generation)  # inspectors have to meet anew
    # A process that replaces a lost rank has made them in another order.
    for group in sorted(_library.call("job_groups")["groups"]):
        options, backend_options = _options[group]
        cuda = _cuda_transport(options, backend_options, generation)
        with _box(options, cuda) as (name, _):
            _library.call("reconnect_job_backend", box=name, group=group, generation=generation, live=live,
                          without=missing.get(group, []), cuda=cuda is not None, timeout=timeout, aborts=aborts)
    _library.call("end_job_abort", aborts=aborts)
    rejoining.clear()

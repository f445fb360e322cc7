"""Which ranks are the default group. After `%dist_continue` these are the ranks that live, numbered anew in their
order, and a rank that `%restart` brings back is among them again. torch.distributed can't number a group anew, so there
is a default group for each set of ranks; groups that lost no rank stay. After `%dist_init -n M` there may be more ranks
than at the start; the first group stands for no set of ranks then."""

from __future__ import annotations

import gc
import os
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from lockstep.core import _backend
from lockstep.core.errors import LockstepError
from lockstep.session import _restore, _state, _wrappers
from lockstep.subject import _describe

_Members = tuple[int, ...]  # as the session numbers them

_default_groups: dict[_Members, Any] = {}  # those made so far; the first has all ranks of the start
_threads = 0  # that the session has given this rank


class _Report:
    """The objects that go on with the ranks that are left, and those that do not. The same on all ranks."""

    def __init__(self, title: str, lines: list[str]) -> None:
        self.title = title
        self.lines = lines

    def __repr__(self) -> str:
        return "\n".join([self.title, *(f"  {each}" for each in self.lines)])


def begin(threads: int, has_grown: bool) -> None:
    """Called when the first group has been made. `has_grown`: the session had another size at its start."""
    global _threads
    _threads = threads
    if has_grown:
        _retire_first_group()


def follow_size(size: int, backend: str, threads: int) -> None:
    """Follows a session that has `size` ranks now, before follow(). 0: it has as many as at its start. Local."""
    global _threads
    if size <= _backend.numbers_in_session:
        return
    _backend.numbers = _backend.numbers or list(_current())
    _retire_first_group()
    _backend.resize(size, backend)
    if torch.get_num_threads() == _threads:  # a cell has not chosen another number
        torch.set_num_threads(threads)
        _threads = threads


def _retire_first_group() -> None:
    """Lets the group with which this process began stand for no set of ranks: it has another size in other processes."""
    first = next(iter(_default_groups.values()), dist.group.WORLD)
    others = {key: each for key, each in _default_groups.items() if each is not first}
    _default_groups.clear()
    _default_groups.update({(): first} | others)


def follow(members: list[int]) -> None:
    """Makes these ranks of the session, of which this is one, the default group from the next reconnect() on; none: it
    stays as it is. Local: all ranks of the session that live make the same call."""
    before, now = _current(), tuple(members)
    world: Any = distributed_c10d._world
    group = dist.group.WORLD
    key = next((key for key, each in _default_groups.items() if each is group), before)
    if not members or now == key:
        return
    if _default_groups.setdefault(key, group) is not group:
        raise LockstepError("a cell has made the default group anew: %dist_reset starts all ranks afresh")
    first = next(iter(_default_groups.values()))
    if world.pg_names[first] not in _backend._options:
        raise LockstepError(f"a default group of the backend {dist.get_backend(first)} can't be of other ranks: %dist_reset "
                            "starts all ranks afresh")
    me = before[dist.get_rank()]
    ranks_of = {each: [_in_session(rank, before) for rank in ranks] for each, ranks in world.pg_group_ranks.items()}
    made = _default_groups.get(now)
    _backend.numbers = [] if made is first else list(now)
    if made is None:
        made = _default_groups[now] = _make(now, me, first)
        ranks_of[made] = list(now)
    for each, ranks in ranks_of.items():
        world.pg_group_ranks[each] = {_in_default_group(rank, now): i for i, rank in enumerate(ranks)}
    # The names of new groups count these: those that all ranks have made, and one more where not all are the default group.
    for those, each in _default_groups.items():
        if those == now or each is first:
            world.pg_names[each] = each.group_name
        else:
            world.pg_names.pop(each, None)
    distributed_c10d._update_default_pg(made)
    _renumber(dist.get_rank(), len(now), before=(before.index(me), len(before)))
    _move_objects(group, made)


def run() -> _Report:
    """Brings wrappers in step, and returns what has followed. Collective over the default group."""
    names = sys.modules["__main__"].__dict__
    size = dist.get_world_size()
    wrappers, again = _restore.align_wrappers(names, [], None)
    aligned = [each.partition(":")[0] for each in wrappers]
    lines = [f"{name}: its next forward is over {size} rank{'' if size == 1 else 's'}, and its gradients are means over these"
             for name in aligned if names[name].process_group is dist.group.WORLD]
    for name, value in _state.values(names):
        for sampler in _samplers_of(value):
            whose, what = ("its", "it") if sampler is value else ("its sampler's", "both")
            if misfit := _misfit_of(sampler):
                lines.append(f"not {name}: {whose} {misfit}; make {what} again")
        if name in again:
            lines.append(f"not {name}: {again[name]}; make it again")
        elif isinstance(value, dist.ProcessGroup) and (lost := _lost_of(value)):
            lines.append(f"not {name}: the group needs {_state.words(lost)}; make it again")
        elif (wrapper := _describe.wrapper_of(value)) is not None and (lost := _lost_of(wrapper.process_group)):
            lines.append(f"not {name}: its group needs {_state.words(lost)}; make both again")
    everything = _state.gather(lines)
    return _Report(f"over {_state.words(list(_current()))}:", list(dict.fromkeys(line for each in everything for line in each)))


def _current() -> _Members:
    return tuple(_backend.numbers or range(_backend.numbers_in_session))


def _in_session(rank: int, members: _Members) -> int:
    return members[rank] if rank >= 0 else -1 - rank


def _in_default_group(rank: int, members: _Members) -> int:
    """The rank in the default group; a number below 0, which no call can name, for a rank that is not in it."""
    return members.index(rank) if rank in members else -1 - rank


def _samplers_of(value: Any) -> list[DistributedSampler[Any]]:
    """The sampler that `value` is, or those that it has as a loader."""
    found = [value]
    if isinstance(value, DataLoader):
        found = [value.sampler, getattr(value.batch_sampler, "sampler", None)]
    return list({id(each): each for each in found if isinstance(each, DistributedSampler)}.values())


def _misfit_of(sampler: DistributedSampler[Any]) -> str:
    """Why the share of the sampler is not that of this rank; empty if it is."""
    if sampler.num_replicas != dist.get_world_size():
        return f"shares are of {sampler.num_replicas} rank{'' if sampler.num_replicas == 1 else 's'}"
    return "" if sampler.rank == dist.get_rank() else "share is that of another rank"


def _lost_of(group: Any) -> list[int]:
    """The lost ranks of a group, as the session numbers them."""
    return sorted(-1 - each for each in distributed_c10d._world.pg_group_ranks.get(group, {}) if each < 0)


def _make(members: _Members, me: int, first: Any) -> Any:
    """Makes a group in the store of the group of all ranks, without connections yet."""
    world: Any = distributed_c10d._world
    name, (backend, store) = world.pg_names[first], world.pg_map[first]
    options, backend_options = _backend._options[name]
    _backend.label_of_world = f"default of {_state.words(list(members))}"
    group, _ = distributed_c10d._new_process_group_helper(
        len(members), members.index(me), [], backend, store, f"{name}-of-{'-'.join(map(str, members))}",  # type: ignore[arg-type]
        backend_options=backend_options, timeout=options.timeout, group_desc="default_pg")
    # Later groups meet in the store of the first one: it is the default group of a rank that makes them again.
    world.pg_map[group] = (world.pg_map[group][0], store)
    return group


def _renumber(rank: int, size: int, before: tuple[int, int]) -> None:
    """Sets the numbers that cells and libraries read. A name that a cell has given another value stays."""
    names = sys.modules["__main__"].__dict__
    for name, was, now in (("rank", before[0], rank), ("world_size", before[1], size)):
        if type(names.get(name)) is int and names[name] == was:
            names[name] = now
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size))


def _move_objects(before: Any, now: Any) -> None:
    """Replaces the default group in objects that hold it."""
    names = sys.modules["__main__"].__dict__
    _wrappers.failures.clear()
    for name, value in _state.values(names):
        if value is before:
            names[name] = now
    for each in gc.get_objects():  # in containers and attributes, too
        if issubclass(type(each), DistributedDataParallel) and getattr(each, "process_group", None) is before:
            try:
                _wrappers.move(each, before, now)
            except Exception as error:  # the others have to go on
                _wrappers.failures[id(each)] = f"{type(error).__name__}: {error}"
        elif issubclass(type(each), torch.nn.SyncBatchNorm) and each.process_group is before:
            each.process_group = now

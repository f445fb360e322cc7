"""The samples that a rank reads in an epoch, in order: from a loader, a sampler, or indices. Reading them changes
neither random numbers nor the attributes of the sampler. What a sampler changes inside of its attributes, other than
generators of random numbers, stays changed."""

from __future__ import annotations

import contextlib
import functools
import random
import sys
from dataclasses import dataclass
from typing import Any, Callable, Iterator

import torch

from lockstep.core.errors import ArgumentError

_MOST = 1 << 26  # samples of a sampler whose dataset has no length


@dataclass
class Samples:
    samples: list[int]
    batches: list[int] | None = None
    """Their sizes, if the object has batches."""
    epoch: int | None = None
    """Of a sampler with set_epoch."""
    of_epoch: Callable[[int], list[int]] | None = None
    size: int | None = None
    """Of the dataset, where the object knows it."""
    batch_size: int | None = None
    worker_seed: int | None = None
    """Of a loader with workers, unless a function of the program seeds them."""


def _generators(value: Any) -> Iterator[torch.Generator]:
    """Generators that a loader or a sampler draws from."""
    seen: set[int] = set()
    left = [value]
    while left:
        each = left.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        generator = getattr(each, "generator", None)
        if isinstance(generator, torch.Generator):
            yield generator
        left += [getattr(each, name, None) for name in ("sampler", "batch_sampler")]


def _readers(value: Any) -> list[Any]:
    """The loader or sampler, and the samplers that it reads from, where these have attributes."""
    found: list[Any] = []
    left = [value]
    while left:
        each = left.pop()
        if each is None or any(each is one for one in found):
            continue
        found.append(each)
        left += [getattr(each, name, None) for name in ("sampler", "batch_sampler")]
    return [each for each in found if hasattr(each, "__dict__")]


def _draws(value: Any) -> list[Callable[[], None]]:
    """Functions that set the generators of Python and NumPy among the attributes of `value` back to their states."""
    restorers: list[Callable[[], None]] = []
    numpy = sys.modules.get("numpy")
    for each in vars(value).values():
        if isinstance(each, random.Random):
            restorers.append(functools.partial(each.setstate, each.getstate()))
        elif numpy is not None and isinstance(each, numpy.random.RandomState):
            restorers.append(functools.partial(each.set_state, each.get_state()))
        elif numpy is not None and isinstance(each, numpy.random.Generator):
            restorers.append(functools.partial(setattr, each.bit_generator, "state", each.bit_generator.state))
    return restorers


@contextlib.contextmanager
def _unchanged(value: Any) -> Iterator[None]:
    state = torch.get_rng_state()
    python = random.getstate()
    numpy = sys.modules.get("numpy")
    of_numpy = numpy.random.get_state() if numpy is not None else None
    own = [(each, each.get_state()) for each in _generators(value)]
    attributes = [(vars(each), dict(vars(each)), _draws(each)) for each in _readers(value)]
    try:
        yield
    finally:
        for now, kept, draws in attributes:
            now.clear()
            now.update(kept)
            for restore in draws:
                restore()
        torch.set_rng_state(state)
        random.setstate(python)
        if numpy is not None:
            numpy.random.set_state(of_numpy)
        for each, before in own:
            each.set_state(before)


def _read(value: Any, samples: list[int], batches: list[int], size: int | None) -> bool:
    """Appends what `value` gives; returns whether it gives batches. `size` is that of the dataset."""
    in_batches = False
    most = _MOST if size is None else max(1 << 20, 4 * size)  # samplers may repeat samples
    for each in value:
        if isinstance(each, torch.Tensor):
            each = each.tolist()
        if isinstance(each, (list, tuple)) or hasattr(each, "__iter__"):
            in_batches = True
            batch = [_index(one) for one in each]
            samples += batch
            batches.append(len(batch))
        else:
            samples.append(_index(each))
        if len(samples) > most:
            raise ArgumentError(f"data: the sampler gave more than {most} samples, and goes on")
    return in_batches


def _index(value: Any) -> int:
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.item()
    try:
        if isinstance(value, bool):
            raise TypeError
        return int(value.__index__())
    except (AttributeError, TypeError):
        raise ArgumentError(
            f"data: {value!r} is no index of a sample. data takes a DataLoader, a sampler, or the indices that this "
            "rank reads"
        ) from None


def _epoch_holder(value: Any) -> Any:
    """The sampler that has set_epoch, if there is one."""
    of_batches = getattr(getattr(value, "batch_sampler", None), "sampler", None)
    for each in (value, getattr(value, "sampler", None), of_batches):
        if callable(getattr(each, "set_epoch", None)) and isinstance(getattr(each, "epoch", None), int):
            return each
    return None


def _length(value: Any) -> int | None:
    for name in ("dataset", "data_source"):
        holder: Any = value
        while holder is not None:
            dataset = getattr(holder, name, None)
            if dataset is not None:
                try:
                    return len(dataset)
                except TypeError:
                    return None
            holder = getattr(holder, "sampler", None)
    return None


def _worker_seed(value: Any) -> int | None:
    """The seed that a loader draws at the beginning of an epoch, to which each worker adds its number."""
    if not isinstance(value, torch.utils.data.DataLoader) or not value.num_workers or value.worker_init_fn is not None:
        return None
    with _unchanged(value):
        return int(torch.empty((), dtype=torch.int64).random_(generator=value.generator).item())


def read(value: Any) -> Samples:
    """Reads the order of this rank. Local."""
    if isinstance(value, torch.Tensor):
        if value.is_floating_point() or value.is_complex() or value.dtype == torch.bool:
            raise ArgumentError(f"data: a tensor of {value.dtype} has no indices of samples")
        if value.dim() not in (1, 2):
            raise ArgumentError("data: indices have one dimension, or a row for each batch; this is "
                                f"{list(value.shape)}")
        rows = value.tolist()
        return Samples([each for row in rows for each in row], [len(row) for row in rows]) if value.dim() == 2 else \
            Samples(rows)
    source = value
    if isinstance(value, torch.utils.data.DataLoader):
        source = value.batch_sampler if value.batch_sampler is not None else value.sampler
        if isinstance(value.dataset, torch.utils.data.IterableDataset):
            raise ArgumentError("data: an IterableDataset has no indices. Pass the indices that this rank reads, as a "
                                "list")

    def order() -> tuple[list[int], list[int] | None]:
        samples: list[int] = []
        batches: list[int] = []
        with _unchanged(value):  # a sampler may draw when it is asked for its iterator
            try:
                iterator = iter(source)
            except TypeError:
                raise ArgumentError(
                    f"data: can't read indices from a {type(value).__name__}. data takes a DataLoader, a sampler, or "
                    "the indices that this rank reads"
                ) from None
            if iterator is source:
                raise ArgumentError("data: an iterator is used up by reading it. Pass what it iterates over")
            in_batches = _read(iterator, samples, batches, _length(value))
        return samples, batches if in_batches else None

    samples, batches = order()
    batch_size = getattr(value, "batch_size", None)
    result = Samples(samples, batches, size=_length(value), worker_seed=_worker_seed(value))
    if isinstance(batch_size, int):
        result.batch_size = batch_size
    holder = _epoch_holder(value)
    if holder is not None:
        result.epoch = holder.epoch

        def of_epoch(epoch: int) -> list[int]:
            before = holder.epoch
            holder.set_epoch(epoch)
            try:
                return order()[0]
            finally:
                holder.set_epoch(before)

        result.of_epoch = of_epoch
    return result

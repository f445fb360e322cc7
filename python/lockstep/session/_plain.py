"""Values of cells in a form that torch.load(weights_only=True) reads, which runs no code of a file: numbers, strings, dense
tensors, arrays of NumPy, and lists, tuples, dictionaries, sets and deques of these. What has no such form in torch is a
dictionary that says its kind: {"lockstep": "tuple", …}."""

from __future__ import annotations

import collections
import sys
from typing import Any, Callable

import torch

_KIND = "lockstep"  # the key that says the kind
_AS_THEY_ARE = (type(None), bool, float, str, complex, torch.dtype)
_AS_KEYS = (type(None), bool, int, float, str)
_BYTES = (bytes, bytearray)
_SETS = (set, frozenset)
_SEQUENCES = (list, tuple, collections.deque, torch.Size)
_DICTIONARIES = (dict, collections.OrderedDict, collections.Counter, collections.defaultdict)
_FACTORIES: dict[str, type] = {each.__name__: each for each in (int, float, bool, str, list, dict, set)}  # of a defaultdict
_ARRAYS = "?biufcSUmM"  # kinds of NumPy's types whose bytes are the value
_DEEPEST = 100
_MOST_BITS = 2000  # torch reads no larger numbers


class Unfit(Exception):
    """A value that can't be written, or read into what is there; with the reason."""


def is_value(value: Any) -> bool:
    """Whether it is of a type that is written; what it holds may be of others."""
    return isinstance(value, torch.Tensor) or type(value) in (
        *_AS_THEY_ARE, int, torch.device, *_BYTES, *_SETS, *_SEQUENCES, *_DICTIONARIES) or _is_of_numpy(value)


def type_name(value: Any) -> str:
    """Without the module for what needs no import."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"


def _is_of_numpy(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and (type(value) is numpy.ndarray or isinstance(value, numpy.generic))


# ---- Writing ---------------------------------------------------------------------------------------------------------


class Encoder:
    """Of one file. A tensor that several names hold is written once."""

    def __init__(self) -> None:
        # By its memory and form. It is kept, since a later one could have the address of one that is gone.
        self._tensors: dict[Any, tuple[torch.Tensor, torch.Tensor]] = {}

    def encode(self, value: Any, depth: int = 0) -> Any:
        """Raises Unfit."""
        kind = type(value)
        if kind in _AS_THEY_ARE:
            return value
        if depth > _DEEPEST:
            raise Unfit(f"it is nested more than {_DEEPEST} deep, or holds itself")
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if kind is int:
            if value.bit_length() > _MOST_BITS:
                raise Unfit(f"it holds a number of {value.bit_length()} bits")
            return value
        if kind in _SEQUENCES or kind in _SETS:
            return self._sequence(value, kind, depth)
        if kind in _DICTIONARIES:
            return self._dictionary(value, kind, depth)
        if kind in _BYTES:
            return {_KIND: kind.__name__, "bytes": _tensor_of(bytes(value))}
        if kind is torch.device:
            return {_KIND: "device", "of": str(value)}
        if _is_of_numpy(value):
            return _array(value)
        raise Unfit(f"{'its type' if depth == 0 else 'what it holds'}, {type_name(value)}, can't be written")

    def tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        """In host memory, without the rest of the storage that it is a view of."""
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            raise Unfit(f"only dense tensors are written, and it has a {type_name(tensor)}")
        if tensor.layout != torch.strided or tensor.is_meta or tensor.is_quantized or tensor.is_nested:
            form = "quantized" if tensor.is_quantized else "meta" if tensor.is_meta else "nested" if tensor.is_nested else "sparse"
            raise Unfit(f"only dense tensors are written, and it has a {form} one")
        last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
        storage = tensor.untyped_storage()
        if tensor.numel() and storage.nbytes() < (tensor.storage_offset() + last + 1) * tensor.element_size():
            raise Unfit("it has a tensor whose memory was freed")
        key = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), tensor.is_conj(), tensor.is_neg())
        if key not in self._tensors or tensor.numel() == 0:
            here = tensor.detach().resolve_conj().resolve_neg().cpu()
            if here.untyped_storage().nbytes() > here.numel() * here.element_size():
                here = here.clone()
            self._tensors[key] = (tensor, here)
        return self._tensors[key][1]

    def _sequence(self, value: Any, kind: type, depth: int) -> Any:
        items = [self.encode(each, depth + 1) for each in value]
        if kind is list:
            return items
        encoded = {_KIND: kind.__name__, "items": items}
        if kind is collections.deque:
            encoded["most"] = value.maxlen
        return encoded

    def _dictionary(self, value: Any, kind: type, depth: int) -> Any:
        if kind is dict and _KIND not in value and all(type(key) in _AS_KEYS for key in value):
            return {self.encode(key): self.encode(each, depth + 1) for key, each in value.items()}
        items = [(self.encode(key, depth + 1), self.encode(each, depth + 1)) for key, each in value.items()]
        encoded = {_KIND: kind.__name__, "items": items}
        if kind is collections.defaultdict and value.default_factory is not None:
            name = getattr(value.default_factory, "__name__", "")
            if _FACTORIES.get(name) is not value.default_factory:
                raise Unfit("the factory of a defaultdict that it has is code, which can't be written")
            encoded["factory"] = name
        return encoded


def _tensor_of(content: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8, device="cpu")


def _bytes_of(tensor: torch.Tensor) -> bytes:
    return tensor.numpy().tobytes()


def _array(value: Any) -> dict[str, Any]:
    numpy = sys.modules["numpy"]
    if value.dtype.kind not in _ARRAYS or numpy.dtype(value.dtype.str) != value.dtype:
        raise Unfit(f"an array of type {value.dtype} can't be written")
    kind = "array" if type(value) is numpy.ndarray else "scalar"
    return {_KIND: kind, "dtype": value.dtype.str, "shape": list(value.shape), "bytes": _tensor_of(value.tobytes())}


# ---- Reading ---------------------------------------------------------------------------------------------------------


def decode(saved: Any) -> Any:
    """What Encoder.encode() has been given. Raises what a damaged value makes Python and torch raise."""
    if type(saved) is list:
        return [decode(each) for each in saved]
    if type(saved) is not dict:
        return saved
    if _KIND not in saved:
        return {key: decode(each) for key, each in saved.items()}
    return _READERS[saved[_KIND]](saved)


def _items(saved: dict[str, Any]) -> list[Any]:
    return [decode(each) for each in saved["items"]]


def _pairs(saved: dict[str, Any]) -> list[tuple[Any, Any]]:
    return [(decode(key), decode(each)) for key, each in saved["items"]]


def _read_array(saved: dict[str, Any]) -> Any:
    import numpy

    dtype = numpy.dtype(str(saved["dtype"]))
    if dtype.kind not in _ARRAYS:
        raise Unfit(f"an array of type {dtype} is not read")
    return numpy.frombuffer(_bytes_of(saved["bytes"]), dtype).reshape(saved["shape"]).copy()


def _read_defaultdict(saved: dict[str, Any]) -> Any:
    factory = saved.get("factory")
    return collections.defaultdict(None if factory is None else _FACTORIES[factory], _pairs(saved))


_READERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "tuple": lambda saved: tuple(_items(saved)),
    "Size": lambda saved: torch.Size(_items(saved)),
    "deque": lambda saved: collections.deque(_items(saved), saved["most"]),
    "set": lambda saved: set(_items(saved)),
    "frozenset": lambda saved: frozenset(_items(saved)),
    "dict": lambda saved: dict(_pairs(saved)),
    "OrderedDict": lambda saved: collections.OrderedDict(_pairs(saved)),
    "Counter": lambda saved: collections.Counter(dict(_pairs(saved))),
    "defaultdict": _read_defaultdict,
    "bytes": lambda saved: _bytes_of(saved["bytes"]),
    "bytearray": lambda saved: bytearray(_bytes_of(saved["bytes"])),
    "device": lambda saved: torch.device(str(saved["of"])),
    "array": _read_array,
    "scalar": lambda saved: _read_array(saved)[()],
}


def check_fit(mine: Any, saved: Any) -> None:
    """Raises Unfit where put() would take a parameter out of a module or an optimizer that holds it."""
    if isinstance(mine, torch.nn.Parameter) and not (isinstance(saved, torch.Tensor) and _has_same_form(mine, saved)):
        raise Unfit("a parameter was not there, or had another shape or type")
    if isinstance(mine, (list, tuple)) and isinstance(saved, (list, tuple)):
        for before, after in zip(mine, saved):
            check_fit(before, after)
    elif isinstance(mine, dict) and isinstance(saved, dict):
        for key in mine.keys() & saved.keys():
            check_fit(mine[key], saved[key])


def put(mine: Any, saved: Any) -> Any:
    """Reads `saved` into the memory of `mine` where that has the same form, so that others who hold it see it, too. Returns
    what then has the value: `mine`, or another object."""
    kind = type(mine)
    if isinstance(mine, torch.Tensor) and isinstance(saved, torch.Tensor):
        return _put_tensor(mine, saved)
    if kind is not type(saved):
        return saved
    if kind is list:
        mine[:] = [*map(put, mine, saved), *saved[len(mine):]]
    elif kind is tuple:
        parts = (*map(put, mine, saved), *saved[len(mine):])
        return mine if len(parts) == len(mine) and all(a is b for a, b in zip(parts, mine)) else parts
    elif kind in _DICTIONARIES:
        items = {key: put(mine[key], each) if key in mine else each for key, each in saved.items()}
        mine.clear()
        mine.update(items)
    elif kind is set:
        mine.clear()
        mine.update(saved)
    elif kind is collections.deque and mine.maxlen == saved.maxlen:
        mine.clear()
        mine.extend(saved)
    elif kind is bytearray:
        mine[:] = saved
    elif _is_of_numpy(mine) and mine.shape == saved.shape and mine.dtype == saved.dtype and mine.shape and mine.flags.writeable:
        mine[...] = saved
    else:
        return saved
    return mine


def _has_same_form(mine: torch.Tensor, saved: torch.Tensor) -> bool:
    return (mine.layout == torch.strided and not mine.is_meta and not mine.is_quantized and mine.shape == saved.shape
            and mine.dtype == saved.dtype)


def _put_tensor(mine: torch.Tensor, saved: torch.Tensor) -> torch.Tensor:
    if _has_same_form(mine, saved):
        try:
            mine.detach().copy_(saved)
            return mine
        except RuntimeError:  # its elements share memory (expand), or it is of inference mode
            pass
    return saved.to("cpu" if mine.is_meta else mine.device)

"""Values of cells in a form that torch.load(weights_only=True) reads, which runs no code of a file: numbers, strings,
dense tensors, arrays of NumPy, and lists, tuples, dictionaries, sets and deques of these. Values that torch does not
read so become dictionaries with their kind: {"lockstep": "tuple", …}."""

from __future__ import annotations

import collections
import copy
import sys
from typing import Any, Callable, Iterator

import torch

_KIND = "lockstep"  # the key that says the kind
_AS_THEY_ARE = (type(None), bool, float, str, complex, torch.dtype)
_AS_KEYS = (type(None), bool, int, float, str)
_BYTES = (bytes, bytearray)
_SETS = (set, frozenset)
_SEQUENCES = (list, tuple, collections.deque, torch.Size)
_DICTIONARIES = (dict, collections.OrderedDict, collections.Counter, collections.defaultdict)
_FACTORIES: dict[str, type] = {each.__name__: each for each in (int, float, bool, str, list, dict, set)}  # of a defaultdict
_IN_ORDER = (list, tuple, collections.deque)
_ARRAYS = "?biufcSUmM"  # kinds of NumPy's types whose bytes are the value
_WORDS = {torch.float32: torch.int32, torch.float64: torch.int64, torch.float16: torch.int16, torch.bfloat16: torch.int16}
_DEEPEST = 100
_MOST_BITS = 2000  # torch reads no larger numbers


class Unfit(Exception):
    """Says why a value can't be written, or read into the object that is there."""


def is_value(value: Any) -> bool:
    """Whether `value` is of a type that is written. Its elements may be of other types."""
    return isinstance(value, torch.Tensor) or type(value) in (
        *_AS_THEY_ARE, int, torch.device, *_BYTES, *_SETS, *_SEQUENCES, *_DICTIONARIES) or _is_of_numpy(value)


def type_name(value: Any) -> str:
    """The name of the value's type, without the module where that needs no import."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"


def _is_of_numpy(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and (type(value) is numpy.ndarray or isinstance(value, numpy.generic))


# ---- Writing ---------------------------------------------------------------------------------------------------------


class Encoder:
    """Encodes the values of one file. A tensor that several names hold is written once."""

    def __init__(self) -> None:
        # Tensors by memory and form. They are kept, since a later one could have the address of one that is gone.
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
        """The tensor in host memory, without the rest of the storage that it is a view of."""
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
        return _with_gradient_of(tensor, self._tensors[key][1])

    def _key(self, key: Any, what: str, depth: int) -> Any:
        if _has_tensor(key):
            raise Unfit(f"{f'its {what}' if depth == 0 else f'{what} in it'} are tensors, which are found by identity")
        return self.encode(key, depth + 1)

    def _sequence(self, value: Any, kind: type, depth: int) -> Any:
        if kind in _SETS:
            return {_KIND: kind.__name__, "items": [self._key(each, "elements", depth) for each in value]}
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
        items = [(self._key(key, "keys", depth), self.encode(each, depth + 1)) for key, each in value.items()]
        encoded = {_KIND: kind.__name__, "items": items}
        if kind is collections.defaultdict and value.default_factory is not None:
            name = getattr(value.default_factory, "__name__", "")
            if _FACTORIES.get(name) is not value.default_factory:
                raise Unfit("the factory of a defaultdict that it has is code, which can't be written")
            encoded["factory"] = name
        return encoded


def _with_gradient_of(tensor: torch.Tensor, here: torch.Tensor) -> torch.Tensor:
    """The copy `here` of a tensor, as a parameter where that is one, and with its requires_grad."""
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(here, tensor.requires_grad)
    return here.detach().requires_grad_() if tensor.requires_grad and tensor.is_leaf else here


def _has_tensor(key: Any) -> bool:
    return isinstance(key, torch.Tensor) or type(key) in (tuple, frozenset) and any(map(_has_tensor, key))


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
    """The value that Encoder.encode() was given. Raises what a damaged value makes Python and torch raise."""
    if type(saved) is list:
        return [decode(each) for each in saved]
    if type(saved) is not dict:
        return _checked(saved)
    if _KIND not in saved:
        return {key: decode(each) for key, each in saved.items()}
    return _READERS[saved[_KIND]](saved)


def _checked(saved: Any) -> Any:
    """Raises TypeError where Encoder writes no such value."""
    if isinstance(saved, torch.Tensor):
        is_dense = (type(saved) in (torch.Tensor, torch.nn.Parameter) and saved.layout == torch.strided
                    and saved.device.type == "cpu" and not saved.is_quantized and not saved.is_nested)
    if not (is_dense if isinstance(saved, torch.Tensor) else type(saved) in (*_AS_THEY_ARE, int)):
        raise TypeError(f"a {type_name(saved)} of this form is not written")
    return saved


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


# ---- Filling what is there -------------------------------------------------------------------------------------------


def check_fit(mine: Any, saved: Any) -> None:
    """Raises Unfit where put() would take a parameter out of its module or optimizer, or make one that is in none."""
    if isinstance(mine, torch.nn.Parameter) or isinstance(saved, torch.nn.Parameter):
        if type(mine) is not type(saved) or not _has_same_form(mine, saved):
            raise Unfit("a parameter was not there, or had another shape or type")
    elif type(saved) in _IN_ORDER:
        for i, each in enumerate(saved):
            check_fit(mine[i] if type(mine) in _IN_ORDER and i < len(mine) else None, each)
    elif isinstance(saved, dict):
        for key, each in saved.items():
            check_fit(mine.get(key) if isinstance(mine, dict) else None, each)


def holds_parameter(value: Any) -> bool:
    held = value.values() if isinstance(value, dict) else value if type(value) in _IN_ORDER else ()
    return isinstance(value, torch.nn.Parameter) or any(map(holds_parameter, held))


def parts(mine: Any, saved: Any) -> Iterator[tuple[Any, Any]]:
    """The objects that put() fills, with the values that they get."""
    if _is_filled(mine, saved):
        yield mine, saved
    for before, after in _pairs_of(mine, saved):
        yield from parts(before, after)


def parts_of(value: Any) -> list[Any]:
    """All objects of a value that put() can fill."""
    found: dict[int, Any] = {}
    left = [value]
    while left:
        each = left.pop()
        if id(each) not in found:
            found[id(each)] = each
            left += [before for before, _ in _pairs_of(each, each)]
    return [each for each in found.values() if _is_filled(each, each)]


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal bit for bit."""
    kind = type(one)
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        is_same_memory = one.data_ptr() == other.data_ptr() and one.stride() == other.stride()
        return _has_same_form(one, other) and (is_same_memory or _have_same_bits(one, other))
    if kind is not type(other):
        return False
    if kind in _SEQUENCES:
        return len(one) == len(other) and all(map(same, one, other))
    if kind in _DICTIONARIES:
        return list(one) == list(other) and all(same(each, other[key]) for key, each in one.items())
    if _is_of_numpy(one):
        return bool(one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes())
    return repr(one) == repr(other) if kind in (float, complex) else bool(one == other)


def _have_same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Of two tensors of the same form."""
    word = _WORDS.get(one.dtype)
    if word is None or one.device != other.device or one.is_neg() or other.is_neg():
        return torch.equal(raw(one), raw(other))
    return torch.equal(one.detach().view(word), other.detach().view(word))  # what most tensors are, in less time


def raw(value: Any) -> torch.Tensor:
    """The bytes of the elements of a tensor or an array, in one more dimension."""
    if not isinstance(value, torch.Tensor):
        return _tensor_of(value.tobytes()).reshape(*value.shape, value.dtype.itemsize)
    here = value.detach().resolve_conj().resolve_neg().cpu().contiguous()  # may have any strides where sizes are 1
    return here.as_strided((here.numel(),), (1,)).view(torch.uint8).reshape(*here.shape, here.element_size())


def put(mine: Any, saved: Any, *, anew: bool = False) -> Any:
    """Reads `saved` into the memory of `mine` where that has the same form, so that other holders of it see it, too; `anew`:
    never. Returns the object that then has the value: `mine`, or another one."""
    kind = type(mine)
    if isinstance(mine, torch.Tensor) and isinstance(saved, torch.Tensor):
        return _put_tensor(mine, saved, anew)
    if kind is not type(saved):
        return saved
    if kind in _IN_ORDER:
        value: Any = [*(put(before, after, anew=anew) for before, after in zip(mine, saved)), *list(saved)[len(mine):]]
        if kind is tuple:
            return mine if len(value) == len(mine) and all(a is b for a, b in zip(value, mine)) else tuple(value)
    elif kind in _DICTIONARIES:
        value = {key: put(mine[key], each, anew=anew) if key in mine else each for key, each in saved.items()}
    else:
        value = saved
    if not _is_filled(mine, saved):
        return saved
    target = copy.copy(saved) if anew else mine
    _fill(target, value)
    return target


def _fill(target: Any, value: Any) -> None:
    if type(target) in (list, bytearray):
        target[:] = value
    elif _is_of_numpy(target):
        target[...] = value
    else:
        target.clear()
        (target.extend if isinstance(target, collections.deque) else target.update)(value)


def _is_filled(mine: Any, saved: Any) -> bool:
    """Whether put() fills this object itself."""
    kind = type(mine)
    if isinstance(mine, torch.Tensor) and isinstance(saved, torch.Tensor):
        return _has_same_form(mine, saved)
    if kind is not type(saved):
        return False
    if _is_of_numpy(mine):
        return isinstance(mine, sys.modules["numpy"].ndarray) and bool(
            mine.shape == saved.shape and mine.dtype == saved.dtype and mine.flags.writeable)
    if kind is collections.deque:
        return bool(mine.maxlen == saved.maxlen)
    return kind in (list, set, bytearray, *_DICTIONARIES)


def _pairs_of(mine: Any, saved: Any) -> Iterator[tuple[Any, Any]]:
    """What two values of a kind hold in the same place."""
    if type(mine) is type(saved) and type(mine) in _IN_ORDER:
        return zip(mine, saved)
    if type(mine) is type(saved) and type(mine) in _DICTIONARIES:
        return ((mine[key], each) for key, each in saved.items() if key in mine)
    return iter(())


def _has_same_form(mine: torch.Tensor, saved: torch.Tensor) -> bool:
    return (mine.layout == torch.strided and not mine.is_meta and not mine.is_quantized and mine.shape == saved.shape
            and mine.dtype == saved.dtype and (mine.is_leaf or not saved.requires_grad or not saved.is_leaf))


def _put_tensor(mine: torch.Tensor, saved: torch.Tensor, anew: bool) -> torch.Tensor:
    if not anew and _has_same_form(mine, saved):
        try:
            mine.detach().copy_(saved)
            if mine.is_leaf and not isinstance(mine, torch.nn.Parameter):
                mine.requires_grad_(saved.requires_grad)
            return mine
        except RuntimeError:  # its elements share memory (expand), or it is of inference mode
            pass
    return _with_gradient_of(saved, saved.detach().to("cpu" if mine.is_meta else mine.device))

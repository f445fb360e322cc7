"""Which names of the cells share memory: tensors and arrays that overlap, and lists, dictionaries and their like that are one
object. What `%restore` reads into such memory has to be right for all of them."""

from __future__ import annotations

from typing import Any, Iterable

import torch

from lockstep.session import _plain

_LARGEST_IMAGE = 1 << 30  # bytes; views of larger memory get memory of their own
_Span = tuple[str, int, int]  # the device, and the first byte and the one behind the last


def neighbours(parts: dict[str, list[Any]], groups: dict[int, _Group]) -> dict[str, list[str]]:
    """The other names that share memory with each name, by the parts of the names."""
    names: dict[int, set[str]] = {}
    for name, of_name in parts.items():
        for each in of_name:
            names.setdefault(id(groups[id(each)]), set()).add(name)
    return {name: sorted({other for each in of_name for other in names[id(groups[id(each)])]} - {name})
            for name, of_name in parts.items()}


def parts_of(names: dict[str, Any]) -> dict[str, list[Any]]:
    """What can be filled of each name: of values all objects in them, of modules the tensors of their state."""
    return {name: _state_of(value) if isinstance(value, torch.nn.Module) else
            _plain.parts_of(value) if _plain.is_value(value) else [] for name, value in names.items()}


def shares(names: dict[str, Any], by_memory: dict[str, list[str]]) -> dict[str, list[str]]:
    """The other names with which a name shares a value or a part of it; of other objects, those that are the same object."""
    same: dict[int, list[str]] = {}
    for name, value in names.items():
        same.setdefault(id(value), []).append(name)
    return {name: by_memory[name] if _plain.is_value(value) else [each for each in same[id(value)] if each != name]
            for name, value in names.items()}


def _state_of(module: torch.nn.Module) -> list[Any]:
    try:
        return [each for each in module.state_dict().values() if isinstance(each, torch.Tensor)]
    except Exception:  # of a class of the user's: it is left out
        return []


def size_of(parts: list[Any]) -> int:
    spans = {span for each in parts if (span := _span_of(each)) is not None}
    return sum(end - start for _, start, end in spans) + len(parts) - len(spans)


def places_of(parts: Iterable[tuple[Any, Any]]) -> list[list[int] | None]:
    """Where the parts that put() fills are in larger memory."""
    return [_place_in_whole(part) for part, _ in parts]


def _place_in_whole(part: Any) -> list[int] | None:
    """The offset of a view in the memory that it is a view of, and the size of that; None where it is all of it."""
    span = _span_of(part)
    if span is None:
        return None
    if isinstance(part, torch.Tensor):
        start, size = part.untyped_storage().data_ptr(), part.untyped_storage().nbytes()
    else:
        whole = part
        while type(whole.base) is type(part):
            whole = whole.base
        _, start, end = _span_of(whole) or span
        size = end - start
    return None if size == span[2] - span[1] else [span[1] - start, size]


class Claims:
    """The values that memory gets. Two names that share some may both be filled where they want the same bytes there."""

    def __init__(self, groups: dict[int, _Group]) -> None:
        self._groups = groups

    def take(self, parts: Iterable[tuple[Any, Any]]) -> bool:
        """Claims parts with their values. Returns False, and claims none, where one is to have another value already."""
        claimed: list[_Group] = []
        for part, value in parts:
            group = self._groups[id(part)]
            if not group.agrees(part, value):
                for each in reversed(claimed):
                    each.forget_last()
                return False
            group.add(part, value)
            claimed.append(group)
        return True


class Holders:
    """Names that memory belongs to, and whose values are not read from the file."""

    def __init__(self, groups: dict[int, _Group]) -> None:
        self._groups = groups

    def add(self, name: str, parts: Iterable[Any]) -> None:
        for part in parts:
            self._groups[id(part)].holders.append((part, name))

    def of(self, part: Any) -> set[str]:
        """The names that share memory with a part."""
        holders = self._groups[id(part)].holders
        mine = _span_of(part) if holders else None
        return {name for each, name in holders if mine is None or _overlap(mine, _span_of(each))}


class _Group:
    """Parts that share memory, some directly and some over others."""

    def __init__(self, start: int = 0, end: int = 0) -> None:
        self._start, self.end = start, end
        self.claims: list[tuple[Any, Any]] = []
        self.holders: list[tuple[Any, str]] = []
        self._by_form: dict[Any, list[Any]] = {}  # the values of the claims
        self._drawn = 0  # of the claims, in the image
        self._image: tuple[torch.Tensor, torch.Tensor] | None = None  # the bytes that the memory gets, and which are known

    def add(self, part: Any, value: Any) -> None:
        self.claims.append((part, value))
        self._by_form.setdefault(_form_of(part), []).append(value)

    def forget_last(self) -> None:
        part, _ = self.claims.pop()
        self._by_form[_form_of(part)].pop()
        self._image, self._drawn = None, 0

    def agrees(self, part: Any, value: Any) -> bool:
        form = _form_of(part)
        if not self.claims or any(_plain.same(known, value) for known in self._by_form.get(form, ())):
            return True
        if form is None or _span_of(part) is None or self.end - self._start > _LARGEST_IMAGE:
            return False
        try:
            return self._has_bytes(part, value)
        except RuntimeError:  # strides that torch has not
            return False

    def _has_bytes(self, part: Any, value: Any) -> bool:
        image, known = self._image or (torch.zeros(self.end - self._start, dtype=torch.uint8, device="cpu") for _ in range(2))
        self._image = image, known
        while self._drawn < len(self.claims):
            each, content = self.claims[self._drawn]
            self._window(image, each).copy_(_plain.raw(content))
            self._window(known, each).fill_(1)
            self._drawn += 1
        mine, wanted = self._window(image, part), _plain.raw(value)
        return torch.equal(mine, wanted) or not bool(((mine != wanted) & self._window(known, part).bool()).any())

    def _window(self, image: torch.Tensor, part: Any) -> torch.Tensor:
        """The bytes of a part."""
        (_, start, _), (_, shape, strides) = _span_of(part), _form_of(part)  # type: ignore[misc]
        return image.as_strided((*shape, _item_size(part)), (*strides, 1), start - self._start)


def _overlap(one: _Span, other: _Span | None) -> bool:
    return other is not None and one[0] == other[0] and one[1] < other[2] and other[1] < one[2]


def groups_of(parts: dict[str, list[Any]]) -> dict[int, _Group]:
    """The groups by id() of their parts, which have to live as long as these."""
    groups: dict[int, _Group] = {}
    spans: list[tuple[_Span, int]] = []
    for each in (each for of_name in parts.values() for each in of_name):
        if (span := _span_of(each)) is None:
            groups.setdefault(id(each), _Group())
        else:
            spans.append((span, id(each)))
    device, group = "", _Group()
    for (on, start, end), part in sorted(spans):
        if on != device or start >= group.end:
            device, group = on, _Group(start, end)
        group.end = max(group.end, end)
        groups[part] = group
    return groups


def _item_size(part: Any) -> int:
    return int(part.element_size() if isinstance(part, torch.Tensor) else part.itemsize)


def _span_of(part: Any) -> _Span | None:
    """None of what has no elements in memory."""
    try:
        if isinstance(part, torch.Tensor) and part.layout == torch.strided and part.is_contiguous():
            size, start = part.nbytes, part.data_ptr()
            return (str(part.device), start, start + size) if size and start else None
        form = _form_of(part)
        if form is None or 0 in form[1]:
            return None
        is_tensor = isinstance(part, torch.Tensor)
        start = part.data_ptr() if is_tensor else part.__array_interface__["data"][0]
        reaches = [(size - 1) * stride for size, stride in zip(form[1], form[2])]
        first = start + sum(each for each in reaches if each < 0)
        end = start + sum(each for each in reaches if each > 0) + _item_size(part)
        return (str(part.device) if is_tensor else "cpu", first, end) if start else None
    except Exception:  # a tensor of a class of the user's, or without memory
        return None


def _form_of(part: Any) -> tuple[int, tuple[int, ...], tuple[int, ...]] | None:
    """The address, the shape, and the strides in bytes, of a tensor or an array; None of other objects."""
    if isinstance(part, torch.Tensor):
        if part.layout != torch.strided or part.is_meta:
            return None
        return part.data_ptr(), tuple(part.shape), tuple(each * part.element_size() for each in part.stride())
    if hasattr(part, "__array_interface__") and hasattr(part, "strides"):
        return part.__array_interface__["data"][0], tuple(part.shape), tuple(part.strides)
    return None

"""Reads what a checkpoint has into the names of the cells. Names may share memory otherwise than they did when it was
written: what is read for one of them never changes another one, or one that the checkpoint does not have."""

from __future__ import annotations

import builtins
import sys
from typing import Any

import torch

from lockstep.prompt import _magics
from lockstep.session import _kinds, _plain, _sharing, _state
from lockstep.session._kinds import Saved
from lockstep.session._plain import Unfit


class Taking:
    """The reading of one checkpoint."""

    def __init__(self, saved: dict[str, Saved], here: dict[str, Any], known: dict[str, Any]) -> None:
        """`here`: the values of the names, except code; `known`: objects with a state that names are known to have had then."""
        self.restored: list[str] = []
        self.left: dict[str, str] = {name: "it is not in the checkpoint" for name in here.keys() - saved.keys()}
        self.layouts: dict[str, list[list[int]]] = {}
        self._current = ""
        self._saved, self._here = saved, here
        self._main = sys.modules["__main__"].__dict__
        self._parts = _sharing.parts_of(here)
        groups = _sharing.groups_of(self._parts)
        self._claims, self._holders = _sharing.Claims(groups), _sharing.Holders(groups)
        self._neighbours = _sharing.neighbours(self._parts, groups)
        self._filled = {name: list(_plain.parts(value, saved[name].content["value"]))
                        for name, value in here.items() if self._is_value(name)}
        self._places = {name: _sharing.places_of(each) for name, each in self._filled.items()}
        shares = _sharing.shares(here, self._neighbours)
        self._moved = {name for name in here.keys() & saved.keys() if ({*saved[name].shares} & here.keys()) - {*shares[name]}
                       or known.get(name, here[name]) is not here[name]}
        self._stepped = {id(each) for value in here.values() if isinstance(value, torch.optim.Optimizer)
                         for group in getattr(value, "param_groups", ()) for each in group["params"]}

    def run(self) -> None:
        taken_by_others = self._displaced()
        for name, value in self._here.items():
            if isinstance(value, torch.nn.Module) and name not in self._saved:
                self._holders.add(name, self._parts[name])
        for name in sorted(self._saved.keys() | self._here.keys(), key=self._rank_of):
            if name not in self._filled and _plain.is_value(self._here.get(name)):
                self._holders.add(name, self._parts.get(name, ()))
            if name not in self._saved:
                continue
            self._current = name
            try:
                if name in taken_by_others:
                    raise Unfit(taken_by_others[name])
                self._take(name, self._saved[name])
                self.restored.append(name)
            except Unfit as error:
                self._leave(name, str(error))
            except Exception as error:  # of a class of the user's
                self._leave(name, f"it can't be read: {_state.text_of(error)}")
        self._verify()
        self.restored.sort()
        self._current = ""

    def _leave(self, name: str, why: str) -> None:
        self.left[name] = why
        if isinstance(self._here.get(name), torch.nn.Module):
            self._holders.add(name, self._parts[name])

    def so_far(self) -> str:
        """What was read when something has ended it."""
        done = f"{', '.join(sorted(self.restored))} have what was written" if self.restored else "no name was restored"
        under_way = f", {self._current} may have a part of it" if self._current else ""
        return f"{done}{under_way}, and the rest is unchanged"

    def _is_value(self, name: str) -> bool:
        saved = self._saved.get(name)
        return saved is not None and saved.kind is _kinds.VALUE and not saved.failure and _plain.is_value(self._here.get(name))

    def _rank_of(self, name: str) -> tuple[int, int, int, str]:
        """Modules come first, and larger values before their parts. Where names have the same memory, one comes last that
        had others' when the checkpoint was written."""
        saved = self._saved.get(name)
        kind = _kinds.VALUE if saved is None else saved.kind
        size = _sharing.size_of(self._parts.get(name, []))
        return _kinds.ORDER.index(kind), -size, 2 if name in self._moved else 1 if saved is not None else 0, name

    def _displaced(self) -> dict[str, str]:
        """Why objects with a state are left out that have several names now, where these had different ones."""
        names: dict[int, list[str]] = {}
        for name, value in self._here.items():
            if not _plain.is_value(value):
                names.setdefault(id(value), []).append(name)
        reasons: dict[str, str] = {}
        for group in names.values():
            mine = [name for name in group if name in self._saved and self._saved[name].kind is not _kinds.VALUE]
            right = [name for name in mine if name not in self._moved] or (mine if len(mine) == len(group) else [])
            is_clear = bool(right) and all(self._are_alike(right[0], name) for name in right)
            for name in mine:
                if not is_clear or not self._are_alike(right[0], name):
                    other = next((each for each in [*right, *group] if each != name), name)
                    reasons[name] = f"it is the {self._saved[name].kind.title} {other} now"
        return reasons

    def _are_alike(self, one: str, other: str) -> bool:
        return _plain.same(self._saved[one].content, self._saved[other].content)

    def _take(self, name: str, saved: Saved) -> None:
        if saved.failure:
            raise Unfit(saved.failure)
        if name not in self._here:
            return self._define(name, saved)
        mine = self._here[name]
        kind = _kinds.kind_of(mine)
        if saved.kind is not kind or (kind is not _kinds.VALUE and saved.type != _plain.type_name(mine)):
            raise Unfit(f"its type was {saved.type}, and is {_plain.type_name(mine)}")
        if kind is _kinds.VALUE:
            return self._take_value(name, mine, saved)
        kind.check(mine, saved.content)
        if kind is _kinds.MODULE and not self._claims.take(self._parts_of_module(name, saved)):
            raise Unfit(f"it shares memory with {', '.join(self._neighbours[name])} now, and had other values")
        kind.take(mine, saved.content)
        if saved.content.get("layout") is not None:
            self.layouts[name] = saved.content["layout"]

    def _define(self, name: str, saved: Saved) -> None:
        """Reads a value into a name that no cell has defined."""
        if id(self._main.get(name)) in _state.parameters(self._main):
            raise Unfit("it is a parameter of a module now")
        if name in self._main or name in _magics.initial or name.startswith("__"):
            raise Unfit(f"its type was {saved.type}, and it is code")
        if hasattr(builtins, name):
            raise Unfit("no variable has the name, which is a builtin of Python")
        if saved.kind is not _kinds.VALUE:
            raise Unfit("no variable has the name")
        value = saved.content["value"]
        if not isinstance(value, torch.nn.Parameter):
            _plain.check_fit(None, value)
        self._main[name] = value

    def _parts_of_module(self, name: str, saved: Saved) -> list[tuple[Any, Any]]:
        state = self._here[name].state_dict()
        values = [saved.content["state"][key] for key, each in state.items() if isinstance(each, torch.Tensor)]
        return list(zip(self._parts[name], values)) if len(values) == len(self._parts[name]) else []

    def _take_value(self, name: str, mine: Any, saved: Saved) -> None:
        value = saved.content["value"]
        _plain.check_fit(mine, value)
        anew = not self._may_fill(name, saved)
        if anew and _plain.holds_parameter(value):
            raise Unfit("a parameter in it shares memory with other names now, and had another value")
        now = _plain.put(mine, value, anew=anew)
        if now is not mine:
            self._main[name] = now

    def _may_fill(self, name: str, saved: Saved) -> bool:
        """Whether what the name holds may be filled: no other name has a right to another value there."""
        parts, here, places = self._filled[name], self._places[name], saved.content["places"]
        for i, (part, value) in enumerate(parts):
            others = set() if self._is_trained(part) else self._holders.of(part) - {*saved.shares}
            is_elsewhere = here[i] is not None and (len(here) != len(places) or here[i] != places[i])
            if (others or is_elsewhere and not isinstance(part, torch.nn.Parameter)) and not _plain.same(part, value):
                return False
        return self._claims.take(parts)

    def _is_trained(self, part: Any) -> bool:
        return isinstance(part, torch.Tensor) and (part.requires_grad and part.is_leaf or id(part) in self._stepped)

    def _verify(self) -> None:
        """Gives names their values that have others in the end, as where a class of the user's changes them."""
        for name in [each for each in self.restored if self._saved[each].kind is _kinds.VALUE]:
            value = self._saved[name].content["value"]
            if not _plain.same(self._main.get(name), value):
                if _plain.holds_parameter(value):
                    self.restored.remove(name)
                    self.left[name] = "what was read into another name has changed it"
                else:
                    self._main[name] = _plain.put(self._main.get(name), value, anew=True)

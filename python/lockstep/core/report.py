"""Findings as dataclasses, and the report that every inspector returns.

A finding is data from where it arises (docs/findings.md explains each field); its text is drawn by the library, as in a
session.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass, field
from typing import Any, Iterator

from lockstep.core import _library
from lockstep.core.errors import LockstepError


@dataclass(frozen=True)
class FindingTensor:
    """One tensor that a finding is about. What was not measured is None."""

    name: str
    dtype: str
    shape: list[int]
    count: int | None = None
    """Elements that differ, or are NaN or Inf."""
    first: list[int] | None = None
    """Index of the first of them."""
    max_abs_diff: float | None = None
    max_ulp: float | None = None
    """Largest distance in units of the last place."""
    norms: dict[int, float] = field(default_factory=dict)
    """By rank: Euclidean, of the finite elements."""


@dataclass(frozen=True)
class FindingOp:
    """The collective or the operator that a finding is about."""

    name: str
    seq: int
    shape: list[int]
    dtype: str
    group: str | None = None


@dataclass(frozen=True)
class Finding:
    """What an inspector found."""

    severity: str
    """"fault" or "note". Only faults count."""
    inspector: str
    verdict: str
    """"ok", "mismatch", "nan", … (docs/findings.md has the list)."""
    ranks: list[int]
    """The ranks at fault; all of them when no majority says who is right."""
    reference_ranks: list[int]
    message: str
    object: str | None = None
    kind: str | None = None
    tensors: list[FindingTensor] = field(default_factory=list)
    op: FindingOp | None = None
    step: int | None = None
    where: str | None = None
    """The line of the program: "train.py, line 31"."""
    cell: int | None = None
    """None in a job; a session has cells."""
    json: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """The finding as it is written to files."""

    @property
    def tensor(self) -> str | None:
        """The name of the first tensor."""
        return self.tensors[0].name if self.tensors else None

    @property
    def is_fault(self) -> bool:
        return self.severity == "fault"

    def __str__(self) -> str:
        return _draw([self.json]).rstrip("\n")

    @staticmethod
    def from_json(data: dict[str, Any]) -> Finding:
        def number(value: Any) -> float | None:
            return None if value is None else float(value)

        op = data.get("op")
        return Finding(
            severity=data["severity"],
            inspector=data["inspector"],
            verdict=data["verdict"],
            ranks=list(data["ranks"]),
            reference_ranks=list(data["reference_ranks"]),
            message=data["message"],
            object=data.get("object"),
            kind=data.get("kind"),
            tensors=[
                FindingTensor(
                    name=each["name"],
                    dtype=each["dtype"],
                    shape=list(each["shape"]),
                    count=each.get("count"),
                    first=each.get("first"),
                    max_abs_diff=number(each.get("max_abs_diff")),
                    max_ulp=number(each.get("max_ulp")),
                    norms={int(rank): float(norm) for rank, norm in (each.get("norms") or {}).items()},
                )
                for each in data.get("tensors") or []
            ],
            op=None
            if op is None
            else FindingOp(op["name"], op["seq"], list(op["shape"]), op["dtype"], op.get("group") or None),
            step=data.get("step"),
            where=data.get("where"),
            cell=data.get("cell"),
            json=data,
        )


def _shows_unicode() -> bool:
    encoding = str(getattr(sys.stdout, "encoding", None) or "utf-8")
    return encoding.lower().replace("-", "").startswith("utf")


def _is_terminal() -> bool:
    try:
        return sys.stdout.isatty()
    except (AttributeError, ValueError):  # None, an object of the program that only writes, or closed
        return False


def _draw(findings: list[dict[str, Any]]) -> str:
    terminal = _is_terminal()
    result = _library.call(
        "draw",
        findings=findings,
        colour=terminal and not os.environ.get("NO_COLOR"),
        unicode=_shows_unicode(),
        width=shutil.get_terminal_size().columns if terminal else 0,
    )
    return str(result["text"])


@dataclass(frozen=True)
class Report:
    """What an inspector returns, the same on every rank that took part, except for times. True without a fault;
    `print` draws it."""

    findings: list[Finding]
    tensors: int
    """Compared."""
    bytes: int
    """Of memory that was compared, on this rank."""
    seconds: float
    """On this rank."""
    took_part: list[int]
    """The ranks whose facts the findings come from; the lowest of them logs the findings."""
    table: str = field(default="", repr=False)
    """What people see besides the findings: rows for ranks, for example."""
    data: dict[str, Any] = field(default_factory=dict, repr=False)
    """What this inspector measures besides (docs/python.md)."""

    @property
    def ok(self) -> bool:
        """No fault. Notes do not count."""
        return not self.faults

    @property
    def faults(self) -> list[Finding]:
        return [each for each in self.findings if each.is_fault]

    def __bool__(self) -> bool:
        return self.ok

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __str__(self) -> str:
        return (_draw([each.json for each in self.findings]) + self.table).rstrip("\n")

    @staticmethod
    def from_json(result: dict[str, Any]) -> Report:
        common = ("findings", "tensors", "bytes", "seconds", "took_part", "table")
        return Report(
            findings=[Finding.from_json(each) for each in result["findings"]],
            tensors=result["tensors"],
            bytes=result["bytes"],
            seconds=result["seconds"],
            took_part=result["took_part"],
            table=result["table"],
            data={key: value for key, value in result.items() if key not in common},
        )


class FaultFound(LockstepError):
    """A fault, raised where `raise_on_fault=True` asks for it; on every rank that took part."""

    def __init__(self, report: Report) -> None:
        super().__init__(str(report).rstrip())
        self.report = report

"""Where findings go besides the report: the logger "lockstep", and the file that LOCKSTEP_FINDINGS names.

The library publishes each finding on one rank (what a rank finds about itself alone, on that rank), so the ranks of a
job share a file: one line of JSON for each finding, appended at once.
"""

from __future__ import annotations

import json
import logging
import os
import time
from typing import Any, Callable

from lockstep.core import _library
from lockstep.core.report import Finding

logger = logging.getLogger("lockstep")
_started = time.monotonic()
sink: Callable[[list[Finding]], None] | None = None
"""Takes what is published instead of the logger, while a cell of a prompt runs."""
_since_step: list[Finding] = []


def flush(*, of_call: bool = False) -> None:
    """Logs and writes what was published since the last call. `of_call`: a call that returns its findings has published
    it. Local."""
    if not _library.is_loaded():
        return
    published = [Finding.from_json(each) for each in _library.call("take_findings")["findings"]]
    if not of_call:
        _since_step.extend(each for each in published if each.is_fault and each.inspector == "nan")
    path = os.environ.get("LOCKSTEP_FINDINGS")
    if published and path:  # first: an interrupt may end what follows
        _append(path, [each.json for each in published])
    if sink is not None:
        sink(published)
    for finding in published if sink is None else []:
        if logger.isEnabledFor(logging.ERROR if finding.is_fault else logging.INFO):
            logger.log(logging.ERROR if finding.is_fault else logging.INFO, "%s", finding, extra={"finding": finding})


def take_bad_values() -> list[Finding]:
    """Publishes, and returns what the NaN watches of this rank have found since the last call. Local."""
    flush()
    taken = _since_step[:]
    _since_step.clear()
    return taken


def _append(path: str, findings: list[dict[str, Any]]) -> None:
    elapsed = time.monotonic() - _started
    lines = "".join(json.dumps({"event": "finding", "schema": 1, "time": elapsed, **each}) + "\n" for each in findings)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            os.write(descriptor, lines.encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        # Training must not end because a file of findings can't be written.
        logger.warning("LOCKSTEP_FINDINGS: %s can't be written: %s", path, error.strerror)

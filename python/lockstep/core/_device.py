"""The device that the program computes on. Does not initialise one."""

from __future__ import annotations

import torch


def name() -> str:
    """"cuda:1", "cpu"."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return "cpu"
    return f"cuda:{torch.cuda.current_device()}"


def synchronize() -> None:
    """Waits for the work of the device, and raises what has failed there."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()

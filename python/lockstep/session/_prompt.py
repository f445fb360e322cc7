"""The prompt of a rank of a session: that of a stopped rank, and what a session asks of its ranks besides."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from lockstep.prompt import _prompt


class SessionPrompt(_prompt.Prompt):
    def _functions(self) -> dict[str, Any]:
        return {"python": self._run_python, "barrier": self._barrier}

    def _barrier(self, cell: int, arguments: dict[str, Any]) -> None:
        dist.barrier()

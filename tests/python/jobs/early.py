"""A job whose rank 1 fails before it imports torch, when rank 0 is watched."""

import os
import sys
import time

if os.environ["RANK"] == "1":
    while not os.path.exists(os.path.join(os.environ["LOCKSTEP_JOB"], "rank-0.json")):
        time.sleep(0.05)
    sys.exit(7)

import torch.distributed as dist  # noqa: E402

dist.init_process_group("gloo")

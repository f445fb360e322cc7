"""The job of prompt_cost.py, under torchrun: ranks that stop at once and serve the prompt."""
import torch.distributed as dist

import lockstep

dist.init_process_group("gloo")
k = 41
lockstep.breakpoint(timeout=300)
dist.destroy_process_group()

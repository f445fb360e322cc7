"""Faults of training on several ranks, for compare_gpt.py: each changes one thing at one place of its loop. NAMES are those
of this run ("mask+rate"). Many are kinds that were found in real programs: those of Megatron-LM are listed by TTrace (arXiv 2506.09280),
those of user code, DeepSpeed and PyTorch by TrainCheck (OSDI 2025)."""

import contextlib
import os
import sys

import torch
import torch.utils.checkpoint

NAMES = sys.argv[2].split("+") if len(sys.argv) > 2 else []
RANK = int(os.environ.get("RANK", "0"))


def of(faults, *arguments):
    """What the faults of this run make of the first argument, at the place that has `faults`."""
    first, *others = arguments
    for name in NAMES:
        if name in faults and (changed := faults[name](first, *others)) is not None:
            first = changed
    return first


# ---- The model before it is wrapped: each takes and returns it. ------------------------------------------------------------


def on_rank_1(fault):
    return lambda model: fault(model) if RANK == 1 else model


def attends_one_too_far(model):
    for block in model.blocks:
        block.attention.diagonal = 1
    return model


def scales_by_the_width(model):
    for block in model.blocks:
        block.attention.scale = block.q.in_features ** -0.5
    return model


def begins_at_position_1(model):
    model.positions = model.positions.roll(-1)
    return model


def takes_another_epsilon(model):
    for block in model.blocks:
        block.ln1.eps = 1e-3
    return model


def takes_another_gelu(model):
    for block in model.blocks:
        block.approximate = "tanh"
    return model


def adds_the_bias_twice(model):
    """As layers that divide their input do when each rank adds the bias before the sum."""
    output = model.blocks[0].o
    forward = output.forward
    output.forward = lambda x: forward(x) + output.bias
    return model


def computes_in_bfloat16(model):
    forward = model.forward

    def with_autocast(tokens):
        with torch.autocast("cpu", torch.bfloat16):
            return forward(tokens)

    model.forward = with_autocast
    return model


def recomputes_another_input(model):
    """Activations are computed once more in backward, of an input that was changed in between."""
    block = model.blocks[1]
    forward, calls = block.forward, []

    def once_more(x):
        calls.append(None)
        return forward(x * 1.01 if len(calls) % 2 == 0 else x)

    block.forward = lambda x: torch.utils.checkpoint.checkpoint(once_more, x, use_reentrant=False)
    return model


def freezes_a_weight(model):
    model.blocks[0].q.weight.requires_grad_(False)
    return model


def hides_a_weight(model):
    """DistributedDataParallel does not reduce its gradient."""
    torch.nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ["head.weight"])
    return model


MODEL = {
    "mask": on_rank_1(attends_one_too_far),
    "scale": scales_by_the_width,
    "positions": on_rank_1(begins_at_position_1),
    "epsilon": takes_another_epsilon,
    "gelu": on_rank_1(takes_another_gelu),
    "bias twice": adds_the_bias_twice,
    "bfloat16": on_rank_1(computes_in_bfloat16),
    "recomputed": recomputes_another_input,
    "frozen": freezes_a_weight,
    "ignored": hides_a_weight,
}

# ---- The samples of a rank: each takes them, and the batch. ------------------------------------------------------------


def shift(mine, _):
    return mine.roll(1, 1) if RANK == 1 else mine


def first_shard(mine, batch):
    return batch[:len(mine)]


def repeat_one(mine, _):
    return torch.cat([mine[:-1], mine[:1]]) if RANK == 1 else mine


def more_for_rank_0(mine, batch):
    """Each rank takes the mean over its samples, and all ranks' gradients have the same weight."""
    return batch[:len(mine) + 1] if RANK == 0 else batch[len(mine) + 1:]


SAMPLES = {"shifted": shift, "same shard": first_shard, "repeated": repeat_one, "unequal ranks": more_for_rank_0}


def unequal(parts):
    """Micro-batches of other sizes, of which each has the same weight."""
    samples = torch.cat(parts)
    sizes = [2 * len(parts[0]) - 1, 1] + [len(part) for part in parts[2:]]
    return samples.split(sizes)


MICRO_BATCHES = {"unequal parts": unequal, "dropped": lambda parts: parts[:-1]}

# ---- Gradients before the optimizer reads them: each takes the model. -----------------------------------------------------


def forget(model):
    if RANK == 1:
        model.head.bias.grad = None


def clip(model):
    if RANK == 0:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)


def local_gradient(weight):
    """Of a replicated weight: of the part of the sequence that this rank has."""
    from torch.distributed.tensor import DTensor, Replicate

    weight.grad = DTensor.from_local(weight.grad.to_local(), weight.device_mesh, [Replicate()])


def twice(weight):
    weight.grad = weight.grad.redistribute(placements=weight.placements) * 2


GRADIENTS = {
    "no gradient": forget,
    "clipped": clip,
    "norm not reduced": lambda model: local_gradient(model.blocks[1].ln1.weight),
    "last norm not reduced": lambda model: local_gradient(model.ln.bias),
    "norm reduced twice": lambda model: twice(model.blocks[0].ln2.weight),
}


@contextlib.contextmanager
def kept_gradient(parameter):
    """One that zero_grad() does not reach."""
    before = parameter.grad if "stale" in NAMES else None
    yield
    if before is not None:
        parameter.grad = before


# ---- The update: settings of AdamW. -----------------------------------------------------------------------------------

OPTIMIZER = {
    "rate": {"lr": 2e-3},
    "rate of rank 1": {"lr": 2e-3 if RANK == 1 else 1e-3},
    "decay": {"weight_decay": 0},
    "betas": {"betas": (0.9, 0.95)},
}


def settings():
    return {key: value for name in NAMES for key, value in OPTIMIZER.get(name, {}).items()}


def parameters_of(model):
    """Of "not gathered", rank 1 keeps the old value of one: its owner has made the step, and has not sent it."""
    parameters = list(model.parameters())
    if "not gathered" not in NAMES or RANK != 1:
        return parameters
    return [{"params": [each for each in parameters if each is not model.head.bias]}, {"params": [model.head.bias], "lr": 0.0}]


def after_step(model):
    if "drift" in NAMES and RANK == 1:  # as memory, or a driver, may do it
        with torch.no_grad():
            model.ln.weight[0] += 0.5

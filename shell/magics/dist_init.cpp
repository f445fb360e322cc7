// %dist_init: starts the ranks.
#include <fmt/format.h>

#include "protocol/error.h"
#include "shell/processes/session_plan.h"
#include "shell/scripts/magic_arguments.h"
#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

const char* const kDistInitUsage =
    "%dist_init [-n/--num-processes N] [--gpu-ids L] [--share-gpu] [--all-gpus-visible] [--backend auto|gloo|nccl]";

CellOutcome dist_init(MagicCall& call) {
  MagicArguments arguments(call.arguments, kDistInitUsage);
  SessionOptions wanted = call.session.options;
  if (const auto n = arguments.take_value("-n", "--num-processes"))
    wanted.num_processes = static_cast<int>(parse_count(*n, "-n", 0));
  if (const auto ids = arguments.take_value("-g", "--gpu-ids")) {
    wanted.gpu_ids = parse_gpu_ids(*ids);
    if (!call.session.options.num_processes) wanted.num_processes.reset();
  }
  if (arguments.take_flag("", "--share-gpu")) wanted.share_gpu = true;
  if (arguments.take_flag("", "--all-gpus-visible")) wanted.all_gpus_visible = true;
  if (const auto backend = arguments.take_value("", "--backend")) wanted.backend = *backend;
  if (const auto word = arguments.rest_word())
    throw UsageError("'" + *word + "' is not expected; usage: " + std::string(kDistInitUsage));

  const SessionPlan plan = plan_session(wanted);
  if (call.session.started()) {
    const bool same = plan.world_size == call.session.world_size();
    call.session.message(fmt::format(
        "{} rank{} {} running already{}", call.session.world_size(), call.session.world_size() == 1 ? "" : "s",
        call.session.world_size() == 1 ? "is" : "are",
        same ? "" : fmt::format("; for {} of them: %dist_shutdown, then %dist_init again", plan.world_size)));
    return {};
  }
  std::swap(call.session.options, wanted);
  try {
    call.session.start(/*is_asked=*/true);
  } catch (...) {  // the next cell starts what it would have started without this line
    std::swap(call.session.options, wanted);
    throw;
  }
  return {};
}

const RegisterMagic kDistInit(
    {.name = "dist_init",
     .usage = kDistInitUsage,
     .summary = "starts the ranks (the first cell does it if you do not)",
     .help = "-n N         so many ranks; default: one per visible GPU, two on the CPU where there is none\n"
             "--gpu-ids L  the GPUs of the ranks, in order, counted among the visible ones: 0,1\n"
             "--share-gpu  several ranks may share a GPU; their collectives go over gloo\n"
             "--all-gpus-visible  each rank sees every GPU; default: its own only, as cuda:0\n"
             "--backend B  of the collectives: auto (nccl for tensors on GPUs, gloo for others), gloo, nccl",
     .line = dist_init,
     .cell = {}});

}  // namespace
}  // namespace lockstep::shell

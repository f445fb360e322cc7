// %dist_init starts the ranks.
#include <fmt/format.h>

#include "shell/jobs/session_hosts.h"
#include "shell/processes/session_plan.h"
#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

/// A command has blanks, and stands in quotes.
std::string unquoted(const std::string& text) {
  const bool is_quoted =
      text.size() > 1 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front();
  return is_quoted ? text.substr(1, text.size() - 2) : text;
}

CellOutcome dist_init(MagicCall& call) {
  SessionOptions wanted = call.session.options();
  if (const auto n = call.given.count("-n", 0)) wanted.num_processes = static_cast<int>(*n);
  if (const auto ids = call.given.value("--gpu-ids")) {
    wanted.gpu_ids = parse_gpu_ids(*ids);
    if (!call.session.options().num_processes) wanted.num_processes.reset();
  }
  if (call.given.has("--share-gpu")) wanted.share_gpu = true;
  if (call.given.has("--all-gpus-visible")) wanted.all_gpus_visible = true;
  if (const auto backend = call.given.value("--backend")) wanted.backend = *backend;

  if (const auto hosts = call.given.value("--hosts")) wanted.hosts = *hosts, wanted.launch.clear();
  if (const auto launch = call.given.value("--launch")) wanted.launch = unquoted(*launch), wanted.hosts.clear();
  if (call.given.has("--ray")) wanted.launch = kRay, wanted.hosts.clear();
  if (wanted.hosts == "none") wanted.remote_program.clear();  // the default of hosts that are left out now
  choose_hosts(wanted);

  // How many ranks there are on other machines is known when these have answered.
  const int size = wanted.is_here() ? plan_session(wanted).world_size : wanted.num_processes.value_or(0);
  if (call.session.started()) {
    const bool same = size == 0 || size == call.session.world_size();
    call.session.message(
        fmt::format("{} rank{} {} running already{}", call.session.world_size(),
                    call.session.world_size() == 1 ? "" : "s", call.session.world_size() == 1 ? "is" : "are",
                    same ? "" : fmt::format("; for {} of them: %dist_shutdown, then %dist_init again", size)));
    return {};
  }
  std::swap(call.session.options(), wanted);
  try {
    call.session.start(/*is_asked=*/true);
  } catch (...) {  // the next cell starts what it would have started without this line
    std::swap(call.session.options(), wanted);
    throw;
  }
  return {};
}

const RegisterMagic kDistInit(
    {.name = "dist_init",
     .summary = "starts the ranks (the first cell does it if you do not)",
     .takes = {{"-n,--num-processes N",
                "so many ranks; default: one per visible GPU, two on the CPU where there is none"},
               {"--gpu-ids,-g L", "the GPUs of the ranks, in order, counted among the visible ones: 0,1"},
               {"--share-gpu",
                "several ranks may share a GPU; their collectives go over gloo, unless --backend says nccl"},
               {"--all-gpus-visible", "each rank sees every GPU; default: its own only, as cuda:0"},
               {"--backend B",
                "of the collectives: auto (nccl for tensors on GPUs, gloo for others), gloo, nccl, "
                "cpu:gloo,cuda:nccl"},
               {"--hosts LIST", "the machines of the ranks, through ssh: node1,node2; none: this machine alone"},
               {"--launch COMMAND", "the command, in quotes, of a launcher that starts a process for each rank"},
               {"--ray", "the nodes of the Ray cluster that `ray status` shows here"}},
     .line = dist_init,
     .in_sessions = true});

}  // namespace
}  // namespace lockstep::shell

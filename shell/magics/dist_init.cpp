// %dist_init starts the ranks.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "protocol/error.h"
#include "shell/jobs/session_hosts.h"
#include "shell/magics/dist_continue.h"
#include "shell/magics/restart.h"
#include "shell/processes/session_plan.h"
#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

constexpr const char* kOthers[] = {"--gpu-ids", "--share-gpu", "--all-gpus-visible", "--backend", "--hosts",
                                   "--launch",  "--ray"};

/// A command has blanks, and stands in quotes.
std::string unquoted(const std::string& text) {
  const bool is_quoted =
      text.size() > 1 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front();
  return is_quoted ? text.substr(1, text.size() - 2) : text;
}

bool is_count_alone(const MagicCall& call) {
  return call.given.count("-n", 0) &&
         std::ranges::none_of(kOthers, [&](const char* each) { return call.given.has(each); });
}

/// Has `size` ranks take cells: the last ones end, or ranks that are dead or new start. The others keep what they hold.
CellOutcome change_size(MagicCall& call, int size) {
  SessionCore& session = call.session;
  check_can_continue(session, "%dist_init in a running session");
  const std::vector<int> live = session.live_ranks().ranks();
  const int missing = size - static_cast<int>(live.size());
  if (missing < 0) {
    const RankSet last(std::vector<int>(live.begin() + size, live.end()));
    const RankSet left = session.dismiss(last);
    if (!left.empty()) throw Error(left.words() + (left.size() == 1 ? " does" : " do") + " not end, even by SIGKILL");
    session.message(
        fmt::format("{} {} ended, the others keep what they hold", last.words(), last.size() == 1 ? "has" : "have"));
    return continue_without_the_dead(call);
  }
  const auto first_dead = [&] {
    std::vector<int> dead = session.dead_ranks().ranks();
    dead.resize(std::min(dead.size(), static_cast<size_t>(missing)));
    return RankSet(std::move(dead));
  };
  const std::optional<int> from = source_of(call, first_dead());
  if (const int more = missing - static_cast<int>(first_dead().size()); more > 0)
    session.grow(session.world_size() + more);
  const auto goes_on = [&] {
    return fmt::format("cells run on {}; %dist_init -n {} starts what is missing", session.live_ranks().words(), size);
  };
  try {
    const CellOutcome outcome = start_again(call, first_dead(), from);
    const bool is_whole = std::ssize(session.live_ranks().ranks()) == size;
    if (!is_whole)
      session.message(goes_on());  // a rank that died meanwhile keeps its place: nobody asked for other numbers
    if (outcome.status != CellStatus::ok || !is_whole || session.live_ranks() == session.default_ranks())
      return outcome;
  } catch (const UsageError&) {
    throw;
  } catch (const Error& error) {
    throw Error(error.what() + ("\n" + goes_on()));
  }
  return continue_without_the_dead(call);
}

CellOutcome dist_init(MagicCall& call) {
  SessionOptions wanted = call.session.options();
  if (const auto n = call.given.count("-n", 0))
    wanted.num_processes = static_cast<int>(std::min<int64_t>(*n, INT32_MAX));
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
  if (wanted.hosts == "none") {  // these are of hosts that are left out now
    wanted.remote_program.clear();
    wanted.start_timeout_s.reset();
  }
  choose_hosts(wanted);

  const bool is_running = call.session.started();
  const auto running = static_cast<int>(call.session.live_ranks().size());
  const int given = wanted.num_processes.value_or(0);
  const bool changes = is_running && is_count_alone(call) && given > 0 && given != running;
  if (call.given.has("--from") && !(changes && given > running))
    throw UsageError(
        "--from copies to ranks that start beside others: in a running session, with a larger -n and no other option");
  if (changes) return change_size(call, given);
  // How many ranks there are on other machines is known when these have answered.
  const int size = wanted.is_here() ? plan_session(wanted).world_size : given;
  if (is_running) {
    call.session.message(fmt::format(
        "{} rank{} {} running already{}", running, running == 1 ? "" : "s", running == 1 ? "is" : "are",
        size == 0 || size == running ? ""
                                     : fmt::format("; for {} of them: %dist_shutdown, then %dist_init again", size)));
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
                "so many ranks; default: one per visible GPU, two on the CPU where there is none. In a running session "
                "the last ones end, or dead and new ones start, which have what %restart gives a rank"},
               {"--from RANK", "then copies the model to ranks that start, as %restart does"},
               {"--gpu-ids,-g L", "the GPUs of the ranks, in order, counted among the visible ones: 0,1"},
               {"--share-gpu",
                "several ranks may share a GPU; their collectives go over gloo, unless --backend says nccl"},
               {"--all-gpus-visible", "each rank sees every GPU; default: its own only, as cuda:0"},
               {"--backend B",
                "of the collectives: auto (nccl for tensors on GPUs, shared_memory for ranks on the CPU of one "
                "machine, gloo for others), gloo, shared_memory, nccl, cpu:gloo,cuda:nccl"},
               {"--hosts LIST", "the machines of the ranks, through ssh: node1,node2; none: this machine alone"},
               {"--launch COMMAND", "the command, in quotes, of a launcher that starts a process for each rank"},
               {"--ray", "the nodes of the Ray cluster that `ray status` shows here"}},
     .line = dist_init,
     .in_sessions = true});

}  // namespace
}  // namespace lockstep::shell

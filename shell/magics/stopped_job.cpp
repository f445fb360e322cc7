// %continue, %detach, %where, %up and %down work at a prompt over a Python job whose ranks have stopped. %detach leaves a
// detachable session, too.
#include "protocol/error.h"
#include "shell/jobs/agent_client.h"
#include "shell/jobs/job_group.h"
#include "shell/scripts/magic_arguments.h"
#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

constexpr std::chrono::milliseconds kAgentLimit{2000};

void check_job(const MagicCall& call, const char* name) {
  if (!call.session.options().job)
    throw UsageError(std::string("%") + name +
                     " is for a prompt over a Python job: lockstep attach (docs/python-prompt.md)");
  call.session.start();
}

/// Returns where the ranks are, a line for each place.
std::string places_of_job(const MagicCall& call) {
  return call.session.job()->places(RankSet::all(call.session.world_size()));
}

CellOutcome resume(MagicCall& call) {
  check_job(call, "continue");
  if (const RankSet busy = call.session.busy_ranks(); !busy.empty())
    call.session.message(busy.words() + " goes on when the cell ends there");
  if (call.session.options().ends_at_continue) return {.findings = {}, .exit_requested = true};
  call.session.resume_job();
  call.session.message(places_of_job(call));
  return {};
}

CellOutcome detach(MagicCall& call) {
  const std::optional<std::string> time = call.given.word();
  if (!call.session.options().job) {
    if (!call.session.options().detach)
      throw UsageError(
          "this session ends with its terminal; lockstep --detachable starts one that %detach leaves running");
    std::optional<int64_t> seconds;
    if (time) seconds = parse_time(*time).count();
    call.session.options().detach(seconds);
    return {};
  }
  if (time) throw UsageError("%detach takes no time at a prompt over a Python job, which trains on for good");
  check_job(call, "detach");
  const RankSet ranks = call.session.live_ranks() - call.session.busy_ranks();
  if (!ranks.empty()) {
    const CodeResult result = call.session.run_builtin(protocol::function::Detach(), ranks);
    if (result.status != CellStatus::ok) return {.status = result.status, .findings = {}};
  }
  // These are the others, and those in a cell: their agents answer at any time.
  RankSet unknown = RankSet::all(call.session.world_size());
  for (const auto& [rank, answer] :
       ask_ranks(call.session.job()->members(unknown), {{"request", "detach"}}, kAgentLimit))
    if (answer.error.empty()) unknown.erase(rank);
  unknown = unknown - ranks;
  if (!unknown.empty()) call.session.message(unknown.words() + " can't be asked from here: breakpoints stay there");
  return {.findings = {}, .exit_requested = true};
}

CellOutcome move(MagicCall& call, const char* name, int direction) {
  check_job(call, name);
  const std::optional<std::string> word = call.given.word();
  const int64_t count = word ? parse_count(*word, "the number of frames") : 1;
  const CodeResult result =
      call.session.run_builtin(protocol::function::Frame{direction * count}, call.session.target_ranks());
  return {.status = result.status, .findings = {}};
}

CellOutcome stop(MagicCall& call) {
  check_job(call, "stop");
  if (!call.session.stop_job()) return {.status = CellStatus::interrupted, .findings = {}};
  call.session.message(places_of_job(call));
  return {};
}

const RegisterMagic kStop({.name = "stop",
                           .summary = "all ranks of the job stop after the same training step",
                           .help = "Steps are those that lockstep.step() or an optimizer that lockstep.watch knows "
                                   "counts. Until continue.",
                           .line = stop,
                           .only_in_jobs = true});

const RegisterMagic kContinue({.name = "continue",
                               .summary = "the job trains on, up to the next breakpoint",
                               .help = "The word alone is the same: continue.\nThe prompt is back when ranks stop "
                                       "again, or with Ctrl-C. Ctrl-D lets the job go on and leaves.",
                               .line = resume,
                               .only_in_jobs = true});

const RegisterMagic kDetach({.name = "detach",
                             .summary = "leaves a detachable session, which goes on; over a Python job: lets it go on "
                                        "without further breakpoints, and leaves",
                             .help = "lockstep --detachable starts a session that can be left, also while a cell runs; "
                                     "lockstep --resume ID comes back to it.\n"
                                     "Over a Python job the word alone is the same: detach. lockstep.breakpoint() does "
                                     "nothing from then on.",
                             .takes = {{"[TIME]", "how long the session waits: 90s, 30m, 8h, 2d"}},
                             .line = detach,
                             .in_jobs = true,
                             .in_sessions = true});

const RegisterMagic kWhere(
    {.name = "where",
     .summary = "the Python frames of the ranks, and the one in which cells run",
     .help = "The word alone is the same: where. Innermost last, as in pdb. %up and %down select another frame.",
     .line = [](MagicCall& call) { return move(call, "where", 0); },
     .only_in_jobs = true});

const RegisterMagic kUp({.name = "up",
                         .summary = "cells run in the frame that has called this one",
                         .takes = {{"[N]", "that many frames"}},
                         .line = [](MagicCall& call) { return move(call, "up", 1); },
                         .only_in_jobs = true});

const RegisterMagic kDown({.name = "down",
                           .summary = "cells run in the frame that this one has called",
                           .takes = {{"[N]", "that many frames"}},
                           .line = [](MagicCall& call) { return move(call, "down", -1); },
                           .only_in_jobs = true});

}  // namespace
}  // namespace lockstep::shell

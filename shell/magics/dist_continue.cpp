// %dist_continue lets the ranks that live go on as the default group, without the dead ones.
#include "shell/magics/dist_continue.h"

#include <fmt/format.h>

namespace lockstep::shell {
namespace {

std::string report_on(const RankSet& ranks) {
  const std::vector<int>& list = ranks.ranks();
  std::string numbers;
  for (size_t i = 0; i < list.size(); ++i)
    if (list[i] != static_cast<int>(i))
      numbers += fmt::format("{}rank {} is {}", numbers.empty() ? "" : ", ", list[i], i);
  std::string text =
      fmt::format("{} {} the default group of {} now", ranks.words(), list.size() == 1 ? "is" : "are", list.size());
  if (!numbers.empty()) text += ". In cells they count from 0: " + numbers + "; here they keep their numbers";
  return text;
}

/// Brings wrappers in step, and shows what goes on in Python, and what has to be made again.
CellOutcome report_of_python(MagicCall& call) {
  CellSettings settings;
  settings.ranks = call.session.live_ranks();
  settings.own_names = true;
  const std::string code = "__import__('lockstep.session._members', fromlist=['run']).run()";
  return {.status = call.session.run_python(code, settings, 1).status, .findings = {}};
}

}  // namespace

void check_can_continue(const SessionCore& session, const std::string& name) {
  if (!session.options().can_continue())
    throw UsageError(name + " needs the backend lockstep: ranks with --backend " + session.options().backend +
                     " can't connect again. %dist_reset starts all ranks afresh");
}

CellOutcome continue_without_the_dead(MagicCall& call) {
  const RankSet live = call.session.live_ranks();
  if (live.empty()) throw UsageError("no rank is left: %restart starts them again, %dist_reset starts afresh");
  if (!call.session.continue_without_the_dead())
    return {.status = call.session.is_interrupted() ? CellStatus::interrupted : CellStatus::error, .findings = {}};
  call.session.message(report_on(live), {{"default_group", live}});
  return call.session.options().has_python_ranks() ? report_of_python(call) : CellOutcome();
}

namespace {

CellOutcome dist_continue(MagicCall& call) {
  SessionCore& session = call.session;
  if (!session.started()) throw UsageError("no ranks are running: the next cell starts them");
  check_can_continue(session, "%dist_continue");
  return continue_without_the_dead(call);
}

const RegisterMagic kDistContinue(
    {.name = "dist_continue",
     .summary = "goes on without dead ranks: the default group is then the ranks that live",
     .help = "`rank`, `world_size`, dist:: and DistributedDataParallel follow: ranks count from 0 there, in their "
             "order. At "
             "the prompt\nthey keep their numbers. %restart takes a dead rank in again. Not while a rank is in a cell: "
             "%abort frees it.\nIn Python it lists what follows, and what has to be made again.",
     .line = dist_continue,
     .in_sessions = true});

}  // namespace
}  // namespace lockstep::shell

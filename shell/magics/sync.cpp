// %sync is a barrier over all ranks, and shows how long each waited in it.
#include <fmt/format.h>

#include <algorithm>

#include "protocol/error.h"
#include "shell/session/session_core.h"
#include "shell/session/timing.h"

namespace lockstep::shell {
namespace {

CellOutcome sync(MagicCall& call) {
  call.session.start();
  if (const RankSet busy = call.session.busy_ranks(); !busy.empty())
    throw UsageError(busy.words() + (busy.size() == 1 ? " is" : " are") + " still in a cell: %abort frees " +
                     (busy.size() == 1 ? "it" : "them") + ", then %sync");
  const CodeResult result = call.session.run_builtin(protocol::function::Barrier(), call.session.live_ranks());
  if (result.status != CellStatus::ok) return {.status = result.status, .findings = {}};
  std::string text = "barrier over ranks " + result.ranks.str() + "; waited:";
  nlohmann::json waited = nlohmann::json::object();
  for (const auto& [rank, ms] : result.run_ms) {
    text += fmt::format("{} rank {} {}", rank == result.run_ms.begin()->first ? "" : ",", rank, duration_text(ms));
    waited[std::to_string(rank)] = ms;
  }
  call.session.message(std::move(text), {{"waited_ms", waited}});
  return {};
}

const RegisterMagic kSync({.name = "sync",
                           .summary = "barrier over all ranks, with the time each waited",
                           .help = "All live ranks; %rank does not change that.",
                           .line = sync,
                           .in_sessions = true});

}  // namespace
}  // namespace lockstep::shell

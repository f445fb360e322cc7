#include "shell/terminal/resumable.h"

#include <fmt/format.h>

#include "protocol/error.h"
#include "protocol/version.h"
#include "shell/journal/journal_folder.h"
#include "shell/text/suggest.h"

namespace lockstep::shell {
namespace {

/// Explains that no session of that id can be resumed: it may have ended.
[[noreturn]] void throw_not_there(const std::string& id) {
  std::vector<std::string> ids;
  for (const DetachableSession& each : detachable_sessions()) ids.push_back(each.state.id);
  for (const JournalInfo& journal : read_journals()) {
    if (id == "last" || !journal.id.starts_with(id)) continue;
    if (journal.is_open)
      throw UsageError("the session " + journal.id + " runs, but was not started with --detachable on this machine");
    throw UsageError(fmt::format(
        "the session {} has ended; lockstep sessions show {} shows it, lockstep run --journal {} runs its cells again",
        journal.id, journal.id, journal.id));
  }
  throw UsageError("there is no detachable session" + (id == "last" ? "" : " " + id + did_you_mean(id, ids)) +
                   " on this machine; `lockstep sessions list` shows those that run");
}

}  // namespace

DetachableSession find_resumable(const std::string& id) {
  if (id.empty()) throw UsageError("--resume takes the id of a session, its beginning, or last");
  std::optional<DetachableSession> session = find_detachable(id);
  if (!session) throw_not_there(id);
  if (session->state.problem.empty() && session->state.protocol != kProtocolVersion)
    throw UsageError(words_of_other_version(session->state.id));
  return std::move(*session);
}

}  // namespace lockstep::shell

// The options that a session keeps in its journal, so that its cells can run again, and the limits of the journal.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "shell/journal/journal_folder.h"
#include "shell/processes/session_options.h"

namespace lockstep::shell {

/// Returns the limits of the options and of LOCKSTEP_JOURNAL. Throws UsageError.
JournalLimits limits_of_journal(const SessionOptions& options);

nlohmann::json description_for_journal(const SessionOptions& options, const std::string& directory);

/// Sets options that the user has not given as they were in the session of `description`, which may be damaged.
/// `ranks` is the number of its ranks; 0: unknown.
void set_options_as(const nlohmann::json& description, int ranks, SessionOptions& options);

}  // namespace lockstep::shell

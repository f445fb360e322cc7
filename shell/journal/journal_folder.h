// Journals of this user's sessions: where they are, which there are, and how old ones go.
//
//   $XDG_STATE_HOME/lockstep/sessions/ID/ (~/.local/state/lockstep/sessions/ID/), mode 0700
//     cells.jsonl       cells, and how they ended; errors, findings, ranks that died. This file stays
//     cells-1.jsonl …   the same, once that file has its share of the session's limit. The oldest of these files goes
//                       when all have more than the limit
//     output-1.jsonl …  output, values, messages: the same
//
// A session holds a lock on its cells.jsonl while it lives, which works on a home that machines share, too.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::shell {

/// Says how much is kept. LOCKSTEP_JOURNAL may say otherwise.
struct JournalLimits {
  bool is_off = false;
  int64_t output_mb = 64;  // of a session; its cells have as much beside it
  int64_t sessions = 200;  // that have ended
  int64_t days = 90;
  int64_t all_mb = 2048;  // of all sessions that have ended
};

/// Reads "off", or "size=MB,sessions=N,days=N,all=MB". Throws UsageError.
JournalLimits parse_journal_limits(std::string_view text);
/// Returns the limits of LOCKSTEP_JOURNAL, or the defaults. Throws UsageError.
JournalLimits journal_limits();

/// Returns the folder of all journals; empty where the user has no home.
std::string journals_folder();
/// Returns the path of its first file of cells, or of one of those that follow.
std::string cells_path(const std::string& journal, int64_t number = 0);
std::string output_path(const std::string& journal, int64_t number);
/// Returns the numbers of its files of cells behind the first one, and of those of output, ascending.
std::vector<int64_t> more_cells_files(const std::string& journal);
std::vector<int64_t> output_files(const std::string& journal);

struct JournalInfo {
  std::string id, path;
  bool is_open = false;  // its session runs
  int64_t changed_ns = 0;  // since 1970
  uint64_t bytes = 0;
};

/// Returns the journals in `folder`, oldest change first.
std::vector<JournalInfo> read_journals(const std::string& folder = journals_folder());

/// Returns the one that `id`, the beginning of an id, or "last" (of those that have ended) means. Throws UsageError.
JournalInfo find_journal(const std::string& id);

/// Removes it. Returns why that failed, empty where it did not; one whose session runs stays.
std::string remove_journal(const JournalInfo& journal);

/// Removes the oldest ones of sessions that have ended, beyond `limits`. Returns their ids.
std::vector<std::string> remove_old_journals(const JournalLimits& limits,
                                             const std::string& folder = journals_folder());

}  // namespace lockstep::shell

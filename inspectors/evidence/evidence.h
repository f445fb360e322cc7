// Says what is known of collectives without the ranks' help: from the Flight Recorder of c10d, NCCL's RAS, errors of
// communicators, and the collective log of a rank with the backend `lockstep`, which says what it was called for. Each
// reader (flight_recorder.h, ras.h, async_errors.h) fills in the same facts, so that a verdict can compare them and
// name their source. Plain values, without CUDA and LibTorch.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/error.h"
#include "protocol/rank_set.h"

namespace lockstep::inspect {

/// No reader understands the text: it is damaged, cut off, or of another version. The message begins with its origin.
struct UnreadableEvidence : Error {
  using Error::Error;
};
/// It takes more than its reader's limit (inspectors/pickle/reading_limit.h).
struct EvidenceTooLarge : UnreadableEvidence {
  using UnreadableEvidence::UnreadableEvidence;
};

enum class EvidenceSource { flight_recorder, ras, async_error, collective_log };
/// Returns "the Flight Recorder", "NCCL's RAS" or "NCCL's asynchronous errors", for a sentence.
const char* source_words(EvidenceSource source);

/// Says how far a collective has come on one rank. `scheduled`: the call has queued it; `started`: the stream has
/// reached it; `completed`: it has ended there.
enum class EvidenceState { scheduled, started, completed };
const char* state_words(EvidenceState state);  // "scheduled"

struct EvidenceFrame {
  std::string function, file;
  int64_t line = 0;
  bool operator==(const EvidenceFrame&) const = default;
};

/// A collective or a message of one rank.
struct EvidenceCall {
  std::string group;  // as its source names it: "0"
  std::string group_description;  // "default_pg"
  int64_t seq = 0;  // number among the collectives of the group; of a message: among its messages. From 1
  int64_t record = 0;  // number among all calls of the recorder
  std::string op;  // as in dist::, "all_reduce"; the source's own word for others
  std::string backend;  // "nccl"
  std::string
      variant;  // of a collective, what else is alike on all ranks: "root 1", "SUM"; empty if unknown or nothing
  /// A digest of what has to be alike on all ranks; 0: unknown, or ranks do not compare their calls.
  uint64_t signature = 0;
  bool point_to_point = false;
  int peer = -1;  // of a message: rank within the group, -1 if unknown
  EvidenceState state = EvidenceState::scheduled;
  bool retired = false;  // the source does not watch it any more; on NCCL, if it is not completed, its time has run out
  std::vector<std::vector<int64_t>> input_shapes, output_shapes;
  std::vector<std::string> input_dtypes, output_dtypes;  // "float32"
  int64_t created_ns = 0, started_ns = 0, completed_ns = 0;  // CLOCK_REALTIME; 0: unknown or not yet
  std::optional<double> duration_ms, timeout_ms;
  std::vector<EvidenceFrame> frames;  // innermost first; empty if the source has none
};

/// torch.distributed describes the group of all ranks so.
inline constexpr const char* kDefaultGroup = "default_pg";

/// One rank of a group.
struct EvidenceMember {
  int group_rank = -1;  // within the group; -1 if unknown
  int rank = -1;  // of the default group; -1 if unknown
  std::string host;
  int64_t pid = 0;
  int device = -1;
  bool missing = false;  // the source got no facts of this rank, for one of the next two reasons or because it has left
  bool unresponsive = false;  // its process did not answer
  bool dead = false;  // its process did not answer for so long that the source gave it up
  bool initializing = false, finalizing = false, destroyed = false, aborted = false;
  std::string error;  // "remote error"; empty: none
  bool remote = false;  // the error reports what happened to another rank
  std::map<std::string, int64_t> counts;  // operation as in dist:: → how many were launched
  std::optional<int64_t> last_scheduled, last_started, last_completed;  // numbers of collectives
};

struct EvidenceGroup {
  std::string name, description;
  int size = 0;  // 0 if unknown
  std::vector<int> ranks;  // of the default group, in the order of the group's ranks; empty if unknown
  std::vector<EvidenceMember> members;  // of which the source has facts

  const EvidenceMember* member(int group_rank) const;
};

/// A communicator's error at a moment.
struct EvidenceError {
  int rank = -1;  // of the default group
  std::string group;
  int64_t time_ns = 0;  // CLOCK_REALTIME
  std::string error;  // "remote error", "system error"; empty: there is none any more
  bool remote = false;  // a consequence: another rank failed or left
  int peer = -1;  // rank of the default group that the error names; -1: none
};

/// Holds all facts of one dump, answer or sequence.
struct Evidence {
  EvidenceSource source{};
  std::string origin;  // "comm_lib_trace_rank_3", "localhost:28028"
  std::string version;  // of the format or library: "2.10", "2.28.9"
  std::optional<int> rank;  // whose dump this is
  int64_t taken_ns = 0;  // CLOCK_REALTIME; 0 if unknown
  double gathered_s = 0;  // how long the source took to gather it
  int timeouts = 0;  // answers that the source waited for and did not get
  std::vector<EvidenceGroup> groups;
  std::vector<EvidenceCall> calls;  // in the order of the calls
  std::vector<EvidenceError> errors;  // in order of time

  const EvidenceGroup* group(std::string_view name) const;
};

/// A collective on all ranks, from the dumps of several.
struct EvidenceRow {
  std::string group;
  int64_t seq = 0;
  std::string op;  // of the lowest rank
  std::map<int, const EvidenceCall*> calls;  // rank → its call
  RankSet missing;  // ranks of the group that have not called it, by their dumps
  RankSet unknown;  // ranks of the group without a dump, and those whose dump begins later

  RankSet in_state(EvidenceState state) const;
};

/// The collectives of every group side by side, by group and number; messages are left out. `dumps`: of different
/// ranks; those without a rank are skipped. The result refers to them.
std::vector<EvidenceRow> side_by_side(const std::vector<const Evidence*>& dumps);

/// Removes the calls of groups that the program has destroyed, where it has made groups of the same names since:
/// numbers begin again with 1 then. It is for the dump or log of one rank.
void drop_destroyed_groups(Evidence& evidence);

/// Sets the ranks of members and errors from their processes: `ranks` has pid → rank, all of one machine.
void name_ranks(Evidence& evidence, const std::map<int64_t, int>& ranks);

}  // namespace lockstep::inspect

// Holds what a dead or stuck job left behind, as facts: dumps of the Flight Recorder and other evidence of NCCL and
// c10d, the exceptions that ended ranks, and stacks. It is for any job that uses torch.distributed, without Lockstep.
// Plain values, without LibTorch.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inspectors/evidence/evidence.h"
#include "protocol/rank_set.h"
#include "protocol/verdict.h"

namespace lockstep::inspect {

/// Says what ended a rank.
struct RankError {
  int rank = -1;  // -1 if unknown
  std::string type;  // "RuntimeError", "torch.distributed.DistBackendError", "Fatal Python error"
  std::string message;  // the first line
  int64_t time_s = 0;  // CLOCK_REALTIME; 0 if unknown
  std::vector<EvidenceFrame> frames;  // innermost first; may be empty
  std::string origin;
};

/// Says what a thread of a rank did at a moment.
struct RankStack {
  int rank = -1;
  std::string thread;  // as its source names it: "MainThread", "0x00007f3a"
  bool is_main = false;  // the main thread, or the one that dumped
  std::vector<EvidenceFrame> frames;  // innermost first
  std::string origin;
};

/// Says what a rank does, or how it ended, as who watched it saw it.
struct RankDoing {
  int rank = -1;
  FindingKind kind = FindingKind::unknown;  // sleeping, lock, loading_data, finished, died, …
  std::string words;  // "sleeps", "was killed by SIGKILL": after the name of the rank
  bool ended = false;  // its process is gone
  bool at_fault = false;  // it died, and of nothing that happened to another rank
  int64_t time_s = 0;  // of its end, CLOCK_REALTIME; 0 if unknown
  std::map<std::string, int64_t> calls;  // of a rank that has ended: group → its last collective; empty if unknown
  // These are of a rank that was looked at from outside.
  std::string op;  // "all_reduce": what of torch.distributed it waits in, by its stack; empty: nothing, or unknown
  bool has_moved = false;  // its main thread has run since it was looked at first
};

/// Says how ranks of a running job were looked at that nobody watches: `doing` and `stacks` are of that.
struct OutsideLook {
  RankSet world, elsewhere;  // elsewhere: on other machines, and not looked at
};

struct Remains {
  std::vector<RankDoing> doing;
  std::vector<Evidence> evidence;
  std::vector<RankError> errors;
  std::vector<RankStack> stacks;
  std::optional<OutsideLook> look;
  int64_t files = 0;  // in which something was found
  std::vector<std::string> unread;  // what was not read or not used, and why, a sentence each
};

/// Whether a frame is of the program: not of Python itself, nor of installed packages, nor of headers of the C++ library
/// or of LibTorch.
bool is_of_program(const EvidenceFrame& frame);

/// Returns the innermost frame of the program. If there is none, it is the innermost; null without frames.
const EvidenceFrame* program_frame(const std::vector<EvidenceFrame>& frames);

}  // namespace lockstep::inspect

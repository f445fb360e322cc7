// What a rank records goes into three files of its job's folder. They are ordinary files that are written to and never
// mapped: the kernel has what was written also after the rank was killed. `opening` has all calls before the first step
// and the first two steps, which a replay runs, too: wrappers such as DDP come to the order of their buckets there.
// The two others take turns: each has the state at its first step and the calls of `steps` steps, and when it is full,
// the other one begins anew. So the last `steps` steps are always there, and up to twice as many.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/record/records.h"
#include "protocol/descriptor.h"

namespace lockstep::dist {

inline constexpr int64_t kOpeningSteps = 2;
inline constexpr int kMostRecordedSteps = 10000;

/// Whether a segment with the state at its beginning begins at step `step` (from 0).
inline bool begins_segment(int64_t step, int64_t steps) {
  return step >= kOpeningSteps && (step - kOpeningSteps) % steps == 0;
}

std::string record_file(const std::string& folder, int rank, int slot);

/// Writes the files of one rank. Not from two threads at once.
class RankFiles {
 public:
  /// Removes what an earlier process of this rank has left there. Throws Error.
  RankFiles(const std::string& folder, int rank);

  /// From here on records belong to the next segment, which takes the place of the one before the last. Throws Error.
  void begin_segment();
  uint64_t segment() const { return segment_; }
  /// Appends to segment `segment`, which may be the last one or the one before; nothing happens if it is gone. Returns 0
  /// or the errno.
  [[nodiscard]] int append(uint64_t segment, RecordKind kind, const nlohmann::json& text,
                           const std::vector<std::string_view>& payload = {});

 private:
  struct Slot {
    Descriptor file;
    RecordWriter writer;
    uint64_t segment;
  };
  Slot open_slot(int slot, uint64_t segment) const;

  const std::string folder_;
  const int rank_;
  uint64_t segment_ = 0;  // 0 is `opening`
  std::vector<Slot> slots_;
};

/// A record, and the file that its payload is in.
struct LeftRecord {
  Record record;
  int file = 0;  // an index of LeftRecords::files
};
struct LeftRecords {
  std::vector<Descriptor> files;
  std::vector<LeftRecord> records;  // of `opening`, and of the segments that begin with a whole state, in order
};

/// Reads what a rank has left; no records where there are none. The rank may still run.
LeftRecords read_rank_files(const std::string& folder, int rank);

}  // namespace lockstep::dist

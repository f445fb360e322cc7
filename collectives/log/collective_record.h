// A record is one collective as the log has it: who called what, on which group, from where, and how far it got.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "protocol/finding.h"

namespace lockstep::dist {

enum class CollectiveState : uint8_t { entered, done, failed };

/// Stages of a collective that a device does: the call has queued it and nobody has looked since (`enqueued`), its
/// stream has not come to it (`waiting_for_stream`), its stream has come to it and another collective of the group
/// comes first (`ready`), it has started, it is done. One that the host does is `entered`, `done` or `failed`.
enum class CollectiveStage : uint8_t { entered, enqueued, waiting_for_stream, ready, started, done, failed };
/// Returns the name in JSON: "waiting_for_stream".
const char* stage_name(CollectiveStage stage);

/// Whether it is the name of a cell of Python: "<cell 7>".
bool is_cell(const std::string& file);

/// A line of a program.
struct CallPlace {
  std::string file;  // empty: unknown
  int64_t line = 0;
  std::string function;

  /// Returns "train.py:88 in step", "train+0x4a1b" or "cell 7, line 4"; empty where the place is unknown.
  std::string str() const;
  /// Returns "train.py, line 88", or "cell 7, line 4" for a cell of Python; empty where the place is unknown.
  std::string line_str() const;
};

struct CollectiveRecord {
  std::string group;  // "default"
  int64_t seq = 0;  // per group, from 1; per peer and direction for send and recv
  std::string op;  // "all_reduce", as in dist::
  std::string dtype;  // "float32"; empty where there is no tensor
  std::vector<int64_t> shape;  // of the first tensor, at most eight dimensions
  int tensor_count = 0;
  int root = -1;  // rank of the default group; -1: the operation has none
  int tag = 0;  // of send and recv
  int64_t tag_seq = 0;  // number among the sends to (recvs from) that peer with that tag; 0: not counted
  std::string reduce_op;  // "SUM"; empty: the operation has none
  int64_t bytes = 0;  // of this rank's input
  uint64_t call_site = 0;  // return address in the user's code; 0 where unknown
  std::optional<int64_t> site_cell;  // the cell whose code holds call_site, and the offset in it
  uint64_t site_offset = 0;
  CallPlace place;  // of what is no cell
  int64_t cell = 0;  // current cell and step when it was entered; 0: none
  int64_t step = 0;
  int64_t entered_ns = 0;  // CLOCK_MONOTONIC
  int64_t done_ns = 0;  // 0 until done
  CollectiveState state = CollectiveState::entered;
  bool point_to_point = false;
  /// Whether the call came from c10d itself (a Reducer) or a user of c10d, not through dist:: or torch.distributed.
  bool through_c10d = false;
  bool async = false;  // the call returned at once; somebody waits for it later, if at all
  int32_t thread = 0;  // the kernel's number of the thread that called
  uint64_t entry = 0;  // number in its rank's log
  bool on_device = false;  // its tensors are on a device; what follows is for these: CLOCK_MONOTONIC, 0 where unknown
  int64_t looked_ns = 0;  // when somebody looked last how far it is
  int64_t reached_ns = 0;  // its stream had come to it by then
  int64_t started_ns = 0;

  CollectiveStage stage() const;
};

/// Returns "all_reduce float32 [1000] SUM", as errors and tables name it.
std::string describe(const CollectiveRecord& record);

/// Whether it sends to (is_send), or receives from, one rank: tensors or objects.
bool is_send(const CollectiveRecord& record);
bool is_recv(const CollectiveRecord& record);

/// Whether two ranks may call these at the same place of a group.
bool fit_together(const CollectiveRecord& a, const CollectiveRecord& b);

FindingOp to_finding_op(const CollectiveRecord& record);

}  // namespace lockstep::dist

// What the worker of a session calls: bring the groups up, say which cell runs, free the run thread from a collective,
// ask how far it got. No LibTorch in here.
//
// Threads: start_session_group, regroup_session and end_session_group on the run thread; everything else from any
// thread, at once, whatever the run thread does.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collectives/log/collective_record.h"
#include "collectives/log/long_waits.h"
#include "protocol/dist_error.h"
#include "protocol/rank_set.h"

namespace lockstep::dist {

struct SessionGroupOptions {
  int rank = 0;
  int world_size = 1;
  std::string store_address;     // "127.0.0.1:PORT" of the session's TCPStore
  std::string store_key;         // under which the session's keys stand in it
  std::string backend = "gloo";  // "auto", "gloo", "nccl"
  std::string device = "cpu";    // "cpu", "cuda:0"
  std::string log_path;          // "<session>/rank-R/log"; empty: anonymous memory
  bool check_collectives = true;
  double timeout_s = 1800;  // of each collective
  double connect_timeout_s = 60;
  int64_t generation =
      0;  // above 0: this process replaces a lost rank; it connects with regroup_session(generation, …)
};

/// Makes the default group. Collective over all ranks. Throws Error naming the ranks that did not come.
void start_session_group(const SessionGroupOptions& options);
/// Local: closes every group. Nothing of it waits for a peer.
void end_session_group();

/// dist::regroup without LibTorch's types, for protocol::Regroup.
void regroup_session(int64_t generation, const RankSet& ranks, double timeout_s);
/// Whether a group of this rank was aborted or has failed, so that collectives need a regroup first
/// (protocol::Done::regroup).
bool needs_regroup();

/// The cell (0: none) and step that collectives entered from now on are logged with.
void set_thread_context(int64_t cell, int64_t step = 0);

/// What people call a cell, which a session may run in pieces; a piece that nobody has named is called as it is numbered.
void name_cell(int64_t cell, int64_t number);
int64_t cell_number(int64_t cell);

/// A cell that this process has run, or runs: CLOCK_MONOTONIC, in nanoseconds; end_ns is 0 while it runs.
struct CellSpan {
  int64_t cell = 0, begin_ns = 0, end_ns = 0;
};
/// The last 1,000, oldest first, as set_thread_context was told of them.
std::vector<CellSpan> cell_spans();

/// Code of a loaded cell, so that a reader of the log can say cell and offset of a call site.
/// False when the table is full: the call sites of this cell stay addresses.
bool register_code_range(int64_t cell, const void* begin, size_t size);

/// dist::abort (declared here, too, so that the I/O thread needs no LibTorch header).
void abort(const std::string& reason);

/// Group → sequence number of the last collective entered, for protocol::Done::collectives.
std::map<std::string, int64_t> progress();

/// The collective that this rank sits in now: the oldest one entered and not done of those that threads wait in, else
/// of all.
std::optional<CollectiveRecord> current_collective();
/// All that were entered and are not done, oldest first.
std::vector<CollectiveRecord> collectives_in_flight();
/// The newest `count` records, oldest first.
std::vector<CollectiveRecord> last_collectives(size_t count);

/// Another rank has left `cell` having entered that many collectives per group (protocol::PeerDone). When this rank
/// sits in a later one, or enters one while `cell` is still its current cell, the waiting callback is called.
void peer_left(int64_t cell, int rank, const std::string& how, const std::map<std::string, int64_t>& progress);

/// A rank that sits in collectives for long says so once for each: long_waits() gives those that are new, and when to ask
/// again. `wake` is called from a thread that enters a collective when it is time to ask afresh; while none is entered
/// nobody asks. Before start_session_group.
void watch_long_waits(double limit_s, std::function<void()> wake);
LongWaits::Look long_waits();

/// Names lines of cells in what is said of collectives that do not match: code address → "cell 7, line 4". Once, at start.
void set_place_of(std::function<std::string(uint64_t code_address)> place_of);
/// Where this rank has the code at `offset` of a cell; 0 where it has not loaded it.
uint64_t code_address(int64_t cell, uint64_t offset);

/// Called (from the thread that noticed, at most once per collective and set of ranks) with the collective and the
/// ranks that can no longer enter it within the cell. Before or after start_session_group.
void set_waiting_callback(std::function<void(const CollectiveRecord& record, const RankSet& missing)> callback);

}  // namespace lockstep::dist

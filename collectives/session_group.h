// The worker of a session calls these functions to make the groups, to set the current cell, to free the run thread
// from a collective, and to ask for the progress. No LibTorch in this header.
//
// Threads: start_session_group, regroup_session and end_session_group on the run thread. Everything else is for any
// thread and returns at once, also while the run thread is stuck.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/log/collective_record.h"
#include "collectives/log/long_waits.h"
#include "protocol/dist_error.h"
#include "protocol/rank_set.h"

namespace lockstep::dist {

class Player;
class Recorder;

struct SessionGroupOptions {
  int rank = 0;
  int world_size = 1;
  std::string store_address;  // "127.0.0.1:PORT" of the session's TCPStore
  std::string store_key;  // under which the session's keys stand in it
  std::string backend = "gloo";  // "gloo", "nccl", "cpu:gloo,cuda:nccl"; "auto": the last for ranks on GPUs
  std::string device = "cpu";  // "cpu", "cuda:0"
  std::string log_path;  // "<session>/rank-R/log"; empty: anonymous memory
  bool check_collectives = true;
  double timeout_s = 1800;  // of each collective
  double connect_timeout_s = 60;
  int64_t generation = 0;  // above 0: this process replaces a lost rank, and connects by regroup_session(generation, …)
  std::shared_ptr<Player> player;  // stands for the other ranks in a replay; null: no replay
};

/// Registers the plug-in's process groups for tensors on GPUs; the first group sets the environment that they need
/// (transport/nccl_environment.h). Returns why that can't be done, or an empty text. Called before start_session_group.
std::string register_nccl();

/// Makes the default group. Collective over all ranks. Throws Error naming the ranks that did not come.
void start_session_group(const SessionGroupOptions& options);
/// Throws Error where this rank can't be recorded: it is or was recorded, or has made collectives, groups or marks of
/// steps. Local.
void check_recordable();
/// Records what this rank receives from its collectives from now on. Local.
void record_session(std::shared_ptr<Recorder> recorder);
/// Begin and end a cell on a rank that is recorded or replayed. `number` is the cell's number for users. Local. The
/// former throws Error in a replay where the recorded rank had made calls that this run has not, or lacks the cell.
void begin_recorded_cell(int64_t number);
void end_recorded_cell(bool succeeded);
/// Returns the number of the next mark of a step (ddp::step) in this process, from 0.
int64_t take_step_number();
/// Whether this process has taken the place of a lost rank and lacks its generators. False after end_replacement().
bool is_replacement();
void end_replacement();
/// Closes every group, without waiting for a peer. Local.
void end_session_group();

/// Does what dist::regroup does, without LibTorch's types, for protocol::Regroup. The ranks `members` of the session
/// are the default group from then on; empty: as before. `aborts`: abort_count() when the message came, since an abort
/// that comes before the run thread is at the message ends it as well.
void regroup_session(int64_t generation, const RankSet& ranks, const RankSet& members, double timeout_s,
                     int64_t aborts);
/// The session has so many ranks from now on, and later groups have this backend; empty or auto: as before. The
/// regroup that follows connects them. Local.
void resize_session(int world_size, const std::string& backend);
/// Returns how often the groups of this rank were aborted.
int64_t abort_count();
/// Makes the ranks `members` of the session the default group, unconnected, in a process that replaces a lost rank and
/// runs its cells again; empty: all ranks. Local.
void set_session_members(const RankSet& members);
/// This rank's number in the default group, and the size of the group. rank_number() returns nothing without a group.
struct RankNumber {
  int rank = 0, world_size = 1;
};
std::optional<RankNumber> rank_number();
/// Whether a group of this rank was aborted or has failed, so that collectives need a regroup first
/// (protocol::Done::regroup).
bool needs_regroup();

/// Returns the number that goes into the name of this rank's next group; 1 without a default group. Ranks have the same
/// groups under the same names, so a process that replaces a rank counts as that rank did. On the run thread.
int next_group_number();
void set_next_group_number(int number);

/// Throws Aborted, TimedOut or PeerLeft where a collective on a device was cut off and no call of the step has thrown:
/// what the step read from the device is invalid then. On the run thread, after a step of a cell.
void check_device_works();

/// Sets the cell (0: none) and the step that collectives entered from now on are logged with.
void set_thread_context(int64_t cell, int64_t step = 0);

/// Sets the number that the user sees for `cell`. A session may run a cell in pieces, each with an id; without a name
/// the id is the number.
void name_cell(int64_t cell, int64_t number);
int64_t cell_number(int64_t cell);

/// A cell that this process has run or runs. Times are CLOCK_MONOTONIC in nanoseconds; end_ns is 0 while it runs.
struct CellSpan {
  int64_t cell = 0, begin_ns = 0, end_ns = 0;
};
/// Returns the last 1,000 cells, oldest first, as set_thread_context got them.
std::vector<CellSpan> cell_spans();

/// Registers the code of a loaded cell, so that a reader of the log can turn a call site into a cell and an offset.
/// False when the table is full: the call sites of this cell stay addresses.
bool register_code_range(int64_t cell, const void* begin, size_t size);

/// dist::abort is declared here, too, so that the I/O thread needs no LibTorch header.
void abort(const std::string& reason);

/// Returns, by group, the sequence number of the last collective entered, for protocol::Done::collectives.
std::map<std::string, int64_t> progress();

/// Returns the collective that this rank is in now: the oldest that is entered and not done, of those that threads wait
/// in if there are any.
std::optional<CollectiveRecord> current_collective();
/// Returns all collectives that were entered and are not done, oldest first.
std::vector<CollectiveRecord> collectives_in_flight();
/// Returns the newest `count` records, oldest first.
std::vector<CollectiveRecord> last_collectives(size_t count);

/// Returns errors that transports notice after the call that they belong to, by group: values of c10d::ErrorType, 0 for
/// none. Only some transports report such errors (NCCL). Can block in a transport that is stuck.
std::vector<std::pair<std::string, int>> communicator_errors();

/// Notes that other ranks have left `cell`, after each entered that many collectives of each group
/// (protocol::PeersDone). The waiting callback is called when this rank is in a later one, or enters one while `cell`
/// is still its current cell.
void peers_left(int64_t cell, const RankSet& ranks, const std::map<std::string, int64_t>& progress);

/// Watches for collectives that this rank has been in for `limit_s` seconds. long_waits() returns each once, and the
/// time of its next call. A thread that enters a collective calls `wake` when long_waits() must be called although it
/// gave no time. Called before start_session_group.
void watch_long_waits(double limit_s, std::function<void()> wake);
LongWaits::Look long_waits();

/// Tells a group of this process that calls of ranks on different machines differ: it throws CollectiveMismatch in the
/// collective that it is in, or in the next one. `incarnation`: that of the log; `patience`: how long the rank gets to
/// come to its next collective. Returns false where the group is not here, or has other connections by now.
bool tell_of_mismatch(uint64_t incarnation, const CollectiveMismatch& mismatch,
                      std::chrono::milliseconds patience = {}) noexcept;

/// Names lines of cells in the errors of collectives that do not match: code address → "cell 7, line 4". Called once,
/// at start.
void set_place_of(std::function<std::string(uint64_t code_address)> place_of);
/// Returns the address in this process of the code at `offset` of a cell, or 0 where the cell is not loaded.
uint64_t code_address(int64_t cell, uint64_t offset);

/// Sets the function that is called (from the thread that noticed, at most once per collective and set of ranks) with
/// a collective and the ranks that can no longer enter it within the cell. May be set before or after
/// start_session_group.
void set_waiting_callback(std::function<void(const CollectiveRecord& record, const RankSet& missing)> callback);

}  // namespace lockstep::dist

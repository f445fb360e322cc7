// The collective log says what a rank's collectives were and how far each got. It lies in memory that stays readable
// while the rank is stuck and after it was killed. CollectiveLog writes a rank's own log; CollectiveLogReader reads
// any. It needs no LibTorch, so a shell reads the log of a dead worker with it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "collectives/log/collective_log_layout.h"
#include "collectives/log/collective_op.h"
#include "collectives/log/collective_record.h"
#include "collectives/log/device_progress.h"
#include "collectives/log/long_waits.h"
#include "protocol/descriptor.h"

namespace lockstep::dist {

/// Returns CLOCK_MONOTONIC in nanoseconds.
int64_t monotonic_ns();

/// Shared memory with a log in it. Owns the mapping and the descriptor.
class LogMapping {
 public:
  /// Makes a new log: a file at `path` (replaced), or anonymous memory when it is empty. All of it is reserved at once,
  /// so that a full disk is an error here and never a SIGBUS later. Throws Error.
  static LogMapping create(const std::string& path, int rank, int world_size);
  /// Opens another rank's log. Throws Error when the file is missing, is no log, or is of another version.
  static LogMapping open(const std::string& path);
  LogMapping(LogMapping&& other) noexcept
      : fd_(std::move(other.fd_)), base_(std::exchange(other.base_, nullptr)), path_(std::move(other.path_)) {}
  LogMapping& operator=(LogMapping&&) = delete;
  ~LogMapping();

  log_layout::Header& header() const;
  log_layout::Group& group(uint32_t slot) const;
  log_layout::Signature& signature(uint32_t slot, int64_t seq) const;
  log_layout::Entry& entry(uint64_t number) const;
  log_layout::CodeRange& code_range(uint32_t index) const;
  log_layout::DeviceTimes& device_times(uint64_t entry) const;
  log_layout::Site& site(uint64_t number) const;
  log_layout::Message& message(uint64_t key) const;
  std::atomic<int64_t>& word(uint64_t number) const;
  /// Returns a path under which any process of this user can open it while this process lives.
  std::string shared_path() const;

 private:
  /// Throws Error where `fd`, which messages call `what`, can't be mapped.
  LogMapping(Descriptor fd, const std::string& what, std::string path);
  Descriptor fd_;
  std::byte* base_ = nullptr;
  std::string path_;
};

/// Ends an entry. Only the first end counts, and only while no later entry has taken its slot.
void finish_entry(const LogMapping& mapping, uint64_t number, log_layout::EntryState state);

/// These fields are what begin() writes. `shape` is borrowed.
struct EntryFields {
  CollectiveOp op{};
  uint8_t dtype = 255, reduce_op = 255, flags = 0;
  int root = -1;
  int tensor_count = 0;
  int64_t bytes = 0;
  const int64_t* shape = nullptr;
  size_t dimensions = 0;
  int tag = 0;
  int64_t tag_seq = 0;
  uint64_t signature = 0;
  uint64_t call_site = 0;
  const std::vector<int64_t>* words = nullptr;
};

/// Writes a rank's own log. begin() is for any thread, but for one group from one thread at a time; finish() for any.
class CollectiveLog {
 public:
  CollectiveLog(const std::string& path, int rank, int world_size)
      : mapping_(LogMapping::create(path, rank, world_size)), device_progress_(mapping_) {}

  /// Throws Error when kGroupCapacity groups are in use.
  uint32_t add_group(const std::string& name, const std::vector<int>& ranks, int group_rank, int64_t first_seq);
  void remove_group(uint32_t slot);

  /// Returns the entry's number.
  uint64_t begin(uint32_t group, int64_t seq, const EntryFields& fields);
  void finish(uint64_t entry, log_layout::EntryState state);

  void set_context(int64_t cell, int64_t step);
  /// Returns false when the table is full.
  bool add_code_range(int64_t cell, uint64_t begin, uint64_t size);

  /// Names call site `number` (from 1) of entries with kNamedSite; once for a number. False when the table is full.
  bool name_site(uint64_t number, const CallPlace& place);
  /// Names the call sites of later entries by `place_of`, which gets each return address once. It is for programs whose
  /// call sites are not named otherwise. Called once, before others use the log.
  void name_addresses(CallPlace (*place_of)(uint64_t address)) { place_of_ = place_of; }

  /// See LongWaits. Called once, before others use the log.
  void watch_long_waits(int64_t limit_ns, std::function<void()> wake);
  LongWaits* long_waits() const { return long_waits_.get(); }

  /// Knows how far collectives on devices are. It is used for entries with kOnDevice only.
  DeviceProgress& device_progress() { return device_progress_; }

  const LogMapping& mapping() const { return mapping_; }

 private:
  /// Returns the number of the call site at `address`, or 0 where its place is unknown or the table is full.
  uint64_t number_of_site(uint64_t address);

  LogMapping mapping_;
  std::unique_ptr<LongWaits> long_waits_;
  DeviceProgress device_progress_;
  CallPlace (*place_of_)(uint64_t address) = nullptr;
  std::mutex sites_mutex_;
  std::unordered_map<uint64_t, uint64_t> sites_;  // address → number
};

/// A group that a rank knows, as its log has it. Regular groups are named whole, of others the first 64 ranks.
struct LoggedGroup {
  std::string name;
  std::vector<int> ranks;  // of the default group
  int64_t unnamed = 0;  // how many more it has
  bool member = false;  // this rank is in it
  uint64_t incarnation = 0;  // of its connections; 0: not known
  int64_t entered = 0;  // number of the last collective
  std::map<int, int64_t> sent, received;  // point to point: peer → how many sends to it, receives from it were begun
  int64_t received_from_any = 0;  // recv without a source that were begun
  bool shares_memory = false;  // collectives that move or reduce dense tensors go through memory of all its ranks
  int sleeps_for = -1;  // the rank of the default group that this rank sleeps for there
  int64_t sleeps_in = 0;  // the collective that this rank has to come to

  /// Whether messages with `rank` are in `sent` and `received`: they are counted with the first 64 ranks.
  bool counts_messages_with(int rank) const;
};

/// Reads this rank's log or another's, without stopping the writer.
class CollectiveLogReader {
 public:
  /// Opens `path` ("<session>/rank-1/log"). Throws Error.
  explicit CollectiveLogReader(const std::string& path) : owned_(LogMapping::open(path)), mapping_(&*owned_) {}
  explicit CollectiveLogReader(const LogMapping& mapping) : mapping_(&mapping) {}

  int rank() const { return mapping_->header().rank; }
  int64_t pid() const { return mapping_->header().pid; }
  int64_t realtime_minus_monotonic() const { return mapping_->header().realtime_minus_monotonic; }  // ns, at start
  uint64_t process_start() const { return mapping_->header().process_start; }  // field 22 of /proc/PID/stat
  int world_size() const { return mapping_->header().world_size; }
  /// Returns the newest `count` records, oldest first. An entry that is being written is left out.
  std::vector<CollectiveRecord> last(size_t count) const;
  /// Returns the collectives that were entered and are not done, oldest first.
  std::vector<CollectiveRecord> in_flight() const;
  std::optional<CollectiveRecord> record(uint64_t entry) const;
  /// Returns, for each group that the rank is in, the sequence number of the last collective entered.
  std::map<std::string, int64_t> progress() const;
  /// Returns the groups that are neither closed nor forgotten, also those that the rank is not in.
  std::vector<LoggedGroup> groups() const;
  /// Returns where this rank has the code of a cell, or 0 where it has not loaded it.
  uint64_t code_address(int64_t cell, uint64_t offset) const;
  const LogMapping& mapping() const { return *mapping_; }
  /// Returns the cell and the step of it that the rank is at; 0, 0 between cells.
  std::pair<int64_t, int64_t> position() const {
    return {mapping_->header().cell.load(), mapping_->header().step.load()};
  }
  uint64_t entries() const { return mapping_->header().next_entry.load(std::memory_order_acquire); }  // ever begun

 private:
  std::optional<LogMapping> owned_;
  const LogMapping* mapping_;
};

}  // namespace lockstep::dist

// Messages go from the run thread (and from threads of cells) to the I/O thread, in their place between the bytes that
// the process writes. Each message carries a mark: how many bytes of each stream had been written before it. The I/O
// thread takes bytes up to the mark first, then the message, and never a byte beyond it.
#pragma once
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "collectives/log/collective_record.h"
#include "protocol/worker_messages.h"
#include "worker/process/output_pipes.h"

namespace lockstep::worker {

/// Marks that output from here on belongs to this cell.
struct CellBegins {
  int64_t cell = 0;
};

/// This rank is in a collective that `missing` can no longer enter.
struct WaitsInVain {
  dist::CollectiveRecord record;
  RankSet missing;
};

using Outgoing = std::variant<protocol::WorkerMessage, CellBegins, WaitsInVain>;

class Outbox {
 public:
  /// `event_fd` is written to at each post.
  Outbox(OutputPipes& pipes, int event_fd) : pipes_(pipes), event_fd_(event_fd) {}

  void post(protocol::WorkerMessage message) { put(std::move(message)); }
  /// Replaces progress of the same loop that waits with nothing but progress after it, so that a reader that takes
  /// nothing costs little memory.
  void post(protocol::Progress progress);
  void begin_cell(int64_t cell) { put(CellBegins{cell}); }
  void report_waiting(const dist::CollectiveRecord& record, const RankSet& missing) {
    put(WaitsInVain{record, missing});
  }

  // The I/O thread calls these.
  /// Returns the next message if all bytes before it have been taken.
  std::optional<Outgoing> next();
  /// Appends to `bytes` at most `limit` bytes of `stream`, none that comes after the next message. Never waits.
  size_t read(Stream stream, size_t limit, std::string& bytes);
  /// Whether a message waits for bytes that are still in the pipes.
  bool waiting_for_bytes();

 private:
  struct Marked {
    Outgoing message;
    OutputPipes::Mark mark;
  };
  void put(Outgoing message);

  OutputPipes& pipes_;
  int event_fd_;
  std::mutex mutex_;  // held while bytes are read: no message can slip in front of bytes that were written after it
  std::deque<Marked> messages_;
};

}  // namespace lockstep::worker

// Writes the journal of a session: each cell before it runs, each event before it is drawn, and how the cell ended. What
// it has been given is with the kernel when the call returns, so that all of it outlives the session's process, however
// that ends.
//
// Nothing is written before the first cell: a session without one leaves no journal. A disk that is full, or a home that
// can't be written, costs records and never the session.
//
// It lives on the session's thread.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "protocol/descriptor.h"
#include "shell/events/event.h"
#include "shell/journal/journal_folder.h"

namespace lockstep::shell {

/// A cell that is going to run.
struct JournalCell {
  int64_t number = 0;  // that it gets if it has code
  std::string title, text;
  RankSet ranks;  // none before the session has started
};

class Journal {
 public:
  /// `id` is that of the session. `describe` has what is known of the session at its first cell. `warn` is called once,
  /// with why records are lost.
  Journal(std::string id, const JournalLimits& limits, std::function<nlohmann::json()> describe,
          std::function<void(const std::string&)> warn);
  ~Journal();  // notes that the session has ended, and removes journals beyond the limits
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  void begin_cell(const JournalCell& cell);
  /// `number` is 0 where no code of it has run.
  void end_cell(int64_t number, const RankSet& ranks, CellStatus status, int faults);
  void take(const Event& event);

  /// Returns its folder; empty where there is none (yet).
  const std::string& path() const { return path_; }
  /// Returns the number of the record of the cell that began last; 0: there is none.
  uint64_t last_input() const { return last_input_; }

 private:
  struct File {
    Descriptor descriptor;
    std::string path;
    int64_t size = 0;
  };
  /// The files of one kind: the one that is written, and the numbers of those that are there.
  struct Files {
    File file;
    int64_t first = 1, last = 0;
  };
  bool open();
  static std::string open_file(File& file, const std::string& path);
  void write(bool is_bulk, nlohmann::json record);
  std::string begin_file(bool is_bulk);
  double seconds() const;
  std::string append(File& file, const std::string& line);
  void lose(const std::string& why);

  const std::string id_;
  JournalLimits limits_;
  const std::function<nlohmann::json()> describe_;
  const std::function<void(const std::string&)> warn_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  enum class State { waits_for_cell, open, off } state_ = State::waits_for_cell;
  std::string path_;
  Descriptor lock_;  // the first file of cells, once another one is written
  Files cells_, output_;
  std::vector<std::pair<bool, nlohmann::json>> early_;  // records before the first cell
  uint64_t records_ = 0, last_input_ = 0;
  int64_t inputs_ = 0;
  bool has_warned_ = false;
};

}  // namespace lockstep::shell

// Holds the cells that this process has loaded, and runs their steps. On the run thread only.
#pragma once
#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/finding.h"
#include "protocol/worker_messages.h"
#include "worker/cell/cell_objects.h"
#include "worker/cell/symbols.h"

namespace lockstep::worker {

class LoadedCells {
 public:
  /// Findings that exceptions of cells carry go to `take_finding`.
  explicit LoadedCells(std::function<void(const Finding&)> take_finding);

  /// Writes the object to `directory` and opens it. Nothing of it runs. `bytes` are those of the object, unless the message
  /// names a file.
  protocol::Loaded load(const protocol::Load& load, const std::string& directory, std::string_view bytes);
  /// Takes the cell out of the process again, if nothing of it has run.
  void drop(int64_t cell);

  /// Runs the steps of a cell, whose run RunState has begun, up to the first that does not end well. `done` has the
  /// cell's number and the status ok before; it says afterwards how many steps ended well, and how the cell ended.
  void run(const protocol::Run& run, protocol::Done& done);
  /// Runs one step. Returns whether it ended well; otherwise `done` says how the cell ended.
  bool run_step(const std::function<void()>& step, int64_t index, int line, protocol::Done& done);

  Symbols& symbols() { return symbols_; }

 private:
  struct LoadedCell {
    const CellObject* object = nullptr;
    std::vector<protocol::Step> steps;
    bool has_run = false;
  };
  std::optional<std::string> near_limit();
  void look_at_gradients(uintptr_t step, int line);
  std::string hint_at_gradients(const std::string& error) const;

  const pid_t process_ = ::getpid();  // of the rank
  std::function<void(const Finding&)> take_finding_;
  Symbols symbols_;
  std::map<int64_t, LoadedCell> cells_;
  int64_t limit_;  // objects that can be loaded
  std::string no_gradients_since_;  // "cell 3, line 1"; empty while operators record gradients
};

}  // namespace lockstep::worker

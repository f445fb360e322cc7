// Turns the ranks' messages with output and values into events. They are merged (output_merger.h), and confirmed to the
// ranks by credit once the front end has taken them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "shell/cells/cell_services.h"
#include "shell/events/output_merger.h"
#include "shell/processes/deadline.h"

namespace lockstep::shell {

class CellOutput {
 public:
  /// `marked` is called when a mark is out, with all that the ranks wrote before. Throws UsageError if
  /// LOCKSTEP_FOLD_TIME has a wrong value.
  CellOutput(const CellServices& services, std::function<void(const RankSet& ranks, const std::string& mark)> marked);
  /// Emits what is held back.
  ~CellOutput();

  /// Sets the ranks that write from now on; what they write alike is merged.
  void expect(const RankSet& ranks) { merger_.expect(ranks); }
  /// Notes that `rank` writes nothing more until the next expect().
  void left(int rank);
  void output(int rank, int64_t number, Stream stream, std::string bytes);
  void value(int rank, int64_t number, protocol::Value value);
  void mark(int rank, int64_t number, std::string name);
  /// Emits what is held back. Returns memory that much output has taken to the system.
  void flush();

 private:
  void give_credit(const RankSet& ranks, int64_t bytes);

  RankGroup& workers_;
  const std::function<void(int, Stream, std::string_view)>& early_;  // of the session's options
  OutputMerger merger_;
  Deadline due_;
  std::map<int, int64_t> owed_credit_;  // bytes
  size_t taken_ = 0;  // bytes of output since the last flush()
};

}  // namespace lockstep::shell

// Outputs of a run in a Jupyter notebook (nbformat 4), as a kernel would have stored them: streams, values, findings and
// errors of each cell. Cells that did not run have none.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "shell/events/event.h"
#include "shell/reports/captured_text.h"
#include "shell/scripts/script.h"

namespace lockstep::shell {

class NotebookOutputs : public EventSink {
 public:
  /// Reads the notebook `from`, whose cells run next, and takes its old outputs away. `to` may be the same file. Throws
  /// UsageError if `from` is no notebook or the folder of `to` can't be written.
  NotebookOutputs(const std::string& from, const std::string& to);

  /// `cell`: of this notebook, or injected after the cell before it.
  void begin_cell(const ScriptCell& cell);
  void take(const Event& event) override;
  void end_cell(int64_t number);
  /// Replaces the file `to` in one step. Returns whether that succeeded; a failure is reported on the standard error.
  bool write();

 private:
  using Json = nlohmann::ordered_json;
  void add_text(const std::string& text, const char* stream);
  void add_streams();
  void add_value(const ValueEvent& event);
  void add_values();
  void add_data(const char* type, const nlohmann::json& data);
  void remove_injected();
  size_t inject(const ScriptCell& cell);
  Json* outputs();

  const std::string to_;
  Json notebook_;
  std::vector<size_t> place_of_;  // of the cells as the file had them → index in notebook_
  std::optional<size_t> cell_;  // that runs
  size_t last_ = 0;  // the cell before it
  CapturedText text_, output_, standard_error_;  // apart, since a notebook has a stream for each
  RankSet all_;  // ranks of the session
  std::vector<ValueEvent> values_;  // that ranks show at the same time, until they are stored as one result
  std::vector<ErrorEvent> errors_;  // of the cell, until they are drawn
};

}  // namespace lockstep::shell

// Writes outputs of a run into a Jupyter notebook (nbformat 4), as the kernel's display makes them and a frontend
// stores them: streams, values, findings and errors of each cell. Cells that did not run have none.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "shell/events/event.h"
#include "shell/jupyter/display.h"
#include "shell/processes/event_loop.h"
#include "shell/scripts/script.h"
#include "shell/session/outcome.h"

namespace lockstep::shell {

class NotebookOutputs : public EventSink {
 public:
  /// Reads the notebook `from`, whose cells run next, and takes its old outputs away. `to` may be the same file. Throws
  /// UsageError if `from` is no notebook or the folder of `to` can't be written.
  NotebookOutputs(const std::string& from, const std::string& to);
  /// Does the same for a notebook that is in no file.
  NotebookOutputs(nlohmann::ordered_json notebook, const std::string& to);

  /// `cell` is of this notebook, or injected after the cell before it.
  void begin_cell(const ScriptCell& cell);
  void take(const Event& event) override;
  void end_cell(const CellOutcome& outcome);
  /// Replaces the file `to` in one step. Returns whether that succeeded; a failure is reported on the standard error.
  bool write();

 private:
  using Json = nlohmann::ordered_json;
  void store(std::string_view type, const nlohmann::json& content);
  void store_text(const std::string& name, const std::string& text);
  void remove_injected();
  size_t inject(const ScriptCell& cell);
  Json& outputs();

  const std::string to_;
  Json notebook_;
  std::vector<size_t> place_of_;  // of the cells as the file had them → index in notebook_
  std::optional<size_t> cell_;  // that runs, or ran last
  bool runs_ = false;
  bool has_started_ = false;  // the session
  bool clears_next_ = false;  // %clear_output --wait: the next output takes the place of all before it
  EventLoop no_clock_;  // never runs, so what is stored depends on no moment
  jupyter::Display display_;
};

}  // namespace lockstep::shell

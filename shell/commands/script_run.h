// `lockstep run` runs the cells of scripts, in order, in one session; and shows and writes what came of it.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shell/events/json_writer.h"
#include "shell/processes/session_options.h"
#include "shell/reports/junit_report.h"
#include "shell/reports/notebook_outputs.h"
#include "shell/scripts/script.h"
#include "shell/session/outcome.h"
#include "shell/session/session.h"
#include "shell/terminal/renderer.h"
#include "shell/terminal/status_display.h"
#include "shell/text/text_output.h"

namespace lockstep::shell {

struct RunOptions {
  std::vector<std::string> files;
  std::string json;  // a file, or - for the standard output; empty: none
  std::string junit;  // a file; empty: none
  std::string write;  // a notebook; empty: none
  std::string journal;  // whose cells run instead of those of files; empty: none
  bool keep_going = false;
  bool show_code = false;
  bool answers = false;  // shows what markdown cells fold away
  SessionOptions session;
};

/// The cells of a file, and what reports call it.
struct Script {
  std::string name;
  std::vector<ScriptCell> cells;
};

class ScriptRun : private EventSink {
 public:
  ScriptRun(RunOptions options, std::vector<Script> scripts);

  /// Returns the exit code. Throws UsageError for files that can't be written.
  int run();

 private:
  /// Returns false to stop.
  bool run_script(const Script& script);
  bool run_cell(const ScriptCell& cell);
  std::optional<bool> judge_replay(int exit_code);
  void skip_rest(const Script& script, size_t begin);
  void show_markdown(const ScriptCell& cell);
  /// Shows the first line of a cell, and its code.
  void show_cell(const ScriptCell& cell, bool counts);
  // These write for people alone: they are no events of the session.
  void show_before(const ScriptCell& cell, CellStatus status);
  void show_expected(const ScriptCell& cell, const CellJudgement& judgement);
  /// Takes every event of the session.
  void take(const Event& event) override;
  void on_signal(int signal) noexcept;
  void check(const TextOutput& output);
  void note(int exit_code);
  RankSet lost_ranks() const;
  Language language() const { return options_.session.has_python_ranks() ? Language::python : Language::cpp; }

  RunOptions options_;
  const std::vector<Script> scripts_;
  EventFork sinks_;
  std::unique_ptr<TextOutput> output_;
  Screen screen_;
  std::unique_ptr<Renderer> renderer_;
  std::unique_ptr<TextOutput> status_output_;
  std::unique_ptr<StatusDisplay> status_;
  std::unique_ptr<JsonWriter> json_;
  std::unique_ptr<JunitReport> junit_;
  std::unique_ptr<NotebookOutputs> notebook_;
  std::unique_ptr<Session> session_;
  const Script* script_ = nullptr;  // that runs
  const ScriptCell* cell_ = nullptr;  // of it
  std::vector<Finding> findings_;  // of it
  RankSet alive_;  // when it began
  int exit_code_ = kExitOk;
  std::atomic<bool> stopped_{false};  // by a signal, or since nobody reads
  bool stopped_for_readers_ = false;
  static inline ScriptRun* current_ = nullptr;  // for the signal handler
  int64_t cells_ = 0, failed_ = 0, faults_ = 0;
};

}  // namespace lockstep::shell

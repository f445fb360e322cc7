// Writes JUnit's XML for build servers: a suite for each script, a case for each of its cells. What was expected by
// tags counts as passed; cells after the one at which the run stopped are skipped.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "shell/events/event.h"
#include "shell/reports/captured_text.h"
#include "shell/scripts/script.h"
#include "shell/session/outcome.h"

namespace lockstep::shell {

class JunitReport : public EventSink {
 public:
  /// Throws UsageError if the file can't be written.
  explicit JunitReport(const std::string& path);

  void begin_script(const std::string& name);
  void begin_cell(const ScriptCell& cell);
  void take(const Event& event) override;
  void end_cell(const CellOutcome& outcome, const CellJudgement& judgement);
  void skip_cell(const ScriptCell& cell);
  /// Reports that the session could not start, which is an error of the suite.
  void fail_start(const std::string& message);
  /// Writes the file. Returns whether that succeeded; a failure is reported on the standard error.
  bool write() const;

 private:
  enum class Result { passed, failed, error, skipped };
  struct Case {
    std::string name;
    int line = 0;
    double seconds = 0;
    Result result = Result::passed;
    std::string type, message, output;
  };
  struct Suite {
    std::string name;
    std::vector<Case> cases;
  };
  Case new_case(const ScriptCell& cell) const;

  const std::string path_;
  std::vector<Suite> suites_;
  CapturedText text_;
  std::string first_problem_;  // of the running cell: its error or fault, for the message
  std::chrono::steady_clock::time_point began_;
};

}  // namespace lockstep::shell

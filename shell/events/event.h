// What a session reports to its front end, as data: the lines of --json, and what the terminal and the notebook draw.
// Format: docs/events.md.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "protocol/compiler_messages.h"
#include "protocol/finding.h"
#include "protocol/rank_set.h"
#include "protocol/status.h"
#include "protocol/worker_messages.h"

namespace lockstep::shell {

/// The workers are up.
struct SessionEvent {
  std::string id;
  RankSet ranks;
  std::string backend;  // gloo, nccl
  std::map<int, std::string> devices;  // rank → "cpu", "cuda:0"
  std::map<std::string, std::string> versions;
};

/// A cell is over on all its ranks. `status` is the root cause's.
struct CellEvent {
  int64_t cell = 0;
  std::string title;
  RankSet ranks;
  CellStatus status = CellStatus::ok;
  std::map<int, CellStatus> rank_status;
  std::map<int, double> run_ms;
  double compile_ms = 0;
  std::optional<std::string> file;  // of a script, with the line on which the text of the cell begins
  std::optional<int> line;
  std::optional<bool> expected;  // of a script: whether status and findings are what its tags say
};

/// Bytes that all of `ranks` wrote. Concatenating a rank's events of one stream gives its bytes.
struct OutputEvent {
  int64_t cell = 0;
  RankSet ranks;
  Stream stream = Stream::standard_output;
  std::string bytes;
};

struct ValueEvent {
  int64_t cell = 0;
  RankSet ranks;
  std::string text;
  nlohmann::json data;
};

struct ErrorEvent {
  int64_t cell = 0;
  RankSet ranks;
  std::string type;  // exception type, signal, "compile_error", "usage_error"
  std::string message;  // for compile errors: as rendered, with the user's lines and carets
  std::optional<std::string> where;
  bool root_cause = true;
  std::vector<std::string> stack;
  std::vector<protocol::Diagnostic> diagnostics;  // compile errors
  bool others_run = false;  // a death that is reported while other ranks of the cell run on, not at the cell's end
};

struct FindingEvent {
  Finding finding;
};

/// A rank's state changed: it waits in a collective, has left it (idle), or has died.
struct RankEvent {
  int rank = 0;
  RankState state = RankState::idle;
  std::string message;  // "killed by SIGKILL in cell 7"
};

/// What a magic prints for people (tables, help). In --json: {"event":"message", "text":…, "data":…}.
struct MessageEvent {
  int64_t cell = 0;
  std::string text;
  nlohmann::json data;
};

/// A markdown cell: shown, not run.
struct MarkdownEvent {
  std::string text;
};

struct EndEvent {
  int exit_code = 0;
  std::map<std::string, int64_t> counts;  // cells, failed, faults
};

using Event = std::variant<SessionEvent, CellEvent, OutputEvent, ValueEvent, ErrorEvent, FindingEvent, RankEvent,
                           MessageEvent, MarkdownEvent, EndEvent>;

/// Takes events as they come, on the session's thread. Must not block for long: the session serves its ranks on the
/// same thread.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void take(const Event& event) = 0;
};

/// One JSON object, without "time": {"event":"output",...}.
nlohmann::json to_event_json(const Event& event);

}  // namespace lockstep::shell

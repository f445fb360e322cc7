// A session reports events to its front end, as data: the lines of --json, and what the terminal and the notebook draw.
// docs/events.md has the format.
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
  std::string backend;  // shared_memory, gloo, nccl
  std::map<int, std::string> devices;  // rank → "cpu", "cuda:0"
  std::map<std::string, std::string> versions;
  bool is_asked = false;  // by %dist_init, not by the first cell
  bool is_python = false;  // the ranks are
  bool is_job = false;  // they are those of a Python job
  bool has_grown = false;  // it ran already, with fewer ranks
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
  bool keeps_names = true;  // false: an interrupt has left names with a part of what was read into them
};

/// Has bytes that all of `ranks` wrote. Concatenating a rank's events of one stream gives its bytes.
struct OutputEvent {
  int64_t cell = 0;
  RankSet ranks;
  Stream stream = Stream::standard_output;
  std::string bytes;
};

struct ValueEvent {
  int64_t cell = 0;
  RankSet ranks;
  std::string text;  // it begins with the label, where there is one
  nlohmann::json data;
  std::string label;  // show(value, "label")
  int64_t number = 0;  // ascending in a session; equal for the k-th values that ranks show in one piece of code
};

struct ErrorEvent {
  int64_t cell = 0;
  RankSet ranks;
  std::string type;  // exception type, signal, "compile_error", "usage_error"
  std::string message;  // for compile errors: as rendered, with the user's lines and carets
  std::optional<std::string> where;
  bool root_cause = true;
  std::vector<std::string> stack;
  std::string traceback;  // of a Python cell, as Python prints it; it ends with type and message
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

/// Says how far a loop over progress() is on its ranks: when it begins, up to five times a second, and at its end.
struct ProgressEvent {
  int64_t cell = 0;
  int64_t loop = 0;  // unique in the session
  int64_t parent = 0;  // the loop around it; 0: none
  std::string label;
  int line = 0;
  RankSet ranks;  // that have begun it
  std::map<int, int64_t> done;  // turns that are over
  std::map<int, int64_t> total;  // without the ranks on which it is unknown
  std::map<int, double> elapsed_s;  // since a rank began it, until it ended there
  LoopState state = LoopState::running;  // completed: on all ranks
};

/// A text for a pager: %page.
struct PageEvent {
  int64_t cell = 0;
  std::string text;
};

/// Says about once a second what the session is at while it takes long, for front ends that ask for it (SessionOptions)
/// and show it in one place. All of it is of that moment. `over`: nothing is to be shown any more.
struct ActivityEvent {
  enum class Phase { over, starting, connecting, compiling, loading, running };
  struct Part {
    RankSet ranks;
    std::string state;  // starting, connected, ready; dead; of a cell loading, in_collective, running, done
    std::string collective;  // "all_reduce"; empty: in none
    std::string group;
    int64_t seq = 0;
    double since_s = 0;  // the first of the ranks has been in the collective
  };
  Phase phase = Phase::over;
  int64_t cell = 0;
  double elapsed_s = 0;  // in this phase
  std::optional<protocol::StartStep> step;  // of a build, while the session starts
  double step_s = 0;  // since it began
  std::vector<Part> parts;  // by rank
};

/// Has what a magic prints for people (tables, help). In --json: {"event":"message", "text":…, "data":…}.
struct MessageEvent {
  int64_t cell = 0;
  std::string text;
  nlohmann::json data;
  bool is_help = false;  // a prompt shows it in a pager where it is taller than the screen
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
                           MessageEvent, MarkdownEvent, EndEvent, ProgressEvent, PageEvent, ActivityEvent>;

/// Takes events as they come, on the session's thread. Must not block for long: the session serves its ranks on the
/// same thread.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void take(const Event& event) = 0;
};

/// Returns one JSON object, without "time": {"event":"output",...}.
nlohmann::json to_event_json(const Event& event);

}  // namespace lockstep::shell

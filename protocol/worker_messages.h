// The session's hub and its workers exchange messages over ZeroMQ: one JSON header and binary frames each.
//
// Header: {"v":1,"kind":"load",...}. The hub is a ROUTER, a worker a DEALER whose identity is "rank-R".
// Phases of a cell, per rank:
//   Load → Loaded → Run → (Output | Value | Progress | FindingMessage | Waiting | LongWait)* → Done
// or, where some rank could not load it: Load → Loaded → Drop. Regroup → Regrouped happens between cells only.
// Interrupt, Abort, Mismatch, Query, Credit, PeersDone and Shutdown are control: the I/O thread answers them, also while a cell
// runs.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "protocol/compiler_messages.h"
#include "protocol/finding.h"
#include "protocol/questions.h"
#include "protocol/rank_set.h"
#include "protocol/status.h"
#include "protocol/version.h"

namespace lockstep::protocol {

// ---- hub → worker ------------------------------------------------------------------------------------------------

/// A worker may send this many bytes of output before its first Credit, if Prelude does not say another number.
inline constexpr int64_t kOutputWindow = 1 << 20;
/// Returns the same of each of `ranks`. The session may have to hold all of it, until others have written as much.
constexpr int64_t output_window(int ranks) {
  constexpr int64_t kOfAll = 128 << 20, kLeast = 64 << 10;
  return std::clamp(kOfAll / std::max(ranks, 1), kLeast, kOutputWindow);
}

/// The compiler is ready. The message has the shared object of the prelude, which the worker loads before any cell.
/// Answered by Ready or NotReady.
struct Prelude {
  std::string path;
  int64_t output_window = kOutputWindow;
};

/// Frame 0 is the shared object. The worker writes it to a file of its own and opens it; nothing of it runs.
struct Load {
  int64_t cell = 0;
  std::string name;
  std::string entry;
  std::vector<Step> steps;
  RankSet ranks;  // of the cell
  std::string file;  // has the object, on the rank's machine; empty: frame 0 has it
};

/// Some rank could not load the cell: forget it. It has not run anywhere.
struct Drop {
  int64_t cell = 0;
};

/// Runs a loaded cell. May come again for a cell that has run (%%timeit): its steps run again, answered by another
/// Done.
struct Run {
  int64_t cell = 0;
  int64_t number = 0;  // what people call it; 0: the same as `cell`
  int64_t object = 0;  // the cell whose object runs, where it is an earlier one of the same text; 0: its own
  int64_t object_number = 0;  // then: what people called that one
  // The process replaces a lost rank, and is not connected to the others: collectives/log/meetings.h.
  bool again = false;
  std::vector<int64_t> skip;  // then: steps that do not run
  std::vector<int64_t> groups;  // then: Done::groups of the rank that is replaced
  RankSet members;  // ranks that were the default group as it ran; empty: all ranks
};

/// What Builtin runs. A worker runs Barrier, Preempted and Record, and a rank of a Python job, at a prompt, the others; one of
/// a session all.
namespace function {
/// A barrier of all ranks. run_ms of Done is the time that this rank waited.
struct Barrier {};
/// Runs what the rank has registered with on_preempt().
struct Preempted {};
/// Runs `text` in the selected frame.
struct Python {
  std::string text;
  int64_t number = 0;  // what people call the cell
  bool own_names = false;  // what it assigns is not the program's
  std::string shown;  // what tracebacks have in place of the last line of `text`; empty: that line
  bool rich = false;  // values are wanted as HTML and pictures, too: Value::data is {"mime": {TYPE: TEXT}} then
  // The process replaces a lost rank, as in Run::again. Of the statements of `text`:
  bool again = false;
  int64_t until = 0;  // so many had been completed
  std::vector<int64_t> met, unknown;  // these met other ranks, and of these nobody knows; they do not run
  std::vector<int64_t> groups;  // Done::groups
};
/// Selects the frame that is `move` frames further up (towards the caller), and writes the frames as output.
struct Frame {
  int64_t move = 0;
};
/// Later breakpoints of the rank are passed over.
struct Detach {};
/// Records what the rank receives from now on, of its last `steps` steps (docs/replay.md); 0: ends that.
struct Record {
  int64_t steps = 0;
};
}  // namespace function

using Function = std::variant<Unreadable, function::Barrier, function::Preempted, function::Python, function::Frame,
                              function::Detach, function::Record>;

/// Runs a function of the worker's own on the run thread, as a cell of one step; no object is loaded. Answered by Done.
struct Builtin {
  int64_t cell = 0;
  Function function;
};

/// Connects the process groups of all of `ranks` (again) under a fresh store prefix. Collective; on the run thread.
/// Sent when ranks have left a cell with different numbers of collectives, or after Interrupt or Abort.
struct Regroup {
  int64_t generation = 0;
  RankSet ranks;
  RankSet members;  // ranks that are the default group from now on, numbered in their order; empty: as before
  double timeout_s = 30;
  // Of a session that has grown. 0: it has as many ranks as at its start.
  int world_size = 0;
  std::string backend;  // then: of the default group and of later ones; empty or auto: as before
  int threads = 0;  // then: intra-op, per rank
};

/// Ends the running cell as `interrupted`: loops, sleeps and collectives. Nothing happens when `cell` is not running.
struct Interrupt {
  int64_t cell = 0;
};

/// Frees this rank from the collective it sits in; its cell ends as `aborted`.
struct Abort {
  std::string reason;
};

/// Ranks on different machines have called collectives of a group that differ. The rank throws CollectiveMismatch in the
/// one that it is in, or in the next one, until Regroup.
struct Mismatch {
  uint64_t incarnation = 0;  // of the group: dist::log_layout::Group
  std::string message;
  Finding finding;
};

/// To the I/O thread, which answers by a Reply with the same id within 100 ms.
struct Query {
  int64_t id = 0;
  Question question;
};

/// Lets the worker send that many more bytes of output (those that the hub is done with). Without credit it stops
/// reading its pipes, and the cell's writes wait.
struct Credit {
  int64_t bytes = 0;
};

/// Other ranks have left the running cell (or died: how = `dead`), each having entered that many collectives of each
/// group. A rank that waits in a later one answers with Waiting.
struct PeersDone {
  int64_t cell = 0;
  RankSet ranks;
  CellStatus how = CellStatus::ok;  // or error, interrupted, aborted, dead
  std::map<std::string, int64_t> collectives;  // group → sequence number of the last one entered
};

/// Sets environment variables and the working directory of the rank, between cells.
struct Configure {
  std::map<std::string, std::string> environment;
  std::optional<std::string> directory;
};

struct Shutdown {};

using HubMessage = std::variant<Prelude, Load, Drop, Run, Regroup, Interrupt, Abort, Query, Credit, PeersDone,
                                Configure, Shutdown, Builtin, Mismatch>;

// ---- worker → hub ------------------------------------------------------------------------------------------------

/// The first message says who the worker is. The hub compares versions before anything else.
struct Hello {
  int rank = 0;
  int64_t pid = 0;
  std::string host;
  std::string machine;  // dist::machine_identity(): several machines may have one name
  std::string device;  // "cpu", "cuda:1"
  Versions versions;
  int64_t cell_limit = 0;  // loaded objects that the system's limit on mappings allows
  std::string where;  // of a rank of a Python job: "train.py, line 31, in main"
};

/// The prelude is loaded and the process group is up: the rank takes cells.
struct Ready {
  int threads = 0;  // intra-op threads that the rank got
};

/// The rank could not get ready; it ends after this.
struct NotReady {
  std::string message;
};

struct Loaded {
  int64_t cell = 0;
  bool ok = false;
  std::string message;  // why not: demangled, no paths of ours
  std::optional<std::string> warning;  // the number of objects nears the limit
};

/// Says what an exception or a crash was.
struct CellError {
  std::string type;  // "std::runtime_error", "c10::Error", "SIGSEGV"
  std::string message;
  std::string where;  // "cell 7, line 4"; the innermost line of a cell on the stack
  int64_t where_cell = 0;
  int where_line = 0;
  bool root_cause = true;  // false: it failed because another rank did (an aborted collective)
  std::vector<std::string> stack;  // innermost first, cell frames named "train() at cell 7, line 4"
  std::string traceback;  // of a Python cell, as Python prints it; empty: there is none
};

/// A statement that does not run again, and why.
struct LeftOut {
  int line = 0;
  std::string why;
};

struct Done {
  int64_t cell = 0;
  CellStatus status = CellStatus::ok;  // or error, interrupted, aborted
  int64_t steps_done = 0;
  std::optional<CellError> error;
  double run_ms = 0;
  std::map<std::string, int64_t> collectives;  // group → sequence number of the last one entered
  bool regroup = false;  // a group of this rank was aborted: collectives need Regroup first
  // Steps in which the rank met others: collectives, messages, inspections. Making a group or a wrapper does not count.
  std::vector<int64_t> meetings;
  // For each step that has begun, the number of the first group that it makes, if it makes one.
  std::vector<int64_t> groups;
  std::vector<LeftOut> left_out;  // of Python that runs again
};

struct Regrouped {
  int64_t generation = 0;
  bool ok = false;
  std::string message;
};

/// Frame 0 holds bytes as they were written, of one stream and one cell.
struct Output {
  int64_t cell = 0;
  Stream stream = Stream::standard_output;
};

/// A shown value: the last expression's, or show(x).
struct Value {
  int64_t cell = 0;
  std::string text;
  nlohmann::json data;  // null where the value has no JSON form
  bool as_range = false;  // numbers that differ between ranks are to be shown as one range (show::options)
  std::string label;  // show(value, "label")
};

/// Says how far a loop over progress() is on this rank: at its begin, up to five times a second while it runs, and at
/// its end. A rank sends nothing of a loop that is over in a moment while it sends many others.
struct Progress {
  int64_t cell = 0;
  std::string loop;  // equal on all ranks for the same pass of the same loop; unique within the cell
  std::string parent;  // `loop` of the one around it; empty: none
  std::string label;
  int line = 0;  // of progress() in its cell or header
  int64_t done = 0;  // passes through the body that are over
  std::optional<int64_t> total;  // nothing where the range has no size
  double elapsed_s = 0;  // since the loop began on this rank
  LoopState state = LoopState::running;
};

struct FindingMessage {
  Finding finding;
};

/// This rank sits in a collective that `missing` can no longer enter within the cell: a proven hang.
struct Waiting {
  int64_t cell = 0;
  FindingOp op;
  RankSet missing;
  std::string where;
};

/// This rank has been in a collective for some 100 ms. Sent once for each; the state of the other ranks shows whether
/// it can end.
struct LongWait {
  int64_t cell = 0;
  int64_t entry = 0;  // number in its collective log
  FindingOp op;
};

/// The process is about to die of a signal or has called exit: last words of the I/O thread.
struct Dying {
  int64_t cell = 0;
  CellError error;
};

/// `body`: of encode_answer().
struct Reply {
  int64_t id = 0;
  nlohmann::json body;
};

using WorkerMessage = std::variant<Hello, Ready, NotReady, Loaded, Done, Regrouped, Output, Value, FindingMessage,
                                   Waiting, LongWait, Dying, Reply, Progress>;

nlohmann::json encode(const HubMessage& message);
nlohmann::json encode(const WorkerMessage& message);
/// Throw ChannelError for a kind or a version that this program does not know.
HubMessage decode_hub_message(const nlohmann::json& header);
WorkerMessage decode_worker_message(const nlohmann::json& header);

}  // namespace lockstep::protocol

// The operators torch.ops.lockstep_cells.*: C++ cells in a rank of a Python job. Those of the first part are called by
// the package (python/lockstep/prompt/_cpp_cells.py) on the thread that has stopped; torch releases the interpreter's lock while
// they run. Those of the second part are implemented by it, and called by cells.
#include <ATen/ThreadLocalState.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <torch/library.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>

#include "collectives/watch/spelling.h"
#include "inspectors/exchange/report.h"
#include "inspectors/trace/call_site.h"
#include "inspectors/trace/program_log.h"
#include "protocol/worker_messages.h"
#include "python/cells/callbacks.h"
#include "python/cells/host.h"
#include "python/cells/rank.h"
#include "worker/cell/call_sites.h"
#include "worker/cell/loaded_cells.h"
#include "worker/process/interrupt.h"
#include "worker/process/run_state.h"
#include "worker/process/stack.h"
#include "worker/process/standard_streams.h"

namespace lockstep::python {
namespace {

using nlohmann::json;

std::string text_of(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

void post(const protocol::WorkerMessage& message) { call_back("post", {text_of(protocol::encode(message))}); }

void post_finding(const Finding& found) {
  Finding finding = found;
  finding.cell = worker::run_state().cell();
  if (const int line = worker::run_state().line(); line > 0 && !finding.where)
    finding.where = fmt::format("cell {}, line {}", worker::run_state().number(), line);
  post(protocol::FindingMessage{finding});
}

/// Holds what this process has loaded for the shell that sends cells now.
struct Cells {
  std::string shell;
  std::string folder;
  std::string prelude;  // that has been loaded for it
  std::unique_ptr<worker::LoadedCells> loaded;
};

Cells& cells() {
  static auto* const all = new Cells;
  return *all;
}

/// Takes {"shell": whose cells these are, "folder": for files of this rank, "rank": set_rank()}.
void begin(const std::string& text) {
  const json facts = json::parse(text);
  set_rank(facts.at("rank"));
  Cells& all = cells();
  const auto shell = facts.at("shell").get<std::string>();
  if (all.shell == shell) return;
  static const bool once = [] {
    worker::warm_up_stacks();
    worker::run_state().enter(RankState::idle);
    return true;
  }();
  static_cast<void>(once);
  const auto folder = facts.at("folder").get<std::string>();
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    throw std::runtime_error(fmt::format("{} can't be made: {}", folder, std::strerror(errno)));
  begin_objects(folder);
  // This comes last: where something fails, the next cell tries again.
  all = {
      .shell = shell, .folder = folder, .prelude = {}, .loaded = std::make_unique<worker::LoadedCells>(post_finding)};
}

/// Loads the cell of the message Load, after the prelude. Returns Loaded.
std::string load(const at::Tensor& object, const std::string& text, const std::string& prelude) {
  const auto message = std::get<protocol::Load>(protocol::decode_hub_message(json::parse(text)));
  Cells& all = cells();
  protocol::Loaded loaded;
  loaded.cell = message.cell;
  if (prelude != all.prelude) {
    loaded.message = worker::load_library(prelude);
    if (!loaded.message.empty()) {
      loaded.message = "the prelude of the cells can't be loaded: " + loaded.message;
      return text_of(protocol::encode(loaded));
    }
    all.prelude = prelude;
  }
  worker::run_state().enter(RankState::loading);
  loaded = all.loaded->load(message, all.folder,
                            {static_cast<const char*>(object.const_data_ptr()), static_cast<size_t>(object.numel())});
  worker::run_state().enter(RankState::idle);
  return text_of(protocol::encode(loaded));
}

void drop(int64_t cell) {
  if (cells().loaded) cells().loaded->drop(cell);
}

/// Runs the cell of the message Run. Returns Done.
std::string run(const std::string& text) {
  const auto message = std::get<protocol::Run>(protocol::decode_hub_message(json::parse(text)));
  protocol::Done done;
  done.cell = message.cell;
  done.status = CellStatus::ok;
  worker::become_run_thread();
  worker::run_state().begin_cell(message.cell, message.number == 0 ? message.cell : message.number);
  worker::name_cells_in_findings();
  inspect::set_program_log(nullptr);
  set_language(Language::cpp);
  inspect::set_finding_sink(post_finding);
  // A guard is a variable of the cell that lives on (`torch::NoGradGuard no_grad;`), but the thread is the program's.
  const at::ThreadLocalState state;
  const auto start = std::chrono::steady_clock::now();
  if (cells().loaded) cells().loaded->run(message, done);
  done.run_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  at::ThreadLocalState::setThreadLocalState(state);
  worker::flush_standard_streams();
  worker::run_state().enter(RankState::idle);
  return text_of(protocol::encode(done));
}

/// Makes interrupts end this cell from here on; 0: none.
void arm(int64_t cell) {
  if (cell != 0)
    worker::stop_requests().arm(cell);
  else
    worker::stop_requests().disarm();
}

/// Ends the cell at its next turn of a loop. From any thread.
void interrupt(int64_t cell) { worker::stop_requests().request(cell, worker::StopReason::interrupt); }

}  // namespace

TORCH_LIBRARY(lockstep_cells, m) {
  m.def("begin(str facts) -> ()", begin);
  m.def("load(Tensor object, str message, str prelude) -> str", load);
  m.def("drop(int cell) -> ()", drop);
  m.def("run(str message) -> str", run);
  m.def("arm(int cell) -> ()", arm);
  m.def("interrupt(int cell) -> ()", interrupt);
  m.def("forget() -> ()", forget_tensors);

  m.def("post(str message) -> ()");
  m.def("tensor(str expression) -> (Tensor, str)");
  m.def("number(str expression) -> (float, str)");
  m.def("set(str target, Tensor value) -> str");
}

}  // namespace lockstep::python

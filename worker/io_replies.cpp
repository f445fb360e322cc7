#include "worker/io_replies.h"

#include <unistd.h>

#include <fstream>
#include <map>
#include <sstream>

#include "collectives/session_group.h"
#include "worker/cell/cell_objects.h"
#include "worker/host.h"
#include "worker/interpose/throw_trace.h"
#include "worker/nccl_evidence.h"
#include "worker/process/run_state.h"

namespace lockstep::worker {
namespace {

// A query is answered within 100 ms, and its stack has been taken by now.
constexpr std::chrono::milliseconds kEvidencePatience{50};

RankState shown_state(RankState phase, bool in_collective) {
  return phase == RankState::running && in_collective ? RankState::waiting : phase;
}

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

int thread_count() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("Threads:")) return std::stoi(line.substr(8));
  return 0;
}

/// Returns "cell 7, line 4" of a return address; empty where it is not in a cell's text.
std::string place_of(uint64_t return_address, Symbols& symbols) {
  const uintptr_t address = return_address - 1;
  const auto frames = symbols.resolve({&address, 1});
  const Frame* frame = innermost_cell_frame(frames);
  return frame ? where(frame->cell, frame->line) : std::string();
}

std::string call_place(const dist::CollectiveRecord& record, Symbols& symbols) {
  return record.call_site == 0 ? std::string() : place_of(record.call_site, symbols);
}

nlohmann::json to_json(const dist::CollectiveRecord& record, Symbols& symbols) {
  const auto place = call_place(record, symbols);
  const bool over = record.done_ns > 0;
  const int64_t took = (over ? record.done_ns : RunState::now_ns()) - record.entered_ns;
  return {{"group", record.group},
          {"seq", record.seq},
          {"op", record.op},
          {"dtype", record.dtype},
          {"shape", record.shape},
          {"tensors", record.tensor_count},
          {"root", record.root >= 0 ? nlohmann::json(record.root) : nlohmann::json()},
          {"reduce_op", record.reduce_op.empty() ? nlohmann::json() : nlohmann::json(record.reduce_op)},
          {"tag", record.point_to_point ? nlohmann::json(record.tag) : nlohmann::json()},
          {"tag_seq", record.point_to_point ? nlohmann::json(record.tag_seq) : nlohmann::json()},
          {"bytes", record.bytes},
          {"cell", record.cell},
          {"where", place.empty() ? nlohmann::json() : nlohmann::json(place)},
          {"state", record.state == dist::CollectiveState::entered ? "entered"
                    : record.state == dist::CollectiveState::done  ? "done"
                                                                   : "failed"},
          {"stage", record.on_device ? nlohmann::json(dist::stage_name(record.stage())) : nlohmann::json()},
          {"entered_s_ago", static_cast<double>(RunState::now_ns() - record.entered_ns) / 1e9},
          {"took_us", static_cast<double>(took) / 1e3}};
}

}  // namespace

nlohmann::json status_reply(const Device* device, const Configuration& configuration, Symbols& symbols) {
  const auto& state = run_state();
  const RankState phase = state.phase();
  const auto collective = dist::current_collective();
  nlohmann::json body = device ? device->status() : nlohmann::json{{"device", configuration.device}};
  body["state"] = shown_state(phase, collective.has_value());
  body["cell"] = state.cell();
  body["line"] = phase == RankState::running && state.line() > 0 ? nlohmann::json(state.line()) : nlohmann::json();
  body["since_s"] = static_cast<double>(RunState::now_ns() - state.since_ns()) / 1e9;
  body["collective"] = collective ? to_json(*collective, symbols) : nlohmann::json();
  if (state.waits_for_device()) body["on_device"] = true;
  body["rss_bytes"] = resident_bytes();
  body["threads"] = thread_count();
  body["cells_loaded"] = cell_object_count();
  if (has_preemption_function()) body["on_preempt"] = true;
  return body;
}

nlohmann::json stack_reply(std::vector<Frame> frames) {
  // Kernels without unwind information hide what has called them. The statement is known.
  const auto& state = run_state();
  if (state.phase() == RankState::running && !state.waits_for_device() && state.line() > 0 &&
      !innermost_cell_frame(frames))
    frames.push_back({.function = {}, .cell = state.number(), .line = state.line(), .object = {}});
  nlohmann::json stack = nlohmann::json::array(), parts = nlohmann::json::array();
  for (const auto& frame : frames) {
    stack.push_back(frame.str());
    parts.push_back({{"function", frame.function},
                     {"cell", frame.cell > 0 ? nlohmann::json(frame.cell) : nlohmann::json()},
                     {"line", frame.line > 0 ? nlohmann::json(frame.line) : nlohmann::json()},
                     {"object", frame.object}});
  }
  return {{"stack", std::move(stack)}, {"frames", std::move(parts)}};
}

bool run_thread_held() {
  // The file has "pid (name) S …"; the run thread is the first of the process.
  std::ifstream file("/proc/self/task/" + std::to_string(::getpid()) + "/stat");
  std::string line;
  std::getline(file, line);
  const size_t name_end = line.rfind(") ");
  return name_end != std::string::npos && line.compare(name_end + 2, 1, "R") != 0;
}

/// Takes those of the cell that runs, or ran last. The lines of a throw stay, and are asked for again and again.
static nlohmann::json throws_reply(Symbols& symbols) {
  static thread_local std::map<int64_t, std::string> places;
  constexpr size_t kKnown = 256;
  if (places.size() > kKnown) places.clear();
  nlohmann::json list = nlohmann::json::array();
  for (const PastThrow& each : past_throws(run_state().cell())) {
    const auto [place, fresh] = places.emplace(each.time_ns, std::string());
    if (fresh) {
      const auto frames = symbols.resolve(each.stack);
      if (const Frame* frame = innermost_cell_frame(frames)) place->second = where(frame->cell, frame->line);
    }
    // Code that is not the user's has thrown it, and caught it, too.
    if (!place->second.empty())
      list.push_back({{"cell", each.cell}, {"type", each.type}, {"where", place->second}, {"time_ns", each.time_ns}});
  }
  return list;
}

nlohmann::json hang_reply(const protocol::question::Hang& question, int rank, bool held, Symbols& symbols) {
  const auto& state = run_state();
  nlohmann::json waits = nlohmann::json::object(), sites = nlohmann::json::array();
  for (const auto& record : dist::collectives_in_flight())
    if (const auto place = call_place(record, symbols); !place.empty()) waits[std::to_string(record.entry)] = place;
  std::string last;
  if (const auto records = dist::last_collectives(1); !records.empty()) last = call_place(records.front(), symbols);
  for (const auto& site : question.sites) {
    const uint64_t address = dist::code_address(site.cell, site.offset);
    const auto place = address == 0 ? std::string() : place_of(address, symbols);
    sites.push_back(place.empty() ? nlohmann::json() : nlohmann::json(place));
  }
  nlohmann::json evidence = nccl_evidence(rank, question.ras_rank == rank, kEvidencePatience);
  return {{"state", shown_state(state.phase(), !waits.empty())},
          {"evidence", std::move(evidence)},
          {"cell", state.cell()},
          {"since_s", static_cast<double>(RunState::now_ns() - state.since_ns()) / 1e9},
          {"held", held},
          {"asleep", state.asleep()},
          {"waits", std::move(waits)},
          {"throws", throws_reply(symbols)},
          {"last", last},
          {"sites", std::move(sites)}};
}

nlohmann::json collectives_reply(size_t last, Symbols& symbols) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& record : dist::last_collectives(last)) list.push_back(to_json(record, symbols));
  return {{"collectives", std::move(list)}};
}

protocol::Waiting waiting_message(const WaitsInVain& waits, Symbols& symbols) {
  protocol::Waiting message;
  message.cell = waits.record.cell;
  message.op = dist::to_finding_op(waits.record);
  message.missing = waits.missing;
  message.where = call_place(waits.record, symbols);
  return message;
}

}  // namespace lockstep::worker

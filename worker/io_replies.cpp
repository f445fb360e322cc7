#include "worker/io_replies.h"

#include <unistd.h>

#include <fstream>
#include <map>
#include <sstream>

#include "collectives/log/record_answer.h"
#include "collectives/session_group.h"
#include "worker/cell/cell_objects.h"
#include "worker/host.h"
#include "worker/interpose/throw_trace.h"
#include "worker/nccl_evidence.h"
#include "worker/process/run_state.h"

namespace lockstep::worker {

namespace question = protocol::question;

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

}  // namespace

question::Status::Answer status_answer(const Device* device, const Configuration& configuration, Symbols& symbols) {
  const auto& state = run_state();
  const RankState phase = state.phase();
  const auto collective = dist::current_collective();
  question::Status::Answer answer;
  answer.device = configuration.device;
  if (device) device->describe(answer);
  answer.state = shown_state(phase, collective.has_value());
  answer.cell = state.cell();
  if (phase == RankState::running && state.line() > 0) answer.line = state.line();
  answer.since_s = static_cast<double>(RunState::now_ns() - state.since_ns()) / 1e9;
  if (collective) answer.collective = dist::describe_to_shell(*collective, call_place(*collective, symbols));
  answer.on_device = state.waits_for_device();
  answer.rss_bytes = resident_bytes();
  answer.threads = thread_count();
  answer.cells_loaded = cell_object_count();
  answer.on_preempt = has_preemption_function();
  return answer;
}

question::Stack::Answer stack_answer(std::vector<Frame> frames) {
  // Kernels without unwind information hide what has called them. The statement is known.
  const auto& state = run_state();
  if (state.phase() == RankState::running && !state.waits_for_device() && state.line() > 0 &&
      !innermost_cell_frame(frames))
    frames.push_back({.function = {}, .cell = state.number(), .line = state.line(), .object = {}});
  question::Stack::Answer answer;
  for (const auto& frame : frames) {
    answer.stack.push_back(frame.str());
    question::Frame& known = answer.frames.emplace_back();
    known.function = frame.function;
    if (frame.cell > 0) known.cell = frame.cell;
    if (frame.line > 0) known.line = frame.line;
    known.object = frame.object;
  }
  return answer;
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
static std::vector<question::Throw> throws_in_cell(Symbols& symbols) {
  static thread_local std::map<int64_t, std::string> places;
  constexpr size_t kKnown = 256;
  if (places.size() > kKnown) places.clear();
  std::vector<question::Throw> throws;
  for (const PastThrow& each : past_throws(run_state().cell())) {
    const auto [place, fresh] = places.emplace(each.time_ns, std::string());
    if (fresh) {
      const auto frames = symbols.resolve(each.stack);
      if (const Frame* frame = innermost_cell_frame(frames)) place->second = where(frame->cell, frame->line);
    }
    // Code that is not the user's has thrown it, and caught it, too.
    if (!place->second.empty())
      throws.push_back({.cell = each.cell, .type = each.type, .where = place->second, .time_ns = each.time_ns});
  }
  return throws;
}

question::Hang::Answer hang_answer(const question::Hang& question, int rank, bool held,
                                   const std::optional<std::vector<Frame>>& frames, Symbols& symbols) {
  question::Hang::Answer answer;
  if (frames) answer.frames = stack_answer(*frames).frames;
  answer.held = held;
  answer.asleep = run_state().asleep();
  for (const auto& record : dist::collectives_in_flight())
    if (auto place = call_place(record, symbols); !place.empty())
      answer.waits[std::to_string(record.entry)] = std::move(place);
  if (const auto records = dist::last_collectives(1); !records.empty())
    answer.last = call_place(records.front(), symbols);
  answer.throws = throws_in_cell(symbols);
  for (const auto& site : question.sites) {
    const uint64_t address = dist::code_address(site.cell, site.offset);
    answer.sites.push_back(address == 0 ? std::string() : place_of(address, symbols));
  }
  answer.evidence = nccl_evidence(rank, question.ras_rank == rank, kEvidencePatience);
  return answer;
}

question::Collectives::Answer collectives_answer(size_t last, Symbols& symbols) {
  question::Collectives::Answer answer;
  for (const auto& record : dist::last_collectives(last))
    answer.collectives.push_back(dist::describe_to_shell(record, call_place(record, symbols)));
  return answer;
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

#include "shell/processes/worker_group.h"

#include <algorithm>
#include <utility>

#include "protocol/error.h"
#include "protocol/files.h"
#include "shell/processes/random_key.h"

namespace lockstep::shell {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A worker needs a fraction of a second to start; a machine that is busy, or many of them, much more.
constexpr seconds kWorkerStartLimit{60};
constexpr milliseconds kWorkerStartLimitPerRank{1000};

std::string rank_name(int rank) { return "rank " + std::to_string(rank); }

int count_of(const WorkerGroup::Places& places) {
  int count = 0;
  for (const auto& each : places) count += each->count();
  return count;
}

}  // namespace

WorkerGroup::WorkerGroup(EventLoop& loop, Places places, const SessionOptions& options,
                         const SessionDirectory& directory, Listener listener)
    : RankGroup(loop, directory.hub_endpoint(), count_of(places), std::move(listener)),
      places_(std::move(places)),
      order_{.world_size = world_size(),
             .nodes = static_cast<int>(places_.size()),
             .identities = {},
             .store_key = random_key(),
             .store = {},
             .backend = options.backend,
             .share_gpu = options.share_gpu,
             .all_gpus_visible = options.all_gpus_visible,
             .check_collectives = options.check_collectives,
             .arguments = options.arguments,
             .directory = working_directory()} {
  for (size_t place = 0; place < places_.size(); ++place)
    for (int i = 0; i < places_[place]->count(); ++i) processes_.push_back({.place = place, .end = {}});
  start_place(0);
}

WorkerGroup::~WorkerGroup() { ending_ = true; }

std::map<size_t, RankSet> WorkerGroup::by_place(const RankSet& ranks) const {
  std::map<size_t, RankSet> result;
  for (const int rank : ranks) result[processes_.at(static_cast<size_t>(rank)).place].insert(rank);
  return result;
}

/// The first has the store, which the others are told of.
void WorkerGroup::start_place(size_t place) {
  StartRanks order = order_;
  order.node = static_cast<int>(place);
  for (size_t before = 0; before < place; ++before) order.first += places_[before]->count();
  order.count = places_[place]->count();
  for (int rank = order.first; rank < order.first + order.count; ++rank) order.identities.push_back(hub_.expect(rank));
  places_[place]->start(order, listener_of(place));
}

RankPlace::Listener WorkerGroup::listener_of(size_t place) {
  return {.started = [this, place](const RanksStarted& what) { started(place, what); },
          .failed = [this](const std::string& why) { fail_start(why); },
          .ended =
              [this](int rank, const std::string& how, int signal) {
                at_process(rank).end = End{how, signal};
                process_ended(rank);
              },
          .store_ended =
              [this](const std::string& how, const std::string& last_lines) {
                if (starting_)
                  fail_start("the store's process " + how + "\n" + last_lines);
                else if (!ending_)
                  listener_.store_ended(how + (last_lines.empty() ? "" : " (" + last_lines.substr(2) + ")"));
              },
          .warning = listener_.warning};
}

void WorkerGroup::fail_start(const std::string& why) {
  if (starting_ && start_error_.empty()) start_error_ = why;
}

void WorkerGroup::started(size_t place, const RanksStarted& what) {
  const auto count = static_cast<size_t>(places_[place]->count());
  if (what.pids.size() != count || what.start_times.size() != count || what.devices.size() != count)
    return fail_start(places_[place]->host() + " has started other ranks than it was asked for");
  int rank = 0;
  for (size_t before = 0; before < place; ++before) rank += places_[before]->count();
  for (size_t i = 0; i < count; ++i, ++rank) {
    at(rank).info.pid = what.pids[i];
    at(rank).info.device = what.devices[i];
    at_process(rank).start_time = what.start_times[i];
  }
  if (place > 0 && what.backend != backend_)
    return fail_start("ranks on " + places_[place]->host() + " would use the backend " + what.backend +
                      ", and those on " + places_[0]->host() + " " + backend_ +
                      ": either all hosts have GPUs for their ranks, or none; CUDA_VISIBLE_DEVICES= hides them, and "
                      "--backend chooses");
  if (place > 0) return;
  backend_ = what.backend;
  order_.store = what.store;
  for (size_t other = 1; other < places_.size(); ++other) start_place(other);
}

void WorkerGroup::begin_shutdown() {
  for (const auto& each : places_) each->end_soon();
}

std::array<std::string, 2> WorkerGroup::take_last_output(int rank, const std::array<int64_t, 2>& received) {
  return place_of(rank).take_output(rank, received);
}

void WorkerGroup::read_logs(const std::vector<inspect::RankPicture*>& ranks, size_t recent) const {
  std::map<size_t, std::vector<inspect::RankPicture*>> by_place;
  for (inspect::RankPicture* each : ranks)
    by_place[processes_.at(static_cast<size_t>(each->rank)).place].push_back(each);
  for (const auto& [place, there] : by_place) places_[place]->read_logs(there, recent);
}

void WorkerGroup::send_object(const RankSet& ranks, protocol::Load load, std::string bytes) {
  RankSet by_hub;
  for (const auto& [place, there] : by_place(ranks)) {
    const auto file = places_[place]->put(bytes);
    if (!file) {
      by_hub = by_hub | there;
      continue;
    }
    load.file = *file;
    hub_.send(there, load);
  }
  load.file.clear();
  if (!by_hub.empty()) RankGroup::send_object(by_hub, load, std::move(bytes));
}

void WorkerGroup::give_up(int number, const std::string& why) {
  const std::string what = "it sent the session what can't be read: " + why;
  if (starting_) {
    start_error_ = rank_name(number) + ": " + what;
  } else if (auto& last_words = at(number).last_words; !last_words) {
    last_words.emplace();
    last_words->type = "protocol_error";
    last_words->message = what + "; its process was ended";
    kill(number);
  }
}

void WorkerGroup::buried(int number, State) {
  if (starting_ && start_error_.empty())
    start_error_ = rank_name(number) + " " + at(number).end->words + " while it started" + quoted_output(number);
  if (!starting_ && !ending_) listener_.died(number, obituary(number));
}

/// "; it wrote:" and the last lines of what the process of a rank wrote; empty where it wrote nothing.
std::string WorkerGroup::quoted_output(int number) const {
  const std::string lines = place_of(number).last_lines(number);
  return lines.empty() ? "" : "; it wrote:\n" + lines;
}

protocol::CellError WorkerGroup::obituary(int number) const {
  const Rank& rank = at(number);
  protocol::CellError error;
  if (rank.last_words) error = *rank.last_words;
  error.root_cause = true;
  if (error.type.empty()) error.type = rank.end->signal != 0 ? signal_name(rank.end->signal) : "exit";
  if (error.message.empty()) error.message = "the process " + rank.end->words;
  error.message += quoted_output(number);
  return error;
}

void WorkerGroup::wait_until_all(State wanted, const std::string& what) {
  const auto behind = [&] {
    RankSet result;
    for (int r = 0; r < world_size(); ++r)
      if (rank(r).state < wanted) result.insert(r);
    return result;
  };
  const auto limit = kWorkerStartLimit + kWorkerStartLimitPerRank * world_size();
  if (serve_start([&] { return behind().empty(); }, limit, "the session could not start: ")) return;
  const RankSet missing = behind();
  const int first = missing.ranks().front();
  std::string message = "the session could not start: rank " + missing.str() + " " + what + " in " +
                        std::to_string(std::chrono::duration_cast<seconds>(limit).count()) + " s";
  const std::string quoted = place_of(first).last_lines(first);
  if (!quoted.empty()) message += "; rank " + std::to_string(first) + " wrote:\n" + quoted;
  throw StartError(message);
}

void WorkerGroup::wait_connected() { wait_until_all(State::connected, "did not connect"); }

void WorkerGroup::make_ready(const std::string& prelude, const Versions& compiler) {
  compare_versions(compiler);
  std::string bytes;
  for (const auto& [place, there] : by_place(RankSet::all(world_size()))) {
    if (places_[place]->host().empty()) {
      hub_.send(there, protocol::Prelude{prelude});
      continue;
    }
    if (bytes.empty()) bytes = protocol::read_file(prelude).value_or("");
    hub_.send(there, protocol::Prelude{places_[place]->put(bytes).value_or("")});
  }
  wait_until_all(State::ready, "did not get ready");
  starting_ = false;
}

void WorkerGroup::compare_versions(const Versions& compiler) const {
  const auto differ = [](const std::string& who, const std::string& what, const std::string& theirs,
                         const std::string& ours) {
    if (theirs != ours)
      throw StartError("the session could not start: " + who + " is of " + what + " " + theirs +
                       ", and this session of " + ours +
                       ": use programs of one build (LOCKSTEP_BIN names their folder)");
  };
  differ("lockstep-compiler", "protocol", std::to_string(compiler.protocol), std::to_string(kProtocolVersion));
  differ("lockstep-compiler", "version", compiler.lockstep, kVersion);
  for (int r = 0; r < world_size(); ++r) {
    const Versions& worker = rank(r).hello.versions;
    differ("lockstep-worker", "protocol", std::to_string(worker.protocol), std::to_string(kProtocolVersion));
    differ("lockstep-worker", "version", worker.lockstep, kVersion);
    differ("the worker of " + rank_name(r), "LibTorch", worker.libtorch, compiler.libtorch);
  }
}

nlohmann::json WorkerGroup::describe() const {
  nlohmann::json workers = nlohmann::json::array();
  for (int r = 0; r < world_size(); ++r)
    if (const std::string host = place_of(r).host(); host.empty())
      workers.push_back(
          {{"rank", r}, {"pid", rank(r).pid}, {"start_time", processes_[static_cast<size_t>(r)].start_time}});
    else  // a process of another machine is not looked for here
      workers.push_back({{"rank", r}, {"host", host}});
  return workers;
}

}  // namespace lockstep::shell

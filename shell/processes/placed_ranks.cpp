#include "shell/processes/placed_ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/evp.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "collectives/log/process_identity.h"
#include "protocol/error.h"
#include "protocol/files.h"
#include "shell/processes/random_key.h"
#include "shell/processes/session_directory.h"

namespace lockstep::shell {
namespace {

/// Returns a file's name for these bytes, by their SHA-256.
std::string name_of(const std::string& bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest, &size, EVP_sha256(), nullptr) != 1)
    throw StartError("libcrypto can't compute SHA-256");
  return fmt::format("file-{:02x}", fmt::join(digest, digest + size, ""));
}

}  // namespace

PlacedRanks::PlacedRanks(RankPlaces places, Hub& hub, Listener listener)
    : places_(std::move(places)), hub_(hub), listener_(std::move(listener)) {
  for (size_t place = 0; place < places_.size(); ++place)
    for (int i = 0; i < places_[place]->count(); ++i) processes_.push_back({.place = place, .end = {}});
}

int PlacedRanks::first_of(size_t place) const {
  int first = 0;
  for (size_t before = 0; before < place; ++before) first += places_[before]->count();
  return first;
}

/// Machines have numbers in the order of their first ranks.
int PlacedRanks::node_of(size_t place) const {
  std::vector<std::string> hosts;
  for (size_t i = 0; i < places_.size(); ++i) {
    const std::string host = places_[i]->host();
    const auto known = std::ranges::find(hosts, host);
    if (i == place) return static_cast<int>(known - hosts.begin());
    if (known == hosts.end()) hosts.push_back(host);
  }
  return static_cast<int>(hosts.size());
}

std::map<size_t, RankSet> PlacedRanks::by_place(const RankSet& ranks) const {
  std::map<size_t, RankSet> result;
  for (const int rank : ranks) result[processes_.at(static_cast<size_t>(rank)).place].insert(rank);
  return result;
}

void PlacedRanks::start(const SessionOptions& options) {
  order_ = {.world_size = size(),
            .nodes = node_of(places_.size()),
            .identities = {},
            .store_key = random_key(),
            .store = {},
            .backend = options.backend,
            .share_gpu = options.share_gpu,
            .all_gpus_visible = options.all_gpus_visible,
            .check_collectives = options.check_collectives,
            .arguments = options.arguments,
            .directory = working_directory(),
            .python = options.python};
  start_place(0);
}

void PlacedRanks::start_place(size_t place) {
  StartRanks order = order_;
  order.node = node_of(place);
  order.local_first = places_[place]->local_first();
  order.local_size = places_[place]->local_size();
  order.first = first_of(place);
  order.count = places_[place]->count();
  RankSet ranks;
  for (int rank = order.first; rank < order.first + order.count; ++rank) {
    order.identities.push_back(hub_.expect(rank));
    ranks.insert(rank);
  }
  if (auto carry = places_[place]->carry(order)) hub_.carry(ranks, std::move(carry));
  places_[place]->start(
      order,
      {.started = [this, place](const RanksStarted& what) { started(place, what); },
       .failed = listener_.failed,
       .ended =
           [this](int rank, const RankExit& end) {
             processes_.at(static_cast<size_t>(rank)).end = end;
             listener_.ended(rank);
           },
       .store_ended = listener_.store_ended,
       .warning = listener_.warning,
       .sent = [this](Carried message, const std::map<int, int>& lives) { hub_.deliver(std::move(message), lives); },
       .left = [this](const RankSet& ranks, const std::map<int, int>& lives) { hub_.deliver_ends(ranks, lives); },
       .calls = listener_.calls});
}

void PlacedRanks::started(size_t place, const RanksStarted& what) {
  const auto count = static_cast<size_t>(places_[place]->count());
  if (what.pids.size() != count || what.start_times.size() != count || what.devices.size() != count)
    return listener_.failed(places_[place]->host() + " has started other ranks than it was asked for");
  for (size_t i = 0; i < count; ++i) {
    const int rank = first_of(place) + static_cast<int>(i);
    Process& process = processes_.at(static_cast<size_t>(rank));
    process.pid = what.pids[i];
    process.start_time = what.start_times[i];
    listener_.started(rank, what.pids[i], what.devices[i]);
  }
  interfaces_.resize(places_.size());
  interfaces_[place] = what.interface;
  if (place > 0 && what.backend != backend_)
    return listener_.failed(
        "ranks on " + places_[place]->host() + " would use the backend " + what.backend + ", and those on " +
        places_[0]->host() + " " + backend_ +
        ": either all hosts have GPUs for their ranks, or none; CUDA_VISIBLE_DEVICES= hides them, and "
        "--backend chooses");
  if (place > 0) return;
  backend_ = what.backend;
  interpreter_ = what.interpreter;
  order_.store = what.store;
  for (size_t other = 1; other < places_.size(); ++other) start_place(other);
}

void PlacedRanks::grow(const SessionPlan& plan) {
  places_.front()->grow(plan);
  order_.grow(plan.world_size);
  processes_.resize(static_cast<size_t>(plan.world_size));
  backend_ = plan.backend;
}

void PlacedRanks::restart(int rank, int64_t generation) {
  Process& process = processes_.at(static_cast<size_t>(rank));
  process.end.reset();  // first: a process may end while its place waits for it
  const RankProcess started = places_[process.place]->restart(rank, hub_.expect(rank), generation);
  process.pid = started.pid;
  process.start_time = started.start_time;
}

void PlacedRanks::came_back(int rank, pid_t pid) {
  Process& process = processes_.at(static_cast<size_t>(rank));
  if (process.pid != 0) return;
  process.pid = pid;
  process.start_time = place_of(rank).host().empty() ? dist::process_start_time(pid).value_or(0) : 0;
}

void PlacedRanks::end_soon() {
  for (const auto& each : places_) each->end_soon();
}

void PlacedRanks::read_logs(const std::vector<inspect::RankPicture*>& ranks, const inspect::LogPart& part) const {
  std::map<size_t, std::vector<inspect::RankPicture*>> by_place;
  for (inspect::RankPicture* each : ranks)
    by_place[processes_.at(static_cast<size_t>(each->rank)).place].push_back(each);
  std::vector<std::function<void()>> answers;  // of all hosts, which are asked at once
  for (const auto& [place, there] : by_place) answers.push_back(places_[place]->begin_read_logs(there, part));
  for (const auto& answer : answers) answer();
}

void PlacedRanks::send_prelude(const RankSet& ranks, const std::string& path) {
  std::shared_ptr<const std::string> bytes;
  std::string name;
  for (const auto& [place, there] : by_place(ranks)) {
    if (places_[place]->host().empty()) {
      hub_.send(there, protocol::Prelude{path, protocol::output_window(size())});
      continue;
    }
    if (!bytes) {
      bytes = std::make_shared<const std::string>(protocol::read_file(path).value_or(""));
      name = name_of(*bytes);
    }
    hub_.send(there, protocol::Prelude{places_[place]->put(name, bytes).value_or(""), protocol::output_window(size())});
  }
}

void PlacedRanks::send_object(const RankSet& ranks, protocol::Load load, std::string object) {
  const auto bytes = std::make_shared<std::string>(std::move(object));
  const std::string name = places_.front()->host().empty() ? "" : name_of(*bytes);
  RankSet by_hub;
  for (const auto& [place, there] : by_place(ranks)) {
    const auto file = places_[place]->put(name, bytes);
    if (!file) {
      by_hub = by_hub | there;
      continue;
    }
    load.file = *file;
    hub_.send(there, load);
  }
  if (by_hub.empty()) return;
  load.file.clear();
  std::vector<zmq::message_t> frames;
  frames.push_back(shared_frame(bytes.use_count() == 1 ? std::move(*bytes) : *bytes));
  hub_.send(by_hub, load, std::move(frames));
}

std::string PlacedRanks::places_text() const {
  if (places_.front()->host().empty()) return "";
  std::vector<std::pair<std::string, RankSet>> hosts;  // with the interface
  for (size_t place = 0; place < places_.size(); ++place) {
    const std::string name = places_[place]->host() + " by " + interfaces_.at(place);
    auto host = std::ranges::find(hosts, name, &std::pair<std::string, RankSet>::first);
    if (host == hosts.end()) host = hosts.insert(hosts.end(), {name, {}});
    for (int rank = first_of(place); rank < first_of(place) + places_[place]->count(); ++rank)
      host->second.insert(rank);
  }
  std::string text;
  for (const auto& [name, ranks] : hosts)
    text += ranks.words() + (ranks.size() == 1 ? " is on " : " are on ") + name + "\n";
  return text + "The store of the session is at " + order_.store +
         (order_.nodes > 1 ? ". It and the collectives are not encrypted: who is on that network can read them" : "");
}

std::string PlacedRanks::quoted_output(int rank) const {
  const std::string lines = place_of(rank).last_lines(rank);
  return lines.empty() ? "" : "; it wrote:\n" + lines;
}

nlohmann::json PlacedRanks::describe() const {
  nlohmann::json workers = nlohmann::json::array();
  for (int rank = 0; rank < size(); ++rank) {
    const Process& process = processes_[static_cast<size_t>(rank)];
    if (const std::string host = places_[process.place]->host(); !host.empty())
      workers.push_back({{"rank", rank}, {"host", host}});
    else if (process.pid != 0)
      workers.push_back({{"rank", rank}, {"pid", process.pid}, {"start_time", process.start_time}});
  }
  return workers;
}

}  // namespace lockstep::shell

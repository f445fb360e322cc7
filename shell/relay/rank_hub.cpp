#include "shell/relay/rank_hub.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <utility>

#include "protocol/read_json.h"
#include "shell/hosts/host.h"

namespace lockstep::shell {
namespace {

using std::chrono::milliseconds;

// Of answers the last one counts, and that does not wait. Output is for people, who do not see this.
constexpr milliseconds kGather{10};
constexpr size_t kMostBytes = 256 << 10;  // that wait
constexpr size_t kMostFrames = 1000;  // protocol/pipe_channel.cpp takes 4096

/// Holds what the hub looks at in a message. What is no message goes on as it is: the session judges it.
struct Seen {
  bool is_answer = false;
  std::optional<double> run_ms;  // of a Done, which is alike on all ranks without it: it is taken out of the header
};

Seen look_at(std::string& header) {
  Seen seen;
  auto json = protocol::read_json(header);
  const auto kind = json.is_object() ? json.find("kind") : json.end();
  if (kind == json.end() || !kind->is_string()) return seen;
  const bool is_done = *kind == "done";
  seen.is_answer = is_done || *kind == "loaded" || *kind == "reply" || *kind == "ready" || *kind == "regrouped";
  const auto time = is_done ? json.find("run_ms") : json.end();
  if (time == json.end() || !time->is_number()) return seen;
  seen.run_ms = time->get<double>();
  json.erase(time);
  header = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return seen;
}

}  // namespace

RankHub::RankHub(EventLoop& loop, const std::string& endpoint, Write write)
    : loop_(loop), endpoint_(endpoint), write_(std::move(write)), sockets_(endpoint), due_(loop) {
  loop_.watch(sockets_.socket(), [this] { read(); });
  loop_.watch(sockets_.monitor(), [this] { look_at_connections(); });
}

RankHub::~RankHub() {
  loop_.forget(sockets_.socket());
  loop_.forget(sockets_.monitor());
}

void RankHub::expect(int rank, const std::string& identity) {
  flush();  // what the process before has sent is of its life
  if (known_.contains(rank)) ++lives_[rank];
  known_.insert(rank);
  ended_.erase(rank);
  sockets_.expect(rank, identity);
}

void RankHub::send(const RankSet& ranks, std::vector<std::string> frames) {
  std::vector<zmq::message_t> shared;
  for (std::string& each : frames) shared.push_back(shared_frame(std::move(each)));
  asked_ = ranks & known_;
  sockets_.send(asked_, shared);
}

void RankHub::read() {
  // A storm of output must not keep the relay from what else it has to do: the loop comes back for what is left.
  constexpr int kAtOnce = 256;
  for (int i = 0; i < kAtOnce; ++i) {
    auto received = sockets_.receive();
    if (!received) break;
    if (received->rank >= 0)
      take(received->rank, std::move(received->frames));
    else if (!std::exchange(has_warned_, true))
      write_(
          RelayWarning{fmt::format("a process that is no rank of this session connects to its socket on {} ({}); what "
                                   "it sends is ignored",
                                   this_host(), endpoint_)},
          {});
  }
  look_at_connections();
}

void RankHub::take(int rank, std::vector<zmq::message_t> frames) {
  std::vector<std::string> parts;
  for (const zmq::message_t& each : frames) parts.push_back(each.to_string());
  if (parts.empty()) parts.emplace_back();
  const Seen seen = look_at(parts.front());
  const bool were_asked = !asked_.empty();
  if (seen.is_answer) asked_.erase(rank);
  std::string key = fmt::format("{}\n{}", parts.size(), fmt::join(parts, "\n"));
  // The order of one rank's messages stays: it joins no message that stands before its last one, and no second Done.
  const auto same = alike_.find(key);
  const auto newest = newest_.find(rank);
  const bool is_new_time = !seen.run_ms || !waiting_.run_ms.contains(rank);
  if (!is_new_time) flush();
  if (is_new_time && same != alike_.end() && (newest == newest_.end() || newest->second < same->second)) {
    newest_[rank] = same->second;
    waiting_.from[same->second].insert(rank);
  } else {
    newest_[rank] = alike_[std::move(key)] = waiting_.from.size();
    waiting_.from.push_back(RankSet{rank});
    waiting_.frames.push_back(static_cast<int>(parts.size()));
    for (std::string& each : parts) {
      bytes_ += each.size();
      frames_.push_back(std::move(each));
    }
  }
  if (seen.run_ms) waiting_.run_ms[rank] = *seen.run_ms;
  if ((were_asked && asked_.empty()) || bytes_ >= kMostBytes || frames_.size() >= kMostFrames)
    flush();
  else if (!due_.is_set())
    due_.set_after(kGather, [this] { flush(); });
}

void RankHub::flush() {
  due_.cancel();
  if (waiting_.from.empty()) return;
  waiting_.lives = lives_;
  write_(std::exchange(waiting_, {}), std::exchange(frames_, {}));
  alike_.clear();
  newest_.clear();
  bytes_ = 0;
}

void RankHub::look_at_connections() {
  for (;;) {  // receive() reads of other ends
    sockets_.take_connection_events();
    const RankSet gone = sockets_.ended() - ended_;
    if (gone.empty()) return;
    ended_ = ended_ | gone;
    while (auto received = sockets_.receive())  // all that they had sent is there
      if (received->rank >= 0) take(received->rank, std::move(received->frames));
    flush();
    write_(RanksLeft{.ranks = gone, .lives = lives_}, {});
  }
}

}  // namespace lockstep::shell

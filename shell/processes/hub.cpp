#include "shell/processes/hub.h"

#include <utility>

#include "protocol/read_json.h"
#include "shell/processes/random_key.h"

namespace lockstep::shell {
namespace {

/// Throws BadMessage.
protocol::WorkerMessage decoded(int rank, const std::vector<zmq::message_t>& frames) {
  if (frames.empty()) throw BadMessage(rank, "an empty message");
  const auto header = protocol::read_json(frames[0].to_string_view());
  if (header.is_discarded()) throw BadMessage(rank, "a message that is not JSON, or nested too deeply");
  try {
    return protocol::decode_worker_message(header);
  } catch (const ChannelError& error) {
    throw BadMessage(rank, error.what());
  } catch (const nlohmann::json::exception& error) {
    throw BadMessage(rank, std::string("a message with fields of wrong types: ") + error.what());
  }
}

int life_in(const std::map<int, int>& lives, int rank) {
  const auto found = lives.find(rank);
  return found == lives.end() ? 0 : found->second;
}

}  // namespace

Hub::Hub(const std::string& endpoint) : sockets_(endpoint), delivered_(make_event()) {
  if (!delivered_) throw StartError("the session could not start: no descriptor is left");
}

const std::string& Hub::expect(int rank) {
  std::string& identity = identities_[rank];
  identity = "rank-" + std::to_string(rank) + "-" + random_key();
  sockets_.expect(rank, identity);
  remote_ended_.erase(rank);
  if (const auto remote = remote_.find(rank); remote != remote_.end())
    remote->second = {.way = remote->second.way, .life = remote->second.life + 1};
  return identity;
}

void Hub::carry(const RankSet& ranks, Carry carry) {
  ways_.push_back(std::move(carry));
  for (const int rank : ranks) remote_[rank] = {.way = ways_.size() - 1};
}

void Hub::deliver(Carried message, const std::map<int, int>& lives) {
  Arrived arrived{.run_ms = std::move(message.run_ms)};
  for (const int rank : message.ranks) {
    const auto remote = remote_.find(rank);
    if (remote == remote_.end() || remote->second.life != life_in(lives, rank)) continue;
    remote->second.has_come = true;
    arrived.ranks.insert(rank);
  }
  if (arrived.ranks.empty()) return;
  arrived.frames.push_back(shared_frame(std::move(message.header)));
  for (std::string& frame : message.frames) arrived.frames.push_back(shared_frame(std::move(frame)));
  arrived_.push_back(std::move(arrived));
  set_event(delivered_.get());
}

void Hub::deliver_ends(const RankSet& ranks, const std::map<int, int>& lives) {
  for (const int rank : ranks)
    if (const auto remote = remote_.find(rank);
        remote != remote_.end() && remote->second.life == life_in(lives, rank)) {
      remote_ended_.insert(rank);
      set_event(delivered_.get());
    }
}

void Hub::send(int rank, const protocol::HubMessage& message) { send(RankSet{rank}, message); }

void Hub::send(const RankSet& ranks, const protocol::HubMessage& message, std::vector<zmq::message_t> frames) {
  if (ranks.empty()) return;
  const std::string header = encode(message).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  std::map<size_t, RankSet> by_way;
  RankSet here;
  for (const int rank : ranks) {
    const auto remote = remote_.find(rank);
    (remote == remote_.end() ? here : by_way[remote->second.way]).insert(rank);
  }
  const bool is_urgent = std::holds_alternative<protocol::Interrupt>(message) ||
                         std::holds_alternative<protocol::Abort>(message) ||
                         std::holds_alternative<protocol::Query>(message);
  for (const auto& [way, there] : by_way) ways_[way](there, header, frames, is_urgent);
  if (here.empty()) return;
  frames.insert(frames.begin(), zmq::message_t(header));
  sockets_.send(here, frames);
}

size_t Hub::arrived() {
  while (auto received = sockets_.receive())
    arrived_.push_back({.ranks = RankSet{received->rank}, .frames = std::move(received->frames)});
  size_t count = 0;
  for (const Arrived& each : arrived_) count += each.ranks.size() - each.next;
  return count;
}

std::optional<FromWorker> Hub::receive() {
  if (arrived_.empty()) {
    if (!remote_.empty()) take_event(delivered_.get());
    auto received = sockets_.receive();
    if (!received) return std::nullopt;
    Arrived one{.ranks = RankSet{received->rank}, .frames = std::move(received->frames)};
    return next_of(one);
  }
  Arrived& front = arrived_.front();
  if (front.next + 1 < front.ranks.size()) return next_of(front);
  Arrived last = std::move(front);
  arrived_.pop_front();
  return next_of(last);
}

FromWorker Hub::next_of(Arrived& arrived) {
  FromWorker result;
  const int rank = result.rank = arrived.ranks.ranks().at(arrived.next++);
  if (rank < 0) return result;
  if (!arrived.message) arrived.message = decoded(rank, arrived.frames);
  const bool is_last = arrived.next == arrived.ranks.size();
  if (is_last)
    result.message = *std::move(arrived.message);
  else
    result.message = *arrived.message;
  for (size_t i = 1; i < arrived.frames.size(); ++i) result.frames.emplace_back().copy(arrived.frames[i]);
  auto* done = std::get_if<protocol::Done>(&result.message);
  if (const auto time = arrived.run_ms.find(rank); done && time != arrived.run_ms.end()) done->run_ms = time->second;
  return result;
}

bool Hub::was_connected(int rank) const {
  const auto remote = remote_.find(rank);
  return remote == remote_.end() ? sockets_.was_connected(rank) : remote->second.has_come;
}

}  // namespace lockstep::shell

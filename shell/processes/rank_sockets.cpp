#include "shell/processes/rank_sockets.h"

#include <cstring>

#include "protocol/error.h"
#include "shell/processes/zmq_calls.h"

namespace lockstep::shell {
namespace {

constexpr const char* kMonitor = "inproc://hub-monitor";

}  // namespace

zmq::message_t shared_frame(std::string bytes) {
  auto owner = new std::string(std::move(bytes));
  return zmq::message_t(
      owner->data(), owner->size(), [](void*, void* hint) { delete static_cast<std::string*>(hint); }, owner);
}

RankSockets::RankSockets(const std::string& endpoint)
    : router_(context_, zmq::socket_type::router), monitor_(context_, zmq::socket_type::pair) {
  router_.set(zmq::sockopt::linger, 0);
  router_.set(zmq::sockopt::sndhwm, 0);
  router_.set(zmq::sockopt::rcvhwm, 0);
  router_.set(zmq::sockopt::router_mandatory, 1);
  monitor_.set(zmq::sockopt::linger, 0);
  if (zmq_socket_monitor(router_.handle(), kMonitor, ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED) != 0)
    throw StartError(std::string("the hub's monitor could not start: ") + zmq_strerror(errno));
  without_interrupts([&] { monitor_.connect(kMonitor); });
  try {
    without_interrupts([&] { router_.bind(endpoint); });
  } catch (const zmq::error_t& error) {
    throw StartError("the session's socket " + endpoint + " could not be made: " + error.what());
  }
}

RankSockets::~RankSockets() { zmq_socket_monitor(router_.handle(), nullptr, 0); }

void RankSockets::expect(int rank, const std::string& identity) {
  std::string& known = identities_[rank];
  ranks_.erase(known);
  connections_.erase(rank);
  gone_.erase(rank);
  known = identity;
  ranks_[identity] = rank;
}

void RankSockets::send(const RankSet& ranks, std::vector<zmq::message_t>& frames) {
  for (const int rank : ranks) {
    const auto identity = identities_.find(rank);
    if (identity == identities_.end()) continue;
    try {
      zmq::message_t to(identity->second);
      shell::send(router_, to, zmq::send_flags::sndmore | zmq::send_flags::dontwait);
    } catch (const zmq::error_t& error) {
      if (error.num() == EHOSTUNREACH) continue;
      throw ChannelError(std::string("sending to rank ") + std::to_string(rank) + " failed: " + error.what());
    }
    for (size_t i = 0; i < frames.size(); ++i) {
      zmq::message_t copy;
      copy.copy(frames[i]);
      shell::send(router_, copy, i + 1 < frames.size() ? zmq::send_flags::sndmore : zmq::send_flags::none);
    }
  }
}

std::optional<RankSockets::Received> RankSockets::receive() {
  zmq::message_t identity;
  if (!shell::receive(router_, identity, zmq::recv_flags::dontwait)) return std::nullopt;
  Received result;
  for (bool more = identity.more(); more; more = result.frames.back().more())
    (void)shell::receive(router_, result.frames.emplace_back());
  const auto sender = ranks_.find(identity.to_string_view());
  if (sender == ranks_.end()) return result;
  result.rank = sender->second;
  if (!result.frames.empty()) note_connection(result.rank, result.frames.front());
  return result;
}

void RankSockets::note_connection(int rank, const zmq::message_t& frame) {
  if (connections_.contains(rank)) return;
  const int descriptor = zmq_msg_get(const_cast<zmq_msg_t*>(frame.handle()), ZMQ_SRCFD);
  if (descriptor < 0) return;
  take_connection_events();  // events of the connections that had this descriptor before
  connections_[rank] = descriptor;
  if (ended_.contains(descriptor)) gone_.insert(rank);
}

void RankSockets::take_connection_events() {
  zmq::message_t event, address;
  while (shell::receive(monitor_, event, zmq::recv_flags::dontwait)) {
    (void)shell::receive(monitor_, address);
    uint16_t kind = 0;
    int32_t descriptor = 0;
    std::memcpy(&kind, event.data(), sizeof kind);
    std::memcpy(&descriptor, static_cast<const char*>(event.data()) + sizeof kind, sizeof descriptor);
    if (kind == ZMQ_EVENT_ACCEPTED) ended_.erase(descriptor);
    if (kind != ZMQ_EVENT_DISCONNECTED) continue;
    ended_.insert(descriptor);
    for (const auto& [rank, of_rank] : connections_)
      if (of_rank == descriptor) gone_.insert(rank);
  }
}

}  // namespace lockstep::shell

#include "shell/processes/hub.h"

#include <cstring>

#include "protocol/read_json.h"
#include "shell/processes/random_key.h"
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

Hub::Hub(const std::string& endpoint)
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

Hub::~Hub() { zmq_socket_monitor(router_.handle(), nullptr, 0); }

const std::string& Hub::expect(int rank) {
  std::string& identity = identities_[rank];
  ranks_.erase(identity);
  connections_.erase(rank);
  identity = "rank-" + std::to_string(rank) + "-" + random_key();
  ranks_[identity] = rank;
  return identity;
}

void Hub::send(int rank, const protocol::HubMessage& message) { send(RankSet{rank}, message); }

void Hub::send(const RankSet& ranks, const protocol::HubMessage& message, std::vector<zmq::message_t> frames) {
  if (ranks.empty()) return;
  const std::string header = encode(message).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  zmq::message_t shared_header(header.data(), header.size());
  for (int rank : ranks) {
    const auto identity = identities_.find(rank);
    if (identity == identities_.end()) continue;
    try {
      zmq::message_t to(identity->second);
      shell::send(router_, to, zmq::send_flags::sndmore | zmq::send_flags::dontwait);
    } catch (const zmq::error_t& error) {
      if (error.num() == EHOSTUNREACH) continue;
      throw ChannelError(std::string("sending to rank ") + std::to_string(rank) + " failed: " + error.what());
    }
    zmq::message_t copy;
    copy.copy(shared_header);
    shell::send(router_, copy, frames.empty() ? zmq::send_flags::none : zmq::send_flags::sndmore);
    for (size_t i = 0; i < frames.size(); ++i) {
      copy.copy(frames[i]);
      shell::send(router_, copy, i + 1 < frames.size() ? zmq::send_flags::sndmore : zmq::send_flags::none);
    }
  }
}

bool Hub::read_frames(std::vector<zmq::message_t>& frames) {
  zmq::message_t frame;
  if (!shell::receive(router_, frame, zmq::recv_flags::dontwait)) return false;
  frames.push_back(std::move(frame));
  while (frames.back().more()) {
    zmq::message_t next;
    (void)shell::receive(router_, next);
    frames.push_back(std::move(next));
  }
  const auto sender = ranks_.find(frames[0].to_string_view());
  if (sender != ranks_.end() && frames.size() > 1) note_connection(sender->second, frames[1]);
  return true;
}

size_t Hub::arrived() {
  for (std::vector<zmq::message_t> frames; read_frames(frames); frames.clear()) arrived_.push_back(std::move(frames));
  return arrived_.size();
}

std::optional<FromWorker> Hub::receive() {
  std::vector<zmq::message_t> parts;
  if (!arrived_.empty()) {
    parts = std::move(arrived_.front());
    arrived_.pop_front();
  } else if (!read_frames(parts)) {
    return std::nullopt;
  }
  FromWorker result;
  const auto sender = ranks_.find(parts[0].to_string_view());
  if (sender == ranks_.end()) return result;
  const int rank = result.rank = sender->second;
  if (parts.size() < 2) throw BadMessage(rank, "an empty message");
  const auto header = protocol::read_json(parts[1].to_string_view());
  if (header.is_discarded()) throw BadMessage(rank, "a message that is not JSON, or nested too deeply");
  try {
    result.message = protocol::decode_worker_message(header);
  } catch (const ChannelError& error) {
    throw BadMessage(rank, error.what());
  } catch (const nlohmann::json::exception& error) {
    throw BadMessage(rank, std::string("a message with fields of wrong types: ") + error.what());
  }
  for (size_t i = 2; i < parts.size(); ++i) result.frames.push_back(std::move(parts[i]));
  return result;
}

void Hub::note_connection(int rank, const zmq::message_t& frame) {
  if (connections_.contains(rank)) return;
  const int descriptor = zmq_msg_get(const_cast<zmq_msg_t*>(frame.handle()), ZMQ_SRCFD);
  if (descriptor < 0) return;
  take_connection_events();  // events of the connections that had this descriptor before
  connections_[rank] = {descriptor, ended_.contains(descriptor)};
}

void Hub::take_connection_events() {
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
    for (auto& [rank, connection] : connections_)
      if (connection.descriptor == descriptor) connection.ended = true;
  }
}

bool Hub::connection_ended(int rank) const {
  const auto found = connections_.find(rank);
  return found != connections_.end() && found->second.ended;
}

}  // namespace lockstep::shell

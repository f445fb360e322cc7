#include "shell/processes/hub.h"

#include <cstring>

#include "shell/processes/random_key.h"

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
  if (zmq_socket_monitor(router_.handle(), kMonitor, ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CLOSED) != 0)
    throw StartError(std::string("the hub's monitor could not start: ") + zmq_strerror(errno));
  monitor_.connect(kMonitor);
  try {
    router_.bind(endpoint);
  } catch (const zmq::error_t& error) {
    throw StartError("the session's socket " + endpoint + " could not be made: " + error.what());
  }
}

Hub::~Hub() { zmq_socket_monitor(router_.handle(), nullptr, 0); }

const std::string& Hub::expect(int rank) {
  std::string& identity = identities_[rank];
  ranks_.erase(identity);
  sources_.erase(rank);
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
      router_.send(to, zmq::send_flags::sndmore | zmq::send_flags::dontwait);
    } catch (const zmq::error_t& error) {
      if (error.num() == EHOSTUNREACH) continue;
      throw ChannelError(std::string("sending to rank ") + std::to_string(rank) + " failed: " + error.what());
    }
    zmq::message_t copy;
    copy.copy(shared_header);
    router_.send(copy, frames.empty() ? zmq::send_flags::none : zmq::send_flags::sndmore);
    for (size_t i = 0; i < frames.size(); ++i) {
      copy.copy(frames[i]);
      router_.send(copy, i + 1 < frames.size() ? zmq::send_flags::sndmore : zmq::send_flags::none);
    }
  }
}

std::optional<FromWorker> Hub::receive() {
  std::vector<zmq::message_t> parts;
  zmq::message_t part;
  if (!router_.recv(part, zmq::recv_flags::dontwait)) return std::nullopt;
  parts.push_back(std::move(part));
  while (parts.back().more()) {
    zmq::message_t next;
    (void)router_.recv(next);
    parts.push_back(std::move(next));
  }
  FromWorker result;
  const auto sender = ranks_.find(parts[0].to_string_view());
  if (sender == ranks_.end()) return result;
  const int rank = result.rank = sender->second;
  if (parts.size() < 2) throw BadMessage(rank, "an empty message");
  note_source(rank, parts[1]);
  const auto header = nlohmann::json::parse(parts[1].to_string_view(), nullptr, false);
  if (header.is_discarded()) throw BadMessage(rank, "a message that is not JSON");
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

void Hub::note_source(int rank, const zmq::message_t& frame) {
  const int source = zmq_msg_get(const_cast<zmq_msg_t*>(frame.handle()), ZMQ_SRCFD);
  if (source < 0) return;
  ended_.erase(source);
  sources_[rank] = source;
}

bool Hub::connection_ended(int rank) {
  zmq::message_t event, address;
  while (monitor_.recv(event, zmq::recv_flags::dontwait)) {
    (void)monitor_.recv(address);
    uint16_t kind = 0;
    int32_t value = 0;
    std::memcpy(&kind, event.data(), sizeof kind);
    std::memcpy(&value, static_cast<const char*>(event.data()) + sizeof kind, sizeof value);
    if (kind == ZMQ_EVENT_DISCONNECTED) ended_.insert(value);
  }
  const auto found = sources_.find(rank);
  return found != sources_.end() && ended_.contains(found->second);
}

}  // namespace lockstep::shell

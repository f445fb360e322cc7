#include "shell/link/link_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "protocol/blocked_signals.h"
#include "protocol/error.h"
#include "protocol/version.h"
#include "shell/link/link_stream.h"
#include "shell/link/strangers.h"
#include "shell/processes/deadline.h"
#include "shell/processes/random_key.h"
#include "shell/processes/zmq_calls.h"

namespace lockstep::shell {
namespace {

using namespace std::chrono_literals;

constexpr const char* kDoor = "inproc://zeromq.zap.01";  // RFC 27
constexpr const char* kDomain = "lockstep";
constexpr auto kLastBytes = 2s;  // for what has been written to be received, at the end
constexpr auto kLinger = 500ms;
constexpr auto kHandshakeLimit = 10s;
constexpr int kBacklog = 4096;
constexpr int kMostQueued = 64;  // messages of one connection; more stay in the network
constexpr size_t kMostPeers = 1024;
constexpr size_t kMostKeys = 1 << 13;  // of tickets and programs
constexpr auto kForgetAfter = 60s;  // a program's key with which there is no stream; its program asks again
constexpr int kMostAtOnce = 64;  // messages, before others are served

std::string bound_address(const std::string& address) {
  if (address.empty() || address == "*" || address == "0.0.0.0" || address == "::")
    throw UsageError(
        "name one address of this machine, or an interface, on which the session is to listen: it does not "
        "listen on all");
  return address.find(':') == address.npos ? address : "[" + address + "]";
}

/// A property of the connection by which a message has come; empty: none.
std::string property_of(const zmq::message_t& frame, const char* name) {
  const char* value = zmq_msg_gets(const_cast<zmq_msg_t*>(frame.handle()), name);
  return value ? value : "";
}

std::string whole_seconds(std::chrono::milliseconds time) {
  return fmt::format("{} s", std::chrono::duration_cast<std::chrono::seconds>(time).count());
}

}  // namespace

/// Runs on the thread.
class LinkServer::Router {
 public:
  Router(const std::string& address, int port, Listener listener, LinkLimits limits);
  ~Router();

  const std::string& address() const { return address_; }
  int port() const { return port_; }
  const std::string& session() const { return session_; }
  const std::string& server_key() const { return keys_.open; }
  void admit(const std::string& key, const std::string& name);
  void run();
  /// Other threads call these.
  void refuse(const std::string& key, Descriptor end, const std::string& why);
  void stop();

 private:
  struct Peer {
    LinkPeer who;
    std::string route;
    uint64_t epoch = 0;
    int descriptor = -1;  // of its connection; -1: that has ended
    int silent_pings = 0;  // that should have come
    bool is_gone = false;  // its machine has ended the connection
    bool is_silent = false;  // as the listener knows
    std::unique_ptr<LinkStream> stream;
  };
  using Peers = std::map<std::string, Peer>;  // by stream

  void answer_door();
  void read();
  void take(Peer& peer, std::optional<LinkMessage> message);
  void greet(const std::string& route, const zmq::message_t& frame, std::optional<LinkMessage> message);
  void resume(Peer& peer, const std::string& route, int descriptor, const LinkHello& hello, uint64_t received);
  struct Key {
    std::string ticket;  // the name under which that was admitted
    bool is_own = false;  // of one program, not of all that have the ticket
    std::string route;  // by which it has come
    std::string stream;  // the one that was begun with it
    EventLoop::Clock::time_point unused_since;  // without a stream
  };
  Key* key_of(const std::string& key);
  bool is_unused(const Key& key) const { return key.is_own && !peers_.contains(key.stream); }
  void make_peer(const std::string& route, int descriptor, const LinkHello& hello, Key& known, LinkPeer who);
  std::string admit_own(const std::string& of_ticket, const std::string& own, const std::string& route);
  void forget_keys();
  void turn_away(const std::string& route, const std::string& why);
  void lose(Peer& peer, const std::string& why);
  void connection_ended(int descriptor);
  void tick();
  bool is_done();

  const Listener listener_;
  const LinkLimits limits_;
  const LinkKeys keys_ = make_link_keys();
  const std::string session_ = random_key();
  EventLoop loop_;
  CallQueue calls_{loop_};
  zmq::context_t context_{1};
  zmq::socket_t door_, router_;
  std::string address_;
  int port_ = 0;
  std::optional<Strangers> strangers_;
  Peers peers_;
  std::map<std::string, std::string> routes_;  // route → stream
  Deadline next_tick_{loop_}, last_bytes_{loop_};
  bool is_ending_ = false, has_waited_ = false;

  std::mutex mutex_;
  std::map<std::string, Key> admitted_;  // only the thread takes any out
};

LinkServer::Router::Router(const std::string& address, int port, Listener listener, LinkLimits limits)
    : listener_(std::move(listener)),
      limits_(limits),
      door_(context_, zmq::socket_type::rep),
      router_(context_, zmq::socket_type::router) {
  const std::string bound = bound_address(address);
  without_interrupts([&] { door_.bind(kDoor); });
  router_.set(zmq::sockopt::linger, static_cast<int>(std::chrono::milliseconds(kLinger).count()));
  router_.set(zmq::sockopt::sndhwm, 0);  // a stream's window limits them
  router_.set(zmq::sockopt::rcvhwm, kMostQueued);
  router_.set(zmq::sockopt::router_mandatory, 1);
  router_.set(zmq::sockopt::backlog, kBacklog);
  router_.set(zmq::sockopt::maxmsgsize, longest_frame(limits_));
  router_.set(zmq::sockopt::handshake_ivl, static_cast<int>(std::chrono::milliseconds(kHandshakeLimit).count()));
  // A connection over which nothing goes is given up with what it holds: the client makes another one.
  router_.set(zmq::sockopt::tcp_maxrt, static_cast<int>(2 * limits_.silent_after.count()));
  router_.set(zmq::sockopt::ipv6, bound.front() == '[');
  router_.set(zmq::sockopt::curve_server, true);
  router_.set(zmq::sockopt::curve_secretkey, keys_.secret);
  router_.set(zmq::sockopt::zap_domain, kDomain);
  const std::string endpoint = fmt::format("tcp://{}:{}", bound, port == 0 ? "*" : std::to_string(port));
  try {
    without_interrupts([&] { router_.bind(endpoint); });
  } catch (const zmq::error_t& error) {
    throw StartError(fmt::format("can't listen at {}: {}", endpoint, error.what()));
  }
  const std::string last = router_.get(zmq::sockopt::last_endpoint);  // tcp://10.0.0.1:4711, tcp://[::1]:4711
  const size_t begin = last.find("//") + 2, colon = last.rfind(':');
  address_ = last.substr(begin, colon - begin);
  if (address_.front() == '[') address_ = address_.substr(1, address_.size() - 2);
  port_ = std::stoi(last.substr(colon + 1));
  strangers_.emplace(loop_, context_, router_, port_, listener_.refused,
                     [this](int descriptor) { connection_ended(descriptor); });
  loop_.watch(door_, [this] { answer_door(); });
  loop_.watch(router_, [this] { read(); });
}

LinkServer::Router::~Router() {
  peers_.clear();
  strangers_.reset();
}

void LinkServer::Router::admit(const std::string& key, const std::string& name) {
  const std::lock_guard lock(mutex_);
  admitted_[key].ticket = name;
}

/// Returns nothing where it has been forgotten since the door has let it in.
LinkServer::Router::Key* LinkServer::Router::key_of(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = admitted_.find(key);
  return found == admitted_.end() ? nullptr : &found->second;
}

/// Returns why it does not; empty: it does. A client that has not heard of it asks again.
std::string LinkServer::Router::admit_own(const std::string& of_ticket, const std::string& own,
                                          const std::string& route) {
  if (!is_link_key(own)) return "it has made no key of its own";
  const std::lock_guard lock(mutex_);
  if (const auto known = admitted_.find(own); known != admitted_.end())
    return known->second.is_own ? "" : "the key that it calls its own is that of a ticket";
  auto oldest = admitted_.end();
  for (auto each = admitted_.begin(); each != admitted_.end(); ++each) {
    if (each->second.is_own && each->second.route == route) return "it has named another key of its own";
    if (is_unused(each->second) &&
        (oldest == admitted_.end() || each->second.unused_since < oldest->second.unused_since))
      oldest = each;
  }
  // Who makes many keys keeps nobody out.
  if (admitted_.size() >= kMostKeys && oldest != admitted_.end()) admitted_.erase(oldest);
  admitted_[own] = {
      .ticket = of_ticket, .is_own = true, .route = route, .stream = "", .unused_since = EventLoop::Clock::now()};
  return "";
}

void LinkServer::Router::forget_keys() {
  const auto limit = EventLoop::Clock::now() - kForgetAfter;
  const std::lock_guard lock(mutex_);
  std::erase_if(admitted_,
                [&](const auto& each) { return is_unused(each.second) && each.second.unused_since < limit; });
}

void LinkServer::Router::run() {
  tick();
  try {
    loop_.run_until([this] { return is_done(); });
    for (auto& [stream, peer] : peers_)
      if (peer.stream->is_connected()) turn_away(peer.route, "the session has ended");
  } catch (const std::exception& error) {
    for (auto& [stream, peer] : peers_) listener_.lost(peer.who, error.what());
  }
  peers_.clear();
}

void LinkServer::Router::refuse(const std::string& key, Descriptor end, const std::string& why) {
  // Until then the end is open: its closing would end the stream without a word.
  calls_.post([this, key, why, held = std::make_shared<Descriptor>(std::move(end))] {
    for (auto& [stream, peer] : peers_) {
      if (peer.who.key != key) continue;
      turn_away(peer.route, why);
      peer.stream->give_up();
    }
  });
}

void LinkServer::Router::stop() {
  calls_.post([this] {
    is_ending_ = true;
    for (auto& [stream, peer] : peers_) peer.stream->end_input();
    last_bytes_.set_after(kLastBytes, [this] { has_waited_ = true; });
  });
}

/// Asked after each round of the loop: streams that are over are left here.
bool LinkServer::Router::is_done() {
  std::erase_if(peers_, [&](const auto& each) {
    if (!each.second.stream->is_over()) return false;
    routes_.erase(each.second.route);
    if (Key* const key = key_of(each.second.who.key)) key->unused_since = EventLoop::Clock::now();
    return true;
  });
  return is_ending_ && (has_waited_ || std::ranges::all_of(peers_, [](const auto& each) {
                          return !each.second.stream->is_connected() || each.second.stream->has_sent_all();
                        }));
}

/// Lets in whose key has been admitted.
void LinkServer::Router::answer_door() {
  while (true) {
    // version, request, domain, address, identity, mechanism, key
    const auto question = receive_frames(door_);
    if (question.empty()) return;
    std::string key(41, '\0');
    const bool is_curve = question.size() == 7 && question[5].to_string_view() == "CURVE" && question[6].size() == 32;
    if (is_curve) zmq_z85_encode(key.data(), question[6].data<uint8_t>(), question[6].size());
    key.resize(40);
    bool is_admitted = false;
    if (is_curve) {
      const std::lock_guard lock(mutex_);
      is_admitted = admitted_.contains(key);
    }
    if (question.size() > 3) {
      const std::string address = question[3].to_string();
      if (is_admitted)
        strangers_->knows(address);
      else
        strangers_->refuse(address, "it has no key of this session");
    }
    const std::string answer[] = {"1.0",
                                  question.size() > 1 ? question[1].to_string() : "",
                                  is_admitted ? "200" : "400",
                                  is_admitted ? "" : "no key of this session",
                                  is_admitted ? key : "",
                                  ""};
    for (const std::string& each : answer)
      send(door_, zmq::buffer(each), &each == std::end(answer) - 1 ? zmq::send_flags::none : zmq::send_flags::sndmore);
  }
}

void LinkServer::Router::read() {
  for (int i = 0; i < kMostAtOnce; ++i) {
    auto frames = receive_frames(router_);
    if (frames.empty()) return;
    const std::string route = frames[0].to_string();
    zmq::message_t head;
    if (frames.size() > 1) head.copy(frames[1]);
    auto message = link_message(frames, 3);
    if (const auto found = routes_.find(route); found != routes_.end())
      take(peers_.at(found->second), std::move(message));
    else
      greet(route, head, std::move(message));
  }
}

void LinkServer::Router::take(Peer& peer, std::optional<LinkMessage> message) {
  peer.silent_pings = 0;
  if (std::exchange(peer.is_silent, false)) listener_.silent(peer.who, 0ms);
  try {
    if (!message) throw ChannelError("sends what is no message of a link");
    if (message->kind == LinkKind::refusal) return lose(peer, "its relay has ended");
    peer.stream->take(std::move(*message));
  } catch (const ChannelError& error) {
    const std::string why = std::string("its relay ") + error.what();
    turn_away(peer.route, why);
    lose(peer, why);
  }
}

void LinkServer::Router::greet(const std::string& route, const zmq::message_t& frame,
                               std::optional<LinkMessage> message) {
  const std::string key = property_of(frame, "User-Id"), address = property_of(frame, "Peer-Address");
  const auto refuse = [&](const std::string& why) {
    strangers_->refuse(address, why);
    turn_away(route, why);
  };
  if (message && message->kind != LinkKind::hello) return;  // of a connection whose stream has another one, or is over
  const auto hello = message ? body_of<LinkHello>(*message) : std::nullopt;
  if (!hello) return refuse("it sent what is no greeting of a link");
  if (hello->version != kVersion)
    return refuse(fmt::format("its lockstep is {}, and this one is {}", hello->version, kVersion));
  if (hello->session != session_) return refuse("its ticket is of another session");
  const int descriptor = zmq_msg_get(const_cast<zmq_msg_t*>(frame.handle()), ZMQ_SRCFD);
  Key* const known = key_of(key);
  if (!known) return refuse("its key was admitted, and has begun no stream for too long");
  if (!known->is_own) {
    if (const std::string why = admit_own(known->ticket, hello->key, route); !why.empty()) return refuse(why);
    send_link_message(router_, {.kind = LinkKind::welcome, .offset = hello->epoch, .received = 0, .body = {}}, route);
    return;
  }
  if (hello->stream.empty()) return refuse("it names no stream");
  const auto found = peers_.find(hello->stream);
  if (found == peers_.end()) {
    // Its last acknowledgement may have been lost with a connection.
    if (hello->resumes || known->stream == hello->stream) return turn_away(route, "the session has ended this stream");
    if (!known->stream.empty()) return refuse("its key has begun another stream");
    if (peers_.size() >= kMostPeers) return refuse(fmt::format("{} streams are there already", kMostPeers));
    return make_peer(route, descriptor, *hello, *known,
                     {.ticket = known->ticket, .address = address, .about = hello->about, .key = key});
  }
  Peer& peer = found->second;
  if (key != peer.who.key)
    return refuse(fmt::format("it names the stream of another program, that from {}", peer.who.address));
  if (hello->epoch < peer.epoch) return turn_away(route, "there is a later connection");  // this one has been slow
  if (hello->epoch == peer.epoch || !peer.stream->can_resume(message->received))
    return refuse("it asks for a part of its stream that is not there");
  resume(peer, route, descriptor, *hello, message->received);
}

void LinkServer::Router::make_peer(const std::string& route, int descriptor, const LinkHello& hello, Key& known,
                                   LinkPeer who) {
  std::pair<Descriptor, Descriptor> ends;
  try {
    ends = make_socket_pair();
  } catch (const StartError&) {
    return;  // no descriptor is left now; it tries again
  }
  known.stream = hello.stream;
  Peer& peer = peers_[hello.stream];
  peer.who = std::move(who);
  peer.stream = std::make_unique<LinkStream>(loop_, std::move(ends.first), limits_, [this, &peer](LinkMessage message) {
    return send_link_message(router_, std::move(message), peer.route);
  });
  listener_.came(peer.who, std::move(ends.second));
  resume(peer, route, descriptor, hello, 0);
}

void LinkServer::Router::resume(Peer& peer, const std::string& route, int descriptor, const LinkHello& hello,
                                uint64_t received) {
  strangers_->belongs(descriptor);
  routes_.erase(peer.route);
  routes_[route] = hello.stream;
  peer.route = route;
  peer.epoch = hello.epoch;
  peer.descriptor = descriptor;
  peer.is_gone = false;
  peer.silent_pings = 0;
  if (std::exchange(peer.is_silent, false)) listener_.silent(peer.who, 0ms);
  if (send_link_message(
          router_, {.kind = LinkKind::welcome, .offset = hello.epoch, .received = peer.stream->received(), .body = {}},
          route))
    peer.stream->connect(received);
}

void LinkServer::Router::turn_away(const std::string& route, const std::string& why) {
  send_link_message(
      router_, {.kind = LinkKind::refusal, .offset = 0, .received = 0, .body = json_body(LinkRefusal{why})}, route);
}

void LinkServer::Router::lose(Peer& peer, const std::string& why) {
  if (!peer.stream->has_delivered_all()) listener_.lost(peer.who, why);
  peer.stream->give_up();
}

/// The client connects again at once, unless it has been killed. Where this machine has ended the connection, because
/// nothing was acknowledged any more, the network may be out.
void LinkServer::Router::connection_ended(int descriptor) {
  for (auto& [stream, peer] : peers_) {
    if (peer.descriptor != descriptor) continue;
    peer.descriptor = -1;
    peer.stream->disconnect();
    peer.is_gone = peer.silent_pings * limits_.ping_every < limits_.silent_after;
    if (peer.is_gone) peer.silent_pings = 0;
  }
}

/// Time in which this thread has not looked counts as one period, however long it was: words may have come meanwhile.
void LinkServer::Router::tick() {
  for (auto& [stream, peer] : peers_) {
    const auto silence = ++peer.silent_pings * limits_.ping_every;
    if (peer.is_gone && silence >= limits_.gone_after) {
      lose(peer, fmt::format("its connection has ended, and it has not come again for {}", whole_seconds(silence)));
    } else if (silence >= limits_.lost_after) {
      lose(peer, "no word for " + whole_seconds(silence));
    } else if (silence >= limits_.silent_after && !std::exchange(peer.is_silent, true)) {
      listener_.silent(peer.who, silence);
    }
  }
  forget_keys();
  next_tick_.set_after(limits_.ping_every, [this] { tick(); });
}

LinkServer::LinkServer(EventLoop& loop, const std::string& address, int port, Listener listener, LinkLimits limits)
    : calls_(loop) {
  // What the thread calls is made by the loop.
  const auto shared = std::make_shared<const Listener>(std::move(listener));
  Listener posts{
      .came =
          [this, shared](const LinkPeer& peer, Descriptor end) {
            const auto held = std::make_shared<Descriptor>(std::move(end));
            calls_.post([shared, peer, held] { shared->came(peer, std::move(*held)); });
          },
      .silent =
          [this, shared](const LinkPeer& peer, std::chrono::milliseconds silence) {
            calls_.post([shared, peer, silence] { shared->silent(peer, silence); });
          },
      .lost = [this, shared](const LinkPeer& peer,
                             const std::string& why) { calls_.post([shared, peer, why] { shared->lost(peer, why); }); },
      .refused = [this, shared](const std::string& what) { calls_.post([shared, what] { shared->refused(what); }); }};
  router_ = std::make_unique<Router>(address, port, std::move(posts), limits);
  const BlockedSignals signals;  // they are the caller's
  thread_ = std::thread([this] { router_->run(); });
}

LinkServer::~LinkServer() {
  router_->stop();
  thread_.join();
}

int LinkServer::port() const { return router_->port(); }

void LinkServer::refuse(const LinkPeer& peer, Descriptor end, const std::string& why) {
  router_->refuse(peer.key, std::move(end), why);
}

LinkTicket LinkServer::admit(const std::string& name, std::vector<std::string> addresses) {
  const LinkKeys keys = make_link_keys();
  router_->admit(keys.open, name);
  if (addresses.empty()) addresses = {router_->address()};
  return {.session = router_->session(),
          .addresses = std::move(addresses),
          .port = router_->port(),
          .server_key = router_->server_key(),
          .key = keys.secret};
}

}  // namespace lockstep::shell

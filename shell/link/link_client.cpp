#include "shell/link/link_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "protocol/blocked_signals.h"
#include "protocol/error.h"
#include "protocol/version.h"
#include "shell/link/link_stream.h"
#include "shell/processes/call_queue.h"
#include "shell/processes/deadline.h"
#include "shell/processes/random_key.h"
#include "shell/processes/zmq_calls.h"

namespace lockstep::shell {
namespace {

using namespace std::chrono_literals;

constexpr auto kFirstRetry = 100ms, kLastRetry = 5000ms;
constexpr auto kConnectLimit = 3000ms;  // of the network; then ZeroMQ tries again
constexpr auto kLeaveLimit = 5s;  // for the last bytes to arrive
constexpr int kPingsForAnAddress = 2;  // then the next one is tried
constexpr auto kLastWord = 500ms;  // for an acknowledgement that nobody waits for
constexpr int kMostMessages = 64;  // at once

constexpr int kFailures = ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                          ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;

int in_ms(std::chrono::milliseconds time) { return static_cast<int>(time.count()); }

}  // namespace

/// Runs on the thread.
///
///   trying ─(welcome)→ connected ─(the connection ends, or is silent)→ trying
///
/// Each try is a new socket, so that nothing of an earlier one is left in a queue.
class LinkClient::Caller {
 public:
  Caller(LinkTicket ticket, nlohmann::json about, std::function<void(const std::string&)> says, LinkLimits limits,
         Descriptor local);
  ~Caller();
  void run();
  /// Another thread calls it.
  void leave();

 private:
  void connect();
  void disconnect();
  void connect_later();
  void take_events();
  void read();
  void take(LinkMessage message);
  void tick();
  void end(const std::string& why);
  std::string address() const;

  const LinkTicket ticket_;
  const LinkKeys of_ticket_, own_;  // by those of the ticket the session learns the public one of its own
  const nlohmann::json about_;
  const std::function<void(const std::string&)> says_;
  const LinkLimits limits_;
  const std::string stream_name_ = random_key();
  EventLoop loop_;
  CallQueue calls_{loop_};
  zmq::context_t context_{1};
  std::optional<zmq::socket_t> socket_, monitor_;
  LinkStream stream_;
  Deadline next_tick_{loop_}, retry_{loop_}, leave_{loop_};
  uint64_t epoch_ = 0;  // of the last try
  size_t address_ = 0;  // of the ticket's
  std::chrono::milliseconds retry_after_ = kFirstRetry;
  bool is_known_ = false;  // its own key, to the session
  bool was_welcomed_ = false, is_connected_ = false, is_silent_ = false, gives_up_ = false;
  int silent_pings_ = 0, pings_of_try_ = 0;  // without a word, and since this try began
  std::string trouble_;  // of the last try
};

namespace {

std::string public_key_of(const std::string& secret) {
  char text[41] = {};
  if (!zmq_has("curve") || zmq_curve_public(text, secret.c_str()) != 0)
    throw StartError("the ZeroMQ of this lockstep has no CURVE, so it can't connect to a session over a network");
  return text;
}

}  // namespace

LinkClient::Caller::Caller(LinkTicket ticket, nlohmann::json about, std::function<void(const std::string&)> says,
                           LinkLimits limits, Descriptor local)
    : ticket_(std::move(ticket)),
      of_ticket_{.open = public_key_of(ticket_.key), .secret = ticket_.key},
      own_(make_link_keys()),
      about_(std::move(about)),
      says_(std::move(says)),
      limits_(limits),
      stream_(loop_, std::move(local), limits_,
              [this](LinkMessage message) { return send_link_message(*socket_, std::move(message)); }) {}

LinkClient::Caller::~Caller() { disconnect(); }

void LinkClient::Caller::run() {
  try {
    connect();
    tick();
    loop_.run_until([this] { return stream_.is_over() || gives_up_ || (leave_.is_set() && stream_.has_sent_all()); });
    if (is_connected_ && !stream_.is_over())  // the session need not wait for it
      send_link_message(
          *socket_,
          {.kind = LinkKind::refusal, .offset = 0, .received = 0, .body = json_body(LinkRefusal{"has ended"})});
  } catch (const std::exception& error) {
    end(error.what());
  }
  if (socket_) socket_->set(zmq::sockopt::linger, in_ms(kLastWord));
  stream_.give_up();
}

void LinkClient::Caller::leave() {
  calls_.post([this] { leave_.set_after(kLeaveLimit, [this] { gives_up_ = true; }); });
}

std::string LinkClient::Caller::address() const { return ticket_.addresses[address_ % ticket_.addresses.size()]; }

void LinkClient::Caller::connect() {
  disconnect();
  ++epoch_;
  pings_of_try_ = 0;
  const std::string host = address().find(':') == std::string::npos ? address() : "[" + address() + "]";
  socket_.emplace(context_, zmq::socket_type::dealer);
  socket_->set(zmq::sockopt::linger, 0);
  socket_->set(zmq::sockopt::sndhwm, 0);  // the stream's window limits it
  socket_->set(zmq::sockopt::maxmsgsize, longest_frame(limits_));
  socket_->set(zmq::sockopt::reconnect_ivl, in_ms(kFirstRetry));
  socket_->set(zmq::sockopt::reconnect_ivl_max, in_ms(kLastRetry));
  socket_->set(zmq::sockopt::connect_timeout, in_ms(kConnectLimit));
  socket_->set(zmq::sockopt::ipv6, true);
  socket_->set(zmq::sockopt::curve_serverkey, ticket_.server_key);
  const LinkKeys& keys = is_known_ ? own_ : of_ticket_;
  socket_->set(zmq::sockopt::curve_publickey, keys.open);
  socket_->set(zmq::sockopt::curve_secretkey, keys.secret);
  monitor_ = monitor_of(context_, *socket_, fmt::format("link-client-{}", epoch_), kFailures);
  loop_.watch(*socket_, [this] { read(); });
  loop_.watch(*monitor_, [this] { take_events(); });
  without_interrupts([&] { socket_->connect(fmt::format("tcp://{}:{}", host, ticket_.port)); });
  const LinkHello hello{.version = kVersion,
                        .session = ticket_.session,
                        .stream = is_known_ ? stream_name_ : "",
                        .key = is_known_ ? "" : own_.open,
                        .epoch = epoch_,
                        .resumes = was_welcomed_,
                        .about = about_};
  send_link_message(*socket_,
                    {.kind = LinkKind::hello, .offset = 0, .received = stream_.received(), .body = json_body(hello)});
}

void LinkClient::Caller::disconnect() {
  stream_.disconnect();
  is_connected_ = false;
  retry_.cancel();
  if (!socket_) return;
  loop_.forget(*socket_);
  loop_.forget(*monitor_);
  zmq_socket_monitor(socket_->handle(), nullptr, 0);
  monitor_.reset();
  socket_.reset();
}

void LinkClient::Caller::connect_later() {
  disconnect();
  ++address_;
  retry_.set_after(retry_after_, [this] { connect(); });
  retry_after_ = std::min<std::chrono::milliseconds>(2 * retry_after_, kLastRetry);
}

void LinkClient::Caller::take_events() {
  const auto event = next_event(*monitor_);
  if (!event) return;
  trouble_ = is_connected_ ? "the connection was cut"
                           : "what answers there ends connections, as a session does whose ticket is another one";
  if (event->kind == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH && !was_welcomed_) {
    // A session forgets a key of its own that it has not heard of for long.
    if (!std::exchange(is_known_, false)) return end("the session does not admit the key of this ticket");
  }
  connect_later();
}

void LinkClient::Caller::read() {
  for (int i = 0; socket_ && i < kMostMessages; ++i) {
    auto frames = receive_frames(*socket_);
    if (frames.empty()) return;
    silent_pings_ = 0;
    if (std::exchange(is_silent_, false)) says_(fmt::format("the session at {} answers again", address()));
    auto message = link_message(frames, 2);
    try {
      if (!message) throw ChannelError("sends what is no message of a link");
      take(std::move(*message));
    } catch (const ChannelError& error) {
      end(std::string("the session ") + error.what());
    }
  }
}

void LinkClient::Caller::take(LinkMessage message) {
  if (message.kind == LinkKind::refusal) {
    const auto refusal = body_of<LinkRefusal>(message);
    end(refusal ? refusal->why : "the session has refused it");
  } else if (message.kind == LinkKind::welcome && !is_known_) {
    is_known_ = true;
    connect();
  } else if (message.kind == LinkKind::welcome) {
    if (is_connected_ || !stream_.can_resume(message.received)) throw ChannelError("goes on elsewhere");
    is_connected_ = was_welcomed_ = true;
    retry_after_ = kFirstRetry;
    stream_.connect(message.received);
  } else if (is_connected_) {
    stream_.take(std::move(message));
  }
}

/// Time in which this thread has not looked counts as one period, however long it was: words may have come meanwhile.
void LinkClient::Caller::tick() {
  const auto silence = silent_pings_ * limits_.ping_every;
  const int for_this_try = is_connected_ || ticket_.addresses.size() == 1
                               ? static_cast<int>(limits_.silent_after / limits_.ping_every)
                               : kPingsForAnAddress;
  if (silence >= limits_.lost_after) {
    end(fmt::format("no word for {} s{}", std::chrono::duration_cast<std::chrono::seconds>(silence).count(),
                    trouble_.empty() ? "" : ": " + trouble_));
    return;
  }
  if (silence >= limits_.silent_after && !std::exchange(is_silent_, true))
    says_(fmt::format("no word from the session at {} for {} s", address(),
                      std::chrono::duration_cast<std::chrono::seconds>(silence).count()));
  if (socket_ && std::min(pings_of_try_, silent_pings_) >= for_this_try) {
    ++address_;
    connect();
  }
  ++silent_pings_;
  ++pings_of_try_;
  stream_.ping();
  next_tick_.set_after(limits_.ping_every, [this] { tick(); });
}

void LinkClient::Caller::end(const std::string& why) {
  if (!stream_.has_delivered_all()) says_(fmt::format("the link to the session at {} has ended: {}", address(), why));
  gives_up_ = true;
  disconnect();
  stream_.give_up();
}

LinkClient::LinkClient(LinkTicket ticket, nlohmann::json about, std::function<void(const std::string&)> says,
                       LinkLimits limits) {
  auto [local, remote] = make_socket_pair();
  descriptor_ = std::move(remote);
  caller_ = std::make_unique<Caller>(std::move(ticket), std::move(about), std::move(says), limits, std::move(local));
  const BlockedSignals signals;  // they are the caller's
  thread_ = std::thread([this] { caller_->run(); });
}

LinkClient::~LinkClient() {
  descriptor_.reset();
  caller_->leave();
  thread_.join();
}

}  // namespace lockstep::shell

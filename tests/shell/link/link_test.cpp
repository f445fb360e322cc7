// Streams over a network: what arrives when connections are cut or held, and who is kept out.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <deque>
#include <filesystem>
#include <fstream>
#include <list>
#include <random>
#include <thread>

#include "protocol/error.h"
#include "protocol/files.h"
#include "protocol/version.h"
#include "shell/link/link_client.h"
#include "shell/link/link_server.h"
#include "shell/processes/random_key.h"
#include "tests/shell/link/proxy.h"

namespace lockstep::shell {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using lockstep::testing::connect_from;
using lockstep::testing::Proxy;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr size_t kMuch = 50 << 20;

/// The same bytes for the same seed, as many as are asked for.
class Bytes {
 public:
  explicit Bytes(uint64_t seed) : random_(seed) {}
  std::string next(size_t size) {
    while (ready_.size() < size) {
      const uint64_t number = random_();
      ready_.append(reinterpret_cast<const char*>(&number), sizeof number);
    }
    std::string result = ready_.substr(0, size);
    ready_.erase(0, size);
    return result;
  }

 private:
  std::mt19937_64 random_;
  std::string ready_;
};

/// Writes bytes of this seed in pieces of all sizes; then no more comes.
void write_bytes(int fd, uint64_t seed, size_t size) {
  Bytes bytes(seed);
  std::mt19937_64 sizes(seed);
  while (size > 0) {
    const size_t piece = std::min<size_t>(size, 1 + (sizes() % (1 << (1 + sizes() % 19))));
    if (!send_all(fd, bytes.next(piece))) return;
    size -= piece;
  }
  ::shutdown(fd, SHUT_WR);
}

/// How many bytes come until the end; -1 where one is another than that of the seed.
int64_t count_equal(int fd, uint64_t seed) {
  Bytes bytes(seed);
  int64_t count = 0;
  std::string text;
  while (read_some(fd, text) == Reading::bytes) {
    if (text != bytes.next(text.size())) return -1;
    count += static_cast<int64_t>(text.size());
    text.clear();
  }
  return count;
}

/// Is changed on one thread and waited for on another.
class Said {
 public:
  void add(const std::string& text) {
    const std::lock_guard lock(mutex_);
    texts_.push_back(text);
  }
  std::vector<std::string> all() const {
    const std::lock_guard lock(mutex_);
    return texts_;
  }
  bool has(const std::string& part) const {
    return std::ranges::any_of(all(), [&](const std::string& each) { return each.find(part) != each.npos; });
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> texts_;
};

/// Speaks to the server as a client that knows the protocol, for what LinkClient never does.
class RawClient {
 public:
  RawClient(zmq::context_t& context, const LinkTicket& ticket)
      : RawClient(context, ticket, own_keys(context, ticket)) {}
  RawClient(zmq::context_t& context, const LinkTicket& ticket, const LinkKeys& keys)
      : socket_(context, zmq::socket_type::dealer) {
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::curve_serverkey, ticket.server_key);
    socket_.set(zmq::sockopt::curve_publickey, keys.open);
    socket_.set(zmq::sockopt::curve_secretkey, keys.secret);
    socket_.set(zmq::sockopt::rcvtimeo, 60000);
    socket_.connect("tcp://127.0.0.1:" + std::to_string(ticket.port));
  }
  static LinkKeys keys_of(const LinkTicket& ticket) {
    char key[41];
    zmq_curve_public(key, ticket.key.c_str());
    return {.open = key, .secret = ticket.key};
  }
  /// A pair that the server has learnt of by the ticket's.
  static LinkKeys own_keys(zmq::context_t& context, const LinkTicket& ticket) {
    LinkKeys own = make_link_keys();
    RawClient by_ticket(context, ticket, keys_of(ticket));
    by_ticket.hello(ticket, "", 1, false, own.open);
    if (by_ticket.receive().kind != LinkKind::welcome) throw ChannelError("its key is not admitted");
    return own;
  }
  void send(LinkKind kind, uint64_t offset, uint64_t received, zmq::message_t body = {}) {
    send_link_message(socket_, {.kind = kind, .offset = offset, .received = received, .body = std::move(body)});
  }
  void hello(const LinkTicket& ticket, const std::string& stream, uint64_t epoch = 1, bool resumes = false,
             const std::string& key = "") {
    send(LinkKind::hello, 0, 0,
         json_body(LinkHello{.version = kVersion,
                             .session = ticket.session,
                             .stream = stream,
                             .key = key,
                             .epoch = epoch,
                             .resumes = resumes,
                             .about = "raw"}));
  }
  /// The next message. The server works on a thread of its own.
  LinkMessage receive() {
    std::vector<zmq::message_t> frames;
    do {
      zmq::message_t frame;
      if (!socket_.recv(frame)) throw ChannelError("nothing has come for a minute");
      frames.push_back(std::move(frame));
    } while (frames.back().more());
    return link_message(frames, 2).value();
  }
  std::string refusal() {
    LinkMessage message = receive();
    while (message.kind != LinkKind::refusal) message = receive();
    return body_of<LinkRefusal>(message).value().why;
  }
  zmq::socket_t& socket() { return socket_; }

 private:
  zmq::socket_t socket_;
};

class LinkTest : public ::testing::Test {
 protected:
  struct Came {
    LinkPeer peer;
    Descriptor end;
  };

  void listen(LinkLimits limits = {}) {
    limits_ = limits;
    server_ = std::make_unique<LinkServer>(
        loop_, "127.0.0.1", 0,
        LinkServer::Listener{
            .came = [this](const LinkPeer& peer, Descriptor end) { came_.push_back({peer, std::move(end)}); },
            .silent =
                [this](const LinkPeer&, std::chrono::milliseconds silence) {
                  silences_.push_back(silence > 0ms ? "silent" : "answers");
                },
            .lost = [this](const LinkPeer& peer, const std::string& why) { lost_.push_back(peer.ticket + ": " + why); },
            .refused = [this](const std::string& what) { refused_.push_back(what); }},
        limits);
    ticket_ = server_->admit("node1");
  }
  std::unique_ptr<LinkClient> client(const LinkTicket& ticket) {
    return std::make_unique<LinkClient>(
        ticket, nlohmann::json{{"host", "here"}}, [this](const std::string& text) { said_.add(text); }, limits_);
  }
  LinkTicket through(const Proxy& proxy) const {
    LinkTicket ticket = ticket_;
    ticket.port = proxy.port();
    return ticket;
  }
  /// Serves until it is so. What another thread does is looked at again and again.
  void wait_for(const std::function<bool()>& so) {
    const auto limit = EventLoop::Clock::now() + 120s;
    while (!loop_.run_until(so, EventLoop::Clock::now() + 5ms))
      if (EventLoop::Clock::now() > limit) throw std::runtime_error("it has not come about in two minutes");
  }
  Descriptor next_end(size_t count = 1) {
    wait_for([&] { return came_.size() >= count; });
    return std::move(came_[count - 1].end);
  }

  /// Both directions at once, each with its own bytes; both have arrived.
  void exchange(int client, int server, size_t size) {
    std::thread writes_there([&] { write_bytes(client, 1, size); });
    std::thread writes_here([&] { write_bytes(server, 2, size); });
    int64_t here = 0;
    std::thread reads_here([&] { here = count_equal(server, 1); });
    EXPECT_EQ(count_equal(client, 2), static_cast<int64_t>(size));
    reads_here.join();
    EXPECT_EQ(here, static_cast<int64_t>(size));
    writes_there.join();
    writes_here.join();
  }
  void say_something(int from, int to, const std::string& text) {
    ASSERT_TRUE(send_all(from, text));
    std::string found(text.size(), '\0');
    ASSERT_EQ(read_all(to, found.data(), found.size()), static_cast<ssize_t>(text.size()));
    EXPECT_EQ(found, text);
  }

  EventLoop loop_;
  LinkLimits limits_;
  std::vector<Came> came_;
  std::vector<std::string> lost_, refused_, silences_;
  Said said_;
  std::unique_ptr<LinkServer> server_;
  LinkTicket ticket_;
  zmq::context_t context_;
};

TEST_F(LinkTest, CarriesBytesBothWays) {
  listen();
  auto one = client(ticket_);
  const Descriptor there = one->take_descriptor(), here = next_end();
  EXPECT_EQ(came_[0].peer.about, (nlohmann::json{{"host", "here"}}));
  EXPECT_EQ(came_[0].peer.ticket, "node1");
  EXPECT_EQ(came_[0].peer.address, "127.0.0.1");
  exchange(there.get(), here.get(), kMuch);
  one.reset();
  server_.reset();
  EXPECT_THAT(said_.all(), IsEmpty());
}

TEST_F(LinkTest, LosesNothingOverConnectionsThatAreCut) {
  listen();
  Proxy proxy(server_->port());
  proxy.cut_every(5 << 20);
  const auto one = client(through(proxy));
  const Descriptor there = one->take_descriptor(), here = next_end();
  exchange(there.get(), here.get(), kMuch);
  EXPECT_GT(proxy.connections(), 10);
  EXPECT_THAT(said_.all(), IsEmpty());
  EXPECT_THAT(lost_, IsEmpty());
}

TEST_F(LinkTest, GoesOnAfterASilence) {
  listen({.ping_every = 20ms, .silent_after = 200ms, .lost_after = 1h});
  Proxy proxy(server_->port());
  const auto one = client(through(proxy));
  const Descriptor there = one->take_descriptor(), here = next_end();
  say_something(there.get(), here.get(), "before");
  proxy.hold(true);
  ASSERT_TRUE(send_all(there.get(), "from there"));
  ASSERT_TRUE(send_all(here.get(), "from here."));
  wait_for([&] { return said_.has("no word from the session") && !silences_.empty(); });
  proxy.hold(false);
  std::string text(10, '\0');
  EXPECT_EQ(read_all(here.get(), text.data(), text.size()), 10);
  EXPECT_EQ(text, "from there");
  EXPECT_EQ(read_all(there.get(), text.data(), text.size()), 10);
  EXPECT_EQ(text, "from here.");
  wait_for([&] { return said_.has("answers again") && silences_.size() > 1; });
  EXPECT_EQ(silences_[0], "silent");
  EXPECT_EQ(silences_[1], "answers");
  say_something(here.get(), there.get(), "after");
  EXPECT_THAT(lost_, IsEmpty());
}

TEST_F(LinkTest, EndsAfterALongSilence) {
  listen({.ping_every = 20ms, .silent_after = 100ms, .lost_after = 1s});
  Proxy proxy(server_->port());
  const auto one = client(through(proxy));
  const Descriptor there = one->take_descriptor(), here = next_end();
  say_something(there.get(), here.get(), "before");
  proxy.hold(true);
  std::string rest;
  EXPECT_NE(read_some(here.get(), rest), Reading::bytes);
  EXPECT_NE(read_some(there.get(), rest), Reading::bytes);
  wait_for([&] { return !lost_.empty() && said_.has("has ended"); });
  EXPECT_THAT(lost_, ElementsAre("node1: no word for 1 s"));
  EXPECT_TRUE(said_.has("no word for 1 s"));
  // What comes back finds that its stream is over, and others can come.
  proxy.hold(false);
  const auto other = client(ticket_);
  const Descriptor there2 = other->take_descriptor(), here2 = next_end(2);
  say_something(there2.get(), here2.get(), "others go on");
}

TEST_F(LinkTest, AClientThatWasKilledIsMissedBeforeOneThatIsSilent) {
  listen({.ping_every = 20ms, .silent_after = 500ms, .lost_after = 1h, .gone_after = 100ms});
  auto killed = std::make_unique<RawClient>(context_, ticket_);
  killed->hello(ticket_, "stream");
  ASSERT_EQ(killed->receive().kind, LinkKind::welcome);
  const Descriptor here = next_end();
  killed.reset();
  EXPECT_EQ(read_to_end(here.get()), "");
  wait_for([&] { return !lost_.empty(); });
  EXPECT_THAT(lost_, ElementsAre(HasSubstr("node1: its connection has ended, and it has not come again for ")));
}

TEST_F(LinkTest, TriesTheNextAddress) {
  listen({.ping_every = 20ms, .silent_after = 1h, .lost_after = 1h});
  ticket_.addresses = {"127.0.0.99", "127.0.0.1"};
  const auto one = client(ticket_);
  const Descriptor there = one->take_descriptor(), here = next_end();
  say_something(there.get(), here.get(), "found");
}

TEST_F(LinkTest, DeliversTheLastBytesOfASessionThatEnds) {
  listen();
  const auto one = client(ticket_);
  const Descriptor there = one->take_descriptor();
  {
    const Descriptor here = next_end();
    ASSERT_TRUE(send_all(here.get(), "the last words"));
  }
  server_.reset();
  EXPECT_EQ(read_to_end(there.get()), "the last words");
}

TEST_F(LinkTest, DeliversTheLastBytesOfAProgramThatEnds) {
  listen();
  auto one = client(ticket_);
  ASSERT_TRUE(send_all(Descriptor(one->take_descriptor()).get(), "the last words"));
  one.reset();
  const Descriptor here = next_end();
  EXPECT_EQ(read_to_end(here.get()), "the last words");
  wait_for([&] { return ::send(here.get(), "more", 4, MSG_NOSIGNAL) < 0; });  // the stream is over
  EXPECT_THAT(lost_, IsEmpty());
}

TEST_F(LinkTest, AWriterWaitsForWhoDoesNotRead) {
  listen();
  RawClient raw(context_, ticket_);
  raw.hello(ticket_, "stream");
  ASSERT_EQ(raw.receive().kind, LinkKind::welcome);
  const Descriptor here = next_end();
  std::thread writes([&] { write_bytes(here.get(), 2, kMuch); });
  // Nothing is acknowledged. Whatever comes before the answers to these pings is all that comes.
  uint64_t received = 0;
  while (received < limits_.window) received += raw.receive().body.size();
  for (int i = 0; i < 20; ++i) {
    raw.send(LinkKind::ping, 0, 0);
    LinkMessage message;
    while ((message = raw.receive()).kind != LinkKind::pong) received += message.body.size();
  }
  EXPECT_EQ(received, limits_.window);
  raw.send(LinkKind::ack, 0, received + 1);  // it lies
  EXPECT_THAT(raw.refusal(), HasSubstr("acknowledges what was never sent"));
  writes.join();
}

TEST_F(LinkTest, EndsTheStreamOfWhoBreaksTheRules) {
  listen();
  const auto good = client(ticket_);
  const Descriptor there = good->take_descriptor(), here = next_end();
  const auto refused_for = [&](const std::function<void(RawClient&)>& acts) {
    RawClient raw(context_, ticket_);
    raw.hello(ticket_, random_key());
    EXPECT_EQ(raw.receive().kind, LinkKind::welcome);
    acts(raw);
    return raw.refusal();
  };
  EXPECT_THAT(refused_for([&](RawClient& raw) { raw.send(LinkKind::data, 1, 0, zmq::message_t(1)); }),
              HasSubstr("leaves out bytes"));
  EXPECT_THAT(refused_for([&](RawClient& raw) { raw.send(LinkKind::ack, 0, 1); }),
              HasSubstr("acknowledges what was never sent"));
  EXPECT_THAT(refused_for([&](RawClient& raw) { raw.hello(ticket_, "other"); }), HasSubstr("begin of a connection"));
  EXPECT_THAT(refused_for([&](RawClient& raw) { raw.socket().send(zmq::str_buffer("cut"), zmq::send_flags::none); }),
              HasSubstr("no message of a link"));
  EXPECT_THAT(refused_for([&](RawClient& raw) {
                raw.socket().send(zmq::str_buffer("\xff_a_head_of_17_byt"), zmq::send_flags::sndmore);
                raw.socket().send(zmq::str_buffer(""), zmq::send_flags::none);
              }),
              HasSubstr("no message of a link"));
  // The memory for what nobody reads has a limit.
  EXPECT_THAT(refused_for([&](RawClient& raw) {
                uint64_t sent = 0;
                for (; sent <= 3 * limits_.window; sent += limits_.piece) {
                  zmq::message_t bytes(limits_.piece);
                  std::memset(bytes.data(), 0, bytes.size());
                  raw.send(LinkKind::data, sent, 0, std::move(bytes));
                }
              }),
              HasSubstr("sends more than it may"));
  say_something(there.get(), here.get(), "the others go on");
  wait_for([&] { return lost_.size() == 6; });
}

TEST_F(LinkTest, TakesDataThatComesTwiceOnce) {
  listen();
  RawClient raw(context_, ticket_);
  raw.hello(ticket_, "stream");
  for (const auto& [offset, text] : std::vector<std::pair<uint64_t, std::string>>{
           {0, "abc"}, {0, "abc"}, {1, "bcd"}, {2, "c"}, {4, "e"}, {0, "abcdef"}})
    raw.send(LinkKind::data, offset, 0, zmq::message_t(text));
  raw.send(LinkKind::end, 6, 0);
  raw.send(LinkKind::end, 6, 0);
  EXPECT_EQ(read_to_end(next_end().get()), "abcdef");
}

TEST_F(LinkTest, KeepsOutASecondClientOfAStream) {
  listen();
  const LinkTicket other_ticket = server_->admit("node2");
  const LinkKeys own = RawClient::own_keys(context_, ticket_);
  RawClient first(context_, ticket_, own), second(context_, ticket_, own), other(context_, other_ticket),
      late(context_, ticket_, own);
  first.hello(ticket_, "stream", 2);
  ASSERT_EQ(first.receive().kind, LinkKind::welcome);
  const Descriptor here = next_end();
  second.hello(ticket_, "stream", 2);
  EXPECT_THAT(second.refusal(), HasSubstr("a part of its stream that is not there"));
  other.hello(other_ticket, "stream", 3);
  EXPECT_THAT(other.refusal(), HasSubstr("stream of another program"));
  // With the ticket itself, too.
  RawClient holder(context_, ticket_);
  holder.hello(ticket_, "stream", 4, true);
  EXPECT_EQ(holder.refusal(), "it names the stream of another program, that from 127.0.0.1");
  for (const std::string& key : {std::string(), std::string("short"), RawClient::keys_of(other_ticket).open}) {
    RawClient by_ticket(context_, ticket_, RawClient::keys_of(ticket_));
    by_ticket.hello(ticket_, "stream", 5, true, key);
    EXPECT_THAT(by_ticket.refusal(), key.size() < 40 ? HasSubstr("no key of its own") : HasSubstr("that of a ticket"));
  }
  RawClient again(context_, ticket_, own);
  again.hello(ticket_, "its second stream");
  EXPECT_EQ(again.refusal(), "its key has begun another stream");
  late.hello(ticket_, "stream", 1);
  EXPECT_THAT(late.refusal(), HasSubstr("later connection"));
  RawClient gone(context_, ticket_), stranger(context_, ticket_);
  gone.hello(ticket_, "one that is over", 7, true);
  EXPECT_THAT(gone.refusal(), HasSubstr("has ended this stream"));
  LinkTicket of_another = ticket_;
  of_another.session = random_key();
  stranger.hello(of_another, "new");
  EXPECT_THAT(stranger.refusal(), HasSubstr("another session"));
  first.send(LinkKind::data, 0, 0, zmq::message_t(std::string("still here")));
  std::string text(10, '\0');
  EXPECT_EQ(read_all(here.get(), text.data(), text.size()), 10);
  EXPECT_EQ(text, "still here");
  EXPECT_EQ(came_.size(), 1);
}

TEST_F(LinkTest, AKeyBeginsOneStream) {
  listen();
  const LinkKeys own = RawClient::own_keys(context_, ticket_);
  RawClient first(context_, ticket_, own);
  first.hello(ticket_, "stream");
  ASSERT_EQ(first.receive().kind, LinkKind::welcome);
  Descriptor end = next_end();
  server_->refuse(came_[0].peer, std::move(end), "its place is taken");
  EXPECT_EQ(first.refusal(), "its place is taken");
  for (const std::string stream : {"stream", "another"}) {
    RawClient again(context_, ticket_, own);
    again.hello(ticket_, stream, 2);
    EXPECT_EQ(again.refusal(),
              stream == "stream" ? "the session has ended this stream" : "its key has begun another stream");
  }
  EXPECT_EQ(came_.size(), 1);
}

TEST_F(LinkTest, AConnectionNamesOneKey) {
  listen();
  RawClient by_ticket(context_, ticket_, RawClient::keys_of(ticket_));
  const LinkKeys own = make_link_keys();
  for (int i = 0; i < 2; ++i) {  // the same one again
    by_ticket.hello(ticket_, "", 1, false, own.open);
    ASSERT_EQ(by_ticket.receive().kind, LinkKind::welcome);
  }
  by_ticket.hello(ticket_, "", 1, false, make_link_keys().open);
  EXPECT_EQ(by_ticket.refusal(), "it has named another key of its own");
}

/// A ticket's holder who keeps connections with keys that begin no stream has as many as a stranger.
TEST_F(LinkTest, ConnectionsWithoutAStreamAreLimited) {
  listen();
  std::list<RawClient> waiting;
  for (int i = 0; i < 64; ++i) {
    const LinkKeys own = make_link_keys();
    RawClient& each = waiting.emplace_back(context_, ticket_, RawClient::keys_of(ticket_));
    each.hello(ticket_, "", 1, false, own.open);
    ASSERT_EQ(each.receive().kind, LinkKind::welcome);
  }
  std::string greeting;
  EXPECT_NE(read_some(connect_from("127.0.0.1", server_->port()).get(), greeting), Reading::bytes);
  waiting.clear();
  const auto other = client(ticket_);
  const Descriptor there = other->take_descriptor(), here = next_end();
  say_something(there.get(), here.get(), "it has come in");
}

TEST_F(LinkTest, EachProgramHasAKeyOfItsOwn) {
  listen();
  const auto one = client(ticket_), two = client(ticket_);
  wait_for([&] { return came_.size() == 2; });
  const std::string of_ticket = RawClient::keys_of(ticket_).open;
  EXPECT_NE(came_[0].peer.key, came_[1].peer.key);
  for (const Came& each : came_) EXPECT_NE(each.peer.key, of_ticket);
}

TEST_F(LinkTest, TellsWhoIsRefusedWhy) {
  listen();
  const auto good = client(ticket_);
  const Descriptor there = good->take_descriptor(), here = next_end();
  const auto other = client(ticket_);
  wait_for([&] { return came_.size() == 2; });
  server_->refuse(came_[1].peer, std::move(came_[1].end), "its place is taken");
  EXPECT_EQ(read_to_end(other->take_descriptor().get()), "");
  wait_for([&] { return said_.has("has ended: its place is taken"); });
  say_something(there.get(), here.get(), "the other one goes on");
  EXPECT_THAT(lost_, IsEmpty());
}

TEST_F(LinkTest, KeepsOutWhoHasNoKey) {
  listen({.ping_every = 20ms, .silent_after = 500ms, .lost_after = 1s});
  const auto good = client(ticket_);
  const Descriptor there = good->take_descriptor(), here = next_end();
  const auto told_of = [&](const std::string& address) {
    wait_for([&] {
      return std::ranges::any_of(
          refused_, [&](const std::string& each) { return each.find("from " + address + " ") != each.npos; });
    });
  };
  // Bytes that are no ZeroMQ's, a greeting of ZeroMQ that breaks off, and one of its first version.
  for (const auto& [address, bytes] : std::vector<std::pair<std::string, std::string>>{
           {"127.0.0.2", "GET / HTTP/1.1\r\n\r\n" + std::string(100, 'x')},
           {"127.0.0.3", std::string("\xff\0\0\0\0\0\0\0\1\x7f\3\0CUR", 15)},
           {"127.0.0.4", std::string("\1\0\5\0hello", 9)}}) {
    for (int i = 0; i < 3; ++i) {
      Descriptor socket = connect_from(address, server_->port());
      send_all(socket.get(), bytes);
    }
    told_of(address);
  }
  // ZeroMQ without CURVE.
  zmq::socket_t plain(context_, zmq::socket_type::dealer);
  plain.set(zmq::sockopt::linger, 0);
  plain.connect("tcp://127.0.0.5:0;127.0.0.1:" + std::to_string(server_->port()));
  plain.send(zmq::str_buffer("hello"), zmq::send_flags::none);
  told_of("127.0.0.5");
  EXPECT_EQ(refused_.size(), 4) << "each address is told of once: " << ::testing::PrintToString(refused_);
  say_something(there.get(), here.get(), "the others go on");
  EXPECT_EQ(came_.size(), 1);
}

TEST_F(LinkTest, KeepsOutAKeyThatIsNotAdmitted) {
  listen();
  LinkTicket forged = ticket_;
  forged.key = make_link_keys().secret;
  for (int i = 0; i < 2; ++i) {
    const auto one = client(forged);
    EXPECT_EQ(read_to_end(one->take_descriptor().get()), "");
  }
  EXPECT_TRUE(said_.has("the session does not admit the key of this ticket"));
  wait_for([&] { return !refused_.empty(); });
  const auto good = client(ticket_);
  const Descriptor there = good->take_descriptor(), here = next_end();
  say_something(there.get(), here.get(), "the others go on");
  EXPECT_THAT(refused_, ElementsAre("a connection from 127.0.0.1 was refused: it has no key of this session"));
}

TEST_F(LinkTest, ATicketOfAnEarlierSessionIsOfNoUse) {
  listen({.ping_every = 20ms, .silent_after = 500ms, .lost_after = 2s});
  LinkTicket old = ticket_;
  old.server_key = make_link_keys().open;
  const auto one = client(old);
  EXPECT_EQ(read_to_end(one->take_descriptor().get()), "");
  EXPECT_TRUE(said_.has("whose ticket is another one")) << ::testing::PrintToString(said_.all());
  wait_for([&] { return !refused_.empty(); });
  EXPECT_THAT(came_, IsEmpty());
}

TEST_F(LinkTest, WhatWasRecordedIsOfNoUse) {
  listen();
  Proxy proxy(server_->port());
  const auto one = client(through(proxy));
  const Descriptor there = one->take_descriptor(), here = next_end();
  say_something(there.get(), here.get(), "before");
  const std::string recorded = proxy.sent_by_clients();
  ASSERT_GT(recorded.size(), 500);
  EXPECT_THAT(recorded, Not(HasSubstr("before")));
  for (size_t size : {recorded.size(), recorded.size() - 20, size_t{300}}) {
    Descriptor replay = connect_from("127.0.0.7", server_->port());
    send_all(replay.get(), recorded.substr(0, size));
    ::shutdown(replay.get(), SHUT_WR);
    read_to_end(replay.get());  // it is closed
  }
  wait_for([&] { return !refused_.empty(); });
  EXPECT_THAT(refused_, ElementsAre(HasSubstr("from 127.0.0.7 was refused: it ended before it had shown a key")));
  say_something(here.get(), there.get(), "after");
  EXPECT_EQ(came_.size(), 1);
}

TEST_F(LinkTest, ManyStrangersDoNotKeepOthersOut) {
  listen();
  std::vector<Descriptor> strangers;
  for (int i = 0; i < 200; ++i) strangers.push_back(connect_from("127.0.0.8", server_->port()));
  const auto one = client(ticket_);
  const Descriptor there = one->take_descriptor(), here = next_end();
  say_something(there.get(), here.get(), "let in");
  size_t open = 0;
  for (const Descriptor& each : strangers) {
    std::string greeting;
    open += read_some(each.get(), greeting) == Reading::bytes;  // the first bytes of ZeroMQ's
  }
  EXPECT_EQ(open, 64);
}

TEST_F(LinkTest, ListensOnOneAddress) {
  for (const char* all : {"*", "0.0.0.0", "::", ""}) EXPECT_THROW(LinkServer(loop_, all, 0, {}), UsageError) << all;
  EXPECT_THROW(LinkServer(loop_, "192.0.2.1", 0, {}), StartError);
  listen();
  EXPECT_THROW(LinkServer(loop_, "127.0.0.1", server_->port(), {}), StartError);
  const LinkServer by_interface(loop_, "lo", 0, {});
  EXPECT_NE(by_interface.port(), 0);
}

class TicketTest : public ::testing::Test {
 protected:
  ~TicketTest() override { fs::remove_all(folder_); }
  std::string problem(const std::string& path) {
    try {
      read_ticket(path);
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), Not(HasSubstr(ticket_.key)));
      return error.what();
    }
    return "";
  }
  const std::string folder_ = [] {
    std::string path = "/tmp/lockstep-ticket-XXXXXX";
    return std::string(::mkdtemp(path.data()));
  }();
  const std::string path_ = folder_ + "/ticket";
  const LinkTicket ticket_{.session = random_key(),
                           .addresses = {"10.0.0.1"},
                           .port = 4711,
                           .server_key = make_link_keys().open,
                           .key = make_link_keys().secret};
};

TEST_F(TicketTest, IsReadAsItWasWritten) {
  write_ticket(path_, ticket_);
  struct stat status = {};
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600);
  EXPECT_EQ(nlohmann::json(read_ticket(path_)), nlohmann::json(ticket_));
}

TEST_F(TicketTest, ComesThroughTheStandardInput) {
  const Descriptor input(::dup(STDIN_FILENO));
  const auto given = [&](const std::string& text) {
    Pipe pipe = make_pipe();
    EXPECT_TRUE(write_all(pipe.write.get(), text));
    ::dup2(pipe.read.get(), STDIN_FILENO);
  };
  given(nlohmann::json(ticket_).dump());
  EXPECT_EQ(nlohmann::json(read_ticket("-")), nlohmann::json(ticket_));
  given("");
  EXPECT_THAT(problem("-"), HasSubstr("it is no ticket of Lockstep"));
  ::dup2(input.get(), STDIN_FILENO);
}

TEST_F(TicketTest, IsOfItsUserOnly) {
  write_ticket(path_, ticket_);
  ::chmod(path_.c_str(), 0640);
  EXPECT_THAT(problem(path_), HasSubstr("other users can read it"));
  ::chmod(path_.c_str(), 0600);
  fs::create_symlink(path_, folder_ + "/link");
  EXPECT_THAT(problem(folder_ + "/link"), HasSubstr("it is a link"));
  EXPECT_THAT(problem(folder_), HasSubstr("it is no file"));
  EXPECT_THAT(problem(folder_ + "/none"), HasSubstr("No such file"));
  ASSERT_EQ(::mkfifo((folder_ + "/fifo").c_str(), 0600), 0);
  EXPECT_THAT(problem(folder_ + "/fifo"), HasSubstr("it is no file"));
  ::chmod(folder_.c_str(), 0777);
  EXPECT_THAT(problem(path_), HasSubstr(folder_));
  ::chmod(folder_.c_str(), 0700);
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(path_.c_str(), 65534, 65534), 0);
    EXPECT_THAT(problem(path_), HasSubstr("belongs to another user"));
  }
}

TEST_F(TicketTest, ThatIsDamagedIsRefused) {
  const auto with = [&](const std::function<void(nlohmann::json&)>& change) {
    nlohmann::json json = ticket_;
    change(json);
    protocol::write_at_once(path_, json.dump());
    return problem(path_);
  };
  EXPECT_THAT(with([](auto& json) { json.erase("session"); }), HasSubstr("names no session"));
  EXPECT_THAT(with([](auto& json) { json["addresses"] = {""}; }), HasSubstr("has no address"));
  EXPECT_THAT(with([](auto& json) { json["port"] = 70000; }), HasSubstr("has no port"));
  EXPECT_THAT(with([](auto& json) { json["key"] = "short"; }), HasSubstr("lacks a key"));
  EXPECT_THAT(with([](auto& json) { json["server_key"] = 7; }), HasSubstr("no ticket of Lockstep"));
  const std::string text = nlohmann::json(ticket_).dump();
  for (size_t size = 0; size < text.size(); size += 13) {
    protocol::write_at_once(path_, text.substr(0, size));
    EXPECT_THAT(problem(path_), HasSubstr("no ticket of Lockstep")) << size;
  }
}

}  // namespace
}  // namespace lockstep::shell

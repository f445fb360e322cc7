// The session's socket: what connects and is no rank, ranks that send what can't be read, and the ends of connections.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>
#include <zmq.hpp>

#include "protocol/worker_messages.h"
#include "shell/processes/hub.h"
#include "tests/shell/core/session_fixture.h"

namespace lockstep::shell {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class HubTest : public SessionTest {
 protected:
  fs::path session_folder() const {
    for (const auto& entry : fs::directory_iterator(runtime_ / "lockstep")) return entry.path();
    throw std::runtime_error("the session has no folder");
  }
  std::string endpoint() const { return "ipc://" + (session_folder() / "hub").string(); }

  /// What the worker of `rank`, which is no copy, was given: a process of the same user can read it.
  std::string identity_of(int rank) const {
    std::ifstream description(session_folder() / "session.json");
    const int pid = nlohmann::json::parse(description).at("workers").at(static_cast<size_t>(rank)).at("pid").get<int>();
    std::ifstream file("/proc/" + std::to_string(pid) + "/environ", std::ios::binary);
    for (std::string entry; std::getline(file, entry, '\0');)
      if (entry.starts_with("LOCKSTEP_IDENTITY=")) return entry.substr(entry.find('=') + 1);
    return "";
  }

  /// Connects and hands `frames` to the session's socket; the connection stays until the test's end.
  void connect(const std::string& identity, const std::vector<std::string>& frames) {
    auto& socket = sockets_.emplace_back(context_, zmq::socket_type::dealer);
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::routing_id, identity);
    socket.set(zmq::sockopt::immediate, 1);
    socket.connect(endpoint());
    for (const auto& frame : frames)
      socket.send(zmq::buffer(frame), &frame == &frames.back() ? zmq::send_flags::none : zmq::send_flags::sndmore);
  }

  zmq::context_t context_;
  std::vector<zmq::socket_t> sockets_;
};

TEST_F(HubTest, IgnoresWhatIsNoRank) {
  auto& session = start(2);
  protocol::Hello hello;
  hello.rank = 1;
  std::vector<std::string> texts;
  connect("rank-1", {encode(protocol::WorkerMessage(hello)).dump()});
  connect("rank-1", {"garbage"});
  connect("somebody", {"", "\x01\x02"});
  // The message about it comes when the first of these has arrived, which has no other event to wait for.
  recorder_.also = [&](const Event& event) {
    if (const auto* message = std::get_if<MessageEvent>(&event);
        message && message->text.find("ignored") != message->text.npos)
      session.interrupt();
  };
  EXPECT_EQ(session.run("loop").status, CellStatus::interrupted);
  recorder_.also = nullptr;
  for (const auto& message : recorder_.all<MessageEvent>()) texts.push_back(message.text);
  EXPECT_THAT(texts, testing::Contains(HasSubstr("no rank of this session")));
  EXPECT_EQ(run("print hello").status, CellStatus::ok);
  EXPECT_EQ(recorder_.bytes(0), "hello\n");
  EXPECT_EQ(recorder_.bytes(1), "hello\n");
}

TEST_F(HubTest, RefusesASecondConnectionOfARank) {
  ::setenv("FAKE_WORKER", "no copies", 1);  // a copy's environment does not show the identity
  start(1);
  const std::string identity = identity_of(0);
  ASSERT_FALSE(identity.empty());
  protocol::Hello hello;
  hello.rank = 0;
  hello.versions.libtorch = "another";
  connect(identity, {encode(protocol::WorkerMessage(hello)).dump()});
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(run("print hello").status, CellStatus::ok);
    EXPECT_EQ(recorder_.bytes(0), "hello\n");
  }
}

TEST_F(HubTest, EndsARankThatSendsWhatCannotBeRead) {
  for (const char* what :
       {"not json", R"({"v":2})", R"({"v":999,"kind":"done"})", R"({"v":"x"})", R"({"v":2,"kind":"dance"})",
        R"({"v":2,"kind":"done","cell":"seven"})", R"([1])", R"("x")"}) {
    SCOPED_TRACE(what);
    start(2);
    const auto outcome = run(std::string("rank 1 send ") + what);
    EXPECT_EQ(outcome.status, CellStatus::dead);
    std::vector<std::string> messages;
    for (const auto& error : recorder_.all<ErrorEvent>()) messages.push_back(error.message);
    EXPECT_THAT(messages, testing::Contains(HasSubstr("can't be read")));
    EXPECT_EQ(run("print on").status, CellStatus::ok);
    EXPECT_EQ(recorder_.bytes(0), "on\n");
  }
}

/// A hub by itself, and connections of ranks to it.
class ConnectionsTest : public testing::Test {
 protected:
  ~ConnectionsTest() override { fs::remove_all(folder_); }

  /// A new connection of the rank; its first message has arrived.
  zmq::socket_t connect(int rank) {
    zmq::socket_t socket(context_, zmq::socket_type::dealer);
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::routing_id, hub_.expect(rank));
    socket.connect(endpoint_);
    socket.send(zmq::buffer(encode(protocol::WorkerMessage(protocol::Ready{})).dump()), zmq::send_flags::none);
    wait(hub_.socket());
    const auto from = hub_.receive();
    EXPECT_TRUE(from && from->rank == rank);
    return socket;
  }
  void wait(zmq::socket_ref socket) {
    zmq::pollitem_t item{socket.handle(), 0, ZMQ_POLLIN, 0};
    zmq::poll(&item, 1, std::chrono::milliseconds(-1));
  }
  bool ended(int rank) {
    hub_.take_connection_events();
    return hub_.connection_ended(rank);
  }
  void wait_for_end(int rank) {
    while (!ended(rank)) wait(hub_.monitor());
  }

  fs::path folder_ = fs::path(testing::TempDir()) / ("hub-" + std::to_string(::getpid()));
  std::string endpoint_ = "ipc://" + (fs::create_directories(folder_), folder_ / "hub").string();
  Hub hub_{endpoint_};
  zmq::context_t context_;
};

// A connection gets the descriptor of an earlier one, whose end nobody has looked at yet.
TEST_F(ConnectionsTest, TheEndOfAConnectionIsNotThatOfTheNextOneWithItsDescriptor) {
  for (int round = 0; round < 20; ++round) {
    auto first = connect(0), second = connect(1);
    first.close();
    second.close();
    wait(hub_.monitor());
    first = connect(1);
    second = connect(0);
    EXPECT_FALSE(ended(0));
    EXPECT_FALSE(ended(1));
    first.close();
    wait_for_end(1);
    EXPECT_FALSE(ended(0));
    second.close();
    wait_for_end(0);
  }
}

// A call of ZeroMQ ends early where a handler of a signal runs, also one that doesn't wait.
TEST_F(ConnectionsTest, SignalsDoNotDisturbIt) {
  auto socket = connect(0);
  struct sigaction action = {}, before = {};
  action.sa_handler = [](int) {};
  ::sigaction(SIGUSR1, &action, &before);
  std::atomic<bool> over{false};
  const pthread_t reader = ::pthread_self();
  std::thread signals([&] {
    while (!over) ::pthread_kill(reader, SIGUSR1);
  });
  const std::string message = encode(protocol::WorkerMessage(protocol::Ready{})).dump();
  int received = 0;
  EXPECT_NO_THROW({
    for (int round = 0; round < 300; ++round) {
      hub_.send(0, protocol::Shutdown{});
      hub_.send(RankSet{0}, protocol::Shutdown{}, std::vector<zmq::message_t>(2));
      EXPECT_FALSE(ended(0));
      while (zmq_send(socket.handle(), message.data(), message.size(), 0) < 0 && zmq_errno() == EINTR) {
      }
      while (!hub_.receive()) {
      }
      ++received;
    }
  });
  over = true;
  signals.join();
  ::sigaction(SIGUSR1, &before, nullptr);
  EXPECT_EQ(received, 300);
}

TEST_F(ConnectionsTest, TheEndIsKnownWhereItComesBeforeTheFirstMessageIsRead) {
  auto other = connect(0);
  zmq::socket_t socket(context_, zmq::socket_type::dealer);
  socket.set(zmq::sockopt::routing_id, hub_.expect(1));
  socket.connect(endpoint_);
  socket.send(zmq::buffer(encode(protocol::WorkerMessage(protocol::Ready{})).dump()), zmq::send_flags::none);
  wait(hub_.socket());
  socket.close();
  other.close();
  wait_for_end(0);  // both ends have come, or that of rank 1 comes
  EXPECT_FALSE(hub_.was_connected(1));
  EXPECT_FALSE(ended(1));
  const auto from = hub_.receive();
  ASSERT_TRUE(from && from->rank == 1);
  wait_for_end(1);
}

}  // namespace
}  // namespace lockstep::shell

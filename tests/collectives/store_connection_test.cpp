// A connection of its own to the store: connecting and waiting in it end when it is interrupted, and nothing is printed
// of it.
#include "collectives/transport/store_connection.h"

#include <arpa/inet.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <thread>

#include "collectives/transport/tcp_store.h"
#include "protocol/dist_error.h"
#include "tests/support/silent_listener.h"

namespace lockstep {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using testing::kNever;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

template <typename Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const dist::Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(StoreConnection, InterruptEndsAWaitWithoutAWarningOfC10d) {
  const dist::Store store = dist::serve_store("127.0.0.1", 0);
  auto connection = std::make_unique<dist::StoreConnection>(store);
  connection->connect(seconds(20));
  CaptureStderr();
  std::promise<void> begins;
  auto wait = std::async(std::launch::async, [&] {
    begins.set_value();
    connection->store()->wait({"never"}, std::chrono::minutes(1));
  });
  begins.get_future().wait();
  connection->interrupt();
  EXPECT_ANY_THROW(wait.get());
  EXPECT_ANY_THROW(connection->store()->wait({"never"}, std::chrono::minutes(1)));
  EXPECT_EQ(GetCapturedStderr(), "");

  // Afterwards warnings are shown again, and the store's other connections work.
  connection.reset();
  CaptureStderr();
  TORCH_WARN("of the program");
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("of the program"));
  store->set("key", "value");
  EXPECT_EQ(store->get_to_str("key"), "value");
}

TEST(StoreConnection, InterruptLeavesConnectionsOfOtherThreadsAlone) {
  const dist::TcpStore store = dist::serve_store("127.0.0.1", 0);
  // Another thread connects all the time, to the same port and while ours does.
  std::atomic<bool> stop = false;
  std::vector<dist::Store> others;
  std::promise<void> connects;
  std::thread other([&] {
    for (int i = 0; !stop || i < 20; ++i) {
      if (i == 5) connects.set_value();
      if (others.size() < 200) others.push_back(dist::connect_store("127.0.0.1", store->getPort()));
    }
  });
  connects.get_future().wait();
  std::vector<std::unique_ptr<dist::StoreConnection>> ours;
  for (int i = 0; i < 20; ++i) {
    ours.push_back(std::make_unique<dist::StoreConnection>(store));
    ours.back()->connect(seconds(20));
  }
  stop = true;
  other.join();
  for (const auto& connection : ours) connection->interrupt();
  for (const auto& connection : ours) EXPECT_ANY_THROW(connection->store()->check({"key"}));
  for (const dist::Store& each : others) EXPECT_NO_THROW(each->check({"key"}));
}

TEST(StoreConnection, ToAStoreThatIsGoneFailsAtOnce) {
  dist::TcpStore server = dist::serve_store("127.0.0.1", 0);
  const dist::Store client = dist::connect_store("127.0.0.1", server->getPort());
  server.reset();
  CaptureStderr();
  dist::StoreConnection connection(client);
  const std::string error = error_of([&] { connection.connect(kNever); });
  EXPECT_THAT(error, HasSubstr("can't be reached any more: Connection refused"));
  EXPECT_EQ(GetCapturedStderr(), "");
}

/// Listens, and takes no connection: further ones stay without an answer, as those to a machine that is gone do.
struct FullListener {
  FullListener() {
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    bind(fd, reinterpret_cast<sockaddr*>(&address), size);
    listen(fd, 0);
    getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
    port = ntohs(address.sin_port);
  }
  ~FullListener() { close(fd); }
  int fd = -1, port = 0;
};

TEST(StoreConnection, InterruptEndsConnecting) {
  // The store's process is stopped, in effect: it takes the connection and never answers.
  dist::TcpStore server = dist::serve_store("127.0.0.1", 0);
  const int port = server->getPort();
  const dist::Store client = dist::connect_store("127.0.0.1", port);
  server.reset();
  const testing::SilentListener silent(port);

  dist::StoreConnection connection(client);
  std::promise<void> begins;
  auto connecting = std::async(std::launch::async, [&] {
    begins.set_value();
    return error_of([&] { connection.connect(kNever); });
  });
  begins.get_future().wait();
  const int taken = silent.take();  // it is there
  connection.interrupt();
  EXPECT_THAT(connecting.get(), HasSubstr("was interrupted"));
  EXPECT_THAT(error_of([&] { connection.connect(kNever); }), HasSubstr("was interrupted"));
  close(taken);
}

TEST(StoreConnection, ConnectingHasALimit) {
  FullListener full;
  std::vector<int> waiting;  // fills the queue of those that are not accepted
  for (int i = 0; i < 4; ++i) {
    waiting.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(full.port));
    connect(waiting.back(), reinterpret_cast<sockaddr*>(&address), sizeof address);
  }
  EXPECT_THAT(error_of([&] { dist::connect_store("127.0.0.1", full.port, seconds(1)); }),
              HasSubstr("can't be reached"));
  for (const int fd : waiting) close(fd);
}

TEST(StoreConnection, AStoreThatTakesTheConnectionAndNeverAnswersIsLeftAtTheLimit) {
  // Its process is stopped: the kernel completes the connection.
  dist::TcpStore server = dist::serve_store("127.0.0.1", 0);
  const dist::Store client = dist::connect_store("127.0.0.1", server->getPort());
  const int port = server->getPort();
  server.reset();
  const testing::SilentListener silent(port);
  EXPECT_THAT(error_of([&] { dist::connect_store("127.0.0.1", port, seconds(1)); }), HasSubstr("can't be reached"));
  dist::StoreConnection connection(client);
  EXPECT_THAT(error_of([&] { connection.connect(seconds(1)); }), HasSubstr("can't be reached any more"));
}

TEST(StoreConnection, AnAddressOfIpv4IsItsOwnName) {
  Dl_info where{};
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&getnameinfo), &where), 0);
  EXPECT_THAT(where.dli_fname, HasSubstr("liblockstep_interpose")) << "the C library's would ask a name server";

  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  ASSERT_EQ(inet_pton(AF_INET6, "::ffff:127.0.0.1", &address.sin6_addr), 1);
  char host[NI_MAXHOST] = "";
  ASSERT_EQ(getnameinfo(reinterpret_cast<sockaddr*>(&address), sizeof address, host, sizeof host, nullptr, 0, 0), 0);
  EXPECT_STREQ(host, "::ffff:127.0.0.1");
}

}  // namespace
}  // namespace lockstep

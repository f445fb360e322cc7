// Another user of the machine reaches a port of the loopback interface, but not the store or the groups behind it.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>

#include "collectives/log/socket_owner.h"
#include "collectives/transport/gloo_connector.h"
#include "collectives/transport/own_accepts.h"
#include "collectives/transport/store_connection.h"
#include "collectives/transport/tcp_store.h"
#include "protocol/dist_error.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

constexpr uid_t kOtherUser = 65534;  // "nobody" by convention; any number will do

/// Runs `call` in a child process as another user, or as this one. What it returns (0 to 125), or 126 where the user
/// can't be changed. Only system calls: this process has other threads.
int in_child(uid_t user, const std::function<int()>& call) {
  const pid_t pid = fork();
  if (pid == 0) {
    if (user != geteuid() &&
        (setgroups(0, nullptr) != 0 || setresgid(user, user, user) != 0 || setresuid(user, user, user) != 0))
      _exit(126);
    _exit(call());
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 125;
}

int connect_to(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 ? fd : -1;
}

enum Answer : int { kClosed = 10, kAnswered = 11, kUnreachable = 12, kSilent = 13 };

/// Sends `bytes` and waits for the other end to do something.
int talk(int port, const std::string& bytes) {
  const int fd = connect_to(port);
  if (fd < 0) return kUnreachable;
  (void)!send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  pollfd readable{.fd = fd, .events = POLLIN, .revents = 0};
  if (poll(&readable, 1, 20'000) != 1) return kSilent;
  char answer;
  return recv(fd, &answer, 1, 0) == 1 ? kAnswered : kClosed;
}

template <typename T>
void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// What c10d's client sends to set a key, and then asks: how many there are.
std::string set_and_count(const std::string& key) {
  std::string bytes;
  append<uint8_t>(bytes, 0);  // validate
  append<uint32_t>(bytes, 0x3C85F7CE);  // its magic number
  append<uint8_t>(bytes, 1);  // set
  append<uint64_t>(bytes, key.size() + 1);
  bytes += '/' + key;  // before every key of a client
  append<uint64_t>(bytes, 1);
  bytes += 'x';
  append<uint8_t>(bytes, 7);  // number of keys: eight bytes of answer
  return bytes;
}

TEST(StoreAccess, AnotherUserGetsNoWordInTheStore) {
  const dist::TcpStore store = dist::serve_store("127.0.0.1", 0);
  const int port = store->getPort();
  // So a process of this user sets a key, and gets an answer.
  ASSERT_EQ(in_child(geteuid(), [&] { return talk(port, set_and_count("own")); }), kAnswered);
  EXPECT_TRUE(store->check({"own"}));
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  const int64_t before = dist::refused_connections();
  EXPECT_EQ(in_child(kOtherUser, [&] { return talk(port, set_and_count("planted")); }), kClosed);
  EXPECT_FALSE(store->check({"planted"}));
  EXPECT_EQ(dist::refused_connections(), before + 1);
  // One that has gone again when its turn comes is no root's process either, although its socket has no owner by then.
  EXPECT_EQ(in_child(kOtherUser,
                     [&] {
                       const int fd = connect_to(port);
                       const std::string bytes = set_and_count("planted");
                       (void)!send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
                       return 0;
                     }),
            0);
  const dist::TcpStore other_client = dist::connect_store("127.0.0.1", port, std::chrono::seconds(20), true);
  dist::Store(other_client)->set("later", "value");
  EXPECT_EQ(store->get_to_str("later"), "value");
  EXPECT_FALSE(store->check({"planted"}));
}

TEST(StoreAccess, AnotherUserGetsNoWordInAGroup) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  const auto connector = dist::make_gloo_connector({.name = "g", .group_rank = 0, .ranks = {0, 1}, .loopback = true});
  const std::string address = connector->announcement();
  const int port = std::stoi(address.substr(address.rfind(':') + 1));
  std::string sequence_number;
  append<int64_t>(sequence_number, 0);
  const int64_t before = dist::refused_connections();
  EXPECT_EQ(in_child(kOtherUser, [&] { return talk(port, sequence_number); }), kClosed);
  EXPECT_EQ(dist::refused_connections(), before + 1);
}

TEST(StoreAccess, AStoreOfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  // The other user's program listens where the session's store was, and answers as c10d's server does.
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    if (setgroups(0, nullptr) != 0 || setresgid(kOtherUser, kOtherUser, kOtherUser) != 0 ||
        setresuid(kOtherUser, kOtherUser, kOtherUser) != 0)
      _exit(126);
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    bind(listener, reinterpret_cast<sockaddr*>(&address), size);
    listen(listener, 5);
    getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
    const int port = ntohs(address.sin_port);
    (void)!write(ready[1], &port, sizeof port);
    while (true) {
      const int fd = accept(listener, nullptr, nullptr);
      char hello[10];  // validate and its magic number, ping and its nonce
      if (recv(fd, hello, sizeof hello, MSG_WAITALL) == static_cast<ssize_t>(sizeof hello))
        (void)!send(fd, hello + 6, 4, MSG_NOSIGNAL);  // the nonce, sent back
      while (recv(fd, hello, sizeof hello, 0) > 0) {
      }
      close(fd);
    }
  }
  int port = 0;
  ASSERT_EQ(read(ready[0], &port, sizeof port), static_cast<ssize_t>(sizeof port));
  try {
    dist::connect_store("127.0.0.1", port, std::chrono::seconds(10), /*own_user_only=*/true);
    ADD_FAILURE() << "connected";
  } catch (const dist::Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("held by user 65534"));
  }
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
}

TEST(SocketOwner, IsKnownFromTheKernelAndFromItsTables) {
  const int listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  ASSERT_EQ(inet_pton(AF_INET6, "::ffff:127.0.0.1", &address.sin6_addr), 1);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const int client = connect_to(ntohs(address.sin6_port));  // IPv4 to IPv6 that maps it
  ASSERT_GE(client, 0);
  // Not accepted yet: the listener's.
  EXPECT_EQ(dist::peer_owner(client), geteuid());
  EXPECT_EQ(dist::peer_owner_from_proc(client), geteuid());
  const int accepted = accept(listener, nullptr, nullptr);
  ASSERT_GE(accepted, 0);
  for (const int fd : {client, accepted}) {
    EXPECT_EQ(dist::peer_owner(fd), geteuid());
    EXPECT_EQ(dist::peer_owner_from_proc(fd), geteuid());
  }
  close(client);
  EXPECT_EQ(dist::peer_owner(accepted), std::nullopt) << "its end is closed";
  EXPECT_EQ(dist::peer_owner_from_proc(accepted), std::nullopt);
  EXPECT_EQ(dist::peer_owner(listener), std::nullopt);
  close(accepted);
  close(listener);
}

}  // namespace
}  // namespace lockstep

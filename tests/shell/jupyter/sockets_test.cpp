// Who may connect to a kernel's ports, and how those who listen to it are greeted.
#include "shell/jupyter/sockets.h"

#include <grp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <zmq.hpp>

namespace lockstep::shell::jupyter {
namespace {

constexpr uid_t kOtherUser = 65534;  // "nobody" by convention; any number will do
constexpr int kGreeted = 0, kClosed = 1, kFailed = 2;

/// What a process of `user` gets from the port: the greeting of ZeroMQ, which comes at once, or an end.
int outcome_for(uid_t user, int port) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (::setgroups(0, nullptr) != 0 || ::setresgid(user, user, user) != 0 || ::setresuid(user, user, user) != 0)
      ::_exit(kFailed);
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) ::_exit(kFailed);
    char byte;
    ::_exit(::recv(fd, &byte, 1, 0) == 1 ? kGreeted : kClosed);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WEXITSTATUS(status);
}

TEST(KernelSockets, TakeConnectionsOfTheirUserOnly) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  ConnectionFile connection;
  connection.key = "key";
  const Sockets sockets(connection);
  for (const int port : {connection.shell_port, connection.iopub_port, connection.stdin_port, connection.control_port,
                         connection.hb_port}) {
    EXPECT_EQ(outcome_for(::geteuid(), port), kGreeted);
    EXPECT_EQ(outcome_for(kOtherUser, port), kClosed);
    EXPECT_EQ(outcome_for(::geteuid(), port), kGreeted) << "and the port goes on listening";
  }
}

/// Publishes a status until the listener gets a message. Returns its frames as one text; empty where none comes.
std::string next_published(Sockets& sockets, zmq::socket_t& listener) {
  std::string text;
  for (const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
       text.empty() && std::chrono::steady_clock::now() < until;) {
    sockets.publish("status", nlohmann::json::object(), {{"execution_state", "idle"}});
    zmq::message_t frame;
    for (bool more = true; more && listener.recv(frame); more = frame.more()) text += frame.to_string() + "\n";
  }
  return text;
}

TEST(KernelSockets, GreetWhoListensFirstAndTakeNoOtherMessages) {
  ConnectionFile connection;
  connection.key = "key";
  Sockets sockets(connection);
  zmq::context_t context;
  zmq::socket_t listener(context, zmq::socket_type::xsub);
  listener.set(zmq::sockopt::rcvtimeo, 100);
  listener.set(zmq::sockopt::linger, 0);
  listener.connect("tcp://127.0.0.1:" + std::to_string(connection.iopub_port));
  listener.send(zmq::str_buffer("\1status"));
  EXPECT_NE(next_published(sockets, listener).find("iopub_welcome"), std::string::npos);
  listener.send(zmq::str_buffer("\2status"));  // which leaves what it has subscribed to
  listener.send(zmq::str_buffer("\1other"));
  std::string text;
  while (text.find("iopub_welcome") == std::string::npos)
    ASSERT_FALSE((text = next_published(sockets, listener)).empty());
  EXPECT_NE(next_published(sockets, listener).find("execution_state"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::shell::jupyter

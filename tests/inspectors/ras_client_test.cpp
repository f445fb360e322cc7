// The client of NCCL's RAS against a service that stands in for it.
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <iterator>
#include <mutex>
#include <thread>

#include "inspectors/evidence/ras.h"

namespace lockstep::inspect {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Takes one connection on a free port of the loopback interface. `answer` gets each line and returns what to send;
/// "close" ends the connection.
class RasStandIn {
 public:
  using Answer = std::function<std::string(const std::string& line)>;

  explicit RasStandIn(Answer answer) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener_, 1), 0);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, answer = std::move(answer)] { serve(answer); });
  }
  ~RasStandIn() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  std::vector<std::string> asked() const {
    const std::lock_guard lock(mutex_);
    return asked_;
  }

 private:
  void serve(const Answer& answer) {
    const int fd = accept(listener_, nullptr, nullptr);
    if (fd < 0) return;
    std::string buffer;
    char bytes[512];
    for (ssize_t count; (count = recv(fd, bytes, sizeof bytes, 0)) > 0;) {
      buffer.append(bytes, static_cast<size_t>(count));
      for (size_t end; (end = buffer.find('\n')) != std::string::npos;) {
        const std::string line = buffer.substr(0, end);
        buffer.erase(0, end + 1);
        {
          const std::lock_guard lock(mutex_);
          asked_.push_back(line);
        }
        const std::string reply = answer(line);
        if (reply == "close") {
          close(fd);
          return;
        }
        (void)send(fd, reply.data(), reply.size(), MSG_NOSIGNAL);
        if (line == "VERBOSE STATUS" && !reply.empty()) shutdown(fd, SHUT_WR);
      }
    }
    close(fd);
  }

  int listener_ = -1;
  int port_ = 0;
  mutable std::mutex mutex_;
  std::vector<std::string> asked_;
  std::thread thread_;
};

std::string recorded() {
  std::ifstream file(LOCKSTEP_TEST_EVIDENCE "/ras-2.30.7-error.json");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string as_nccl(const std::string& line) {
  if (line.starts_with("CLIENT PROTOCOL")) return "SERVER PROTOCOL 2\n";
  if (line == "VERBOSE STATUS") return recorded();
  return "OK\n";
}

std::string problem_of_answer(const std::string& address,
                              std::chrono::milliseconds deadline = std::chrono::seconds(20)) {
  try {
    ask_ras({.address = address, .deadline = deadline});
  } catch (const UnreadableEvidence& error) {
    return error.what();
  }
  return "none";
}

TEST(RasClient, AsksInJsonAndReadsTheAnswer) {
  RasStandIn ras(as_nccl);
  const Evidence answer = ask_ras({.address = ras.address(), .deadline = std::chrono::seconds(20)});
  EXPECT_EQ(answer.version, "2.30.7");
  EXPECT_EQ(answer.origin, "NCCL's RAS at " + ras.address());
  EXPECT_THAT(ras.asked(), ElementsAre("CLIENT PROTOCOL 2", "TIMEOUT 1", "SET FORMAT json", "VERBOSE STATUS"));
}

TEST(RasClient, TheEnvironmentHasTheAddress) {
  RasStandIn ras(as_nccl);
  setenv("NCCL_RAS_ADDR", ras.address().c_str(), 1);
  EXPECT_EQ(ask_ras({.address = "", .deadline = std::chrono::seconds(20)}).groups.size(), 1u);
  unsetenv("NCCL_RAS_ADDR");
}

TEST(RasClient, AnNcclWithoutJsonIsNamed) {
  RasStandIn ras([](const std::string& line) {
    return line.starts_with("SET FORMAT") ? "ERROR: Unknown command SET FORMAT json\n" : as_nccl(line);
  });
  EXPECT_THAT(problem_of_answer(ras.address()), HasSubstr("NCCL answers in JSON from version 2.28.7 on"));
}

TEST(RasClient, AnotherServiceIsNamed) {
  RasStandIn ras([](const std::string&) { return "HTTP/1.1 400 Bad Request\n"; });
  EXPECT_THAT(problem_of_answer(ras.address()), HasSubstr("this is another service"));
}

TEST(RasClient, AServiceThatDoesNotAnswerIsLeftAtTheDeadline) {
  RasStandIn ras([](const std::string& line) { return line == "VERBOSE STATUS" ? "" : as_nccl(line); });
  EXPECT_THAT(problem_of_answer(ras.address(), std::chrono::milliseconds(200)),
              HasSubstr("did not answer before the deadline"));
}

TEST(RasClient, AnAnswerThatIsCutOffIsNoAnswer) {
  RasStandIn ras(
      [](const std::string& line) { return line == "VERBOSE STATUS" ? recorded().substr(0, 900) : as_nccl(line); });
  EXPECT_THAT(problem_of_answer(ras.address()), HasSubstr("is not JSON, or it is cut off"));
}

TEST(RasClient, AConnectionThatIsClosedIsNamed) {
  RasStandIn ras([](const std::string& line) { return line.starts_with("TIMEOUT") ? "close" : as_nccl(line); });
  EXPECT_THAT(problem_of_answer(ras.address()), HasSubstr("closed the connection"));
}

TEST(RasClient, WhereNobodyListensTheMessageNamesTheSettings) {
  std::string address;
  {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);  // bound, not listening: nobody else gets the port
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof own;
    ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&own), size), 0);
    ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size), 0);
    address = "127.0.0.1:" + std::to_string(ntohs(own.sin_port));
    EXPECT_THAT(problem_of_answer(address), ::testing::AllOf(HasSubstr("NCCL_RAS_ENABLE"), HasSubstr(address)));
    close(fd);
  }
  EXPECT_THAT(problem_of_answer("localhost"), HasSubstr("HOST:PORT is expected"));
  EXPECT_THAT(problem_of_answer("localhost:http"), HasSubstr("HOST:PORT is expected"));
}

}  // namespace
}  // namespace lockstep::inspect

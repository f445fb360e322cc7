// The keeper of a session whose side the test plays: its process, its end of the pseudo-terminal, and its socket.
#include "shell/detached/keeper.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <thread>
#include <tuple>
#include <vector>

#include "protocol/descriptor_messages.h"
#include "protocol/error.h"
#include "protocol/read_struct.h"
#include "shell/detached/messages.h"
#include "shell/detached/session_socket.h"

namespace lockstep::shell {
namespace {

using testing::HasSubstr;

constexpr std::chrono::seconds kEnough{120};  // ends what hangs; judges nothing
constexpr const char* kId = "1-ab";

TerminalHello typing_hello(bool takes_over = false) {
  return {.protocol = kProtocolVersion,
          .asks = Asks::type,
          .takes_over = takes_over,
          .name = "test",
          .type = "xterm",
          .size = {}};
}

Received next_mail(int socket) {
  if (!is_ready(socket, POLLIN, kEnough)) return {};
  return receive_mail(socket);
}

template <typename Struct>
Struct mail_of(int socket, Mail kind) {
  const Received mail = next_mail(socket);
  EXPECT_EQ(static_cast<char>(mail.kind), static_cast<char>(kind)) << mail.body;
  return protocol::read_struct<Struct>(mail.body).value_or(Struct());
}

class KeeperTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / "ls-XXXXXX";
    ASSERT_TRUE(::mkdtemp(folder_.data()));
    ::setenv("XDG_RUNTIME_DIR", folder_.c_str(), 1);
    master_ = Descriptor(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
    ASSERT_EQ(::unlockpt(master_.get()), 0);
    terminal_ = Descriptor(::ioctl(master_.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK));
    termios raw = {};
    ::cfmakeraw(&raw);
    ASSERT_EQ(::tcsetattr(terminal_.get(), TCSANOW, &raw), 0);
    std::tie(session_, of_session_) = make_message_sockets();
    std::tie(first_, of_first_) = make_message_sockets();
    set_nonblocking(session_.get());
    set_nonblocking(of_session_.get());
    pid_ = ::fork();
    if (pid_ == 0)
      for (;;) ::pause();
  }
  void TearDown() override {
    end_session();
    std::filesystem::remove_all(folder_);
  }

  void start(std::chrono::seconds time) {
    keeper_ = std::async(std::launch::async, [this, time] {
      keep_session(std::move(master_), std::move(of_session_), pid_, std::move(of_first_), time);
    });
  }
  /// With a terminal that types.
  void start_attached(const std::string& id = kId) {
    send_json(first_.get(), Mail::hello, typing_hello());
    send_json(session_.get(), Mail::opened, OpenedSession{id});
    start(kEnough);
    EXPECT_TRUE(mail_of<KeeperAnswer>(first_.get(), Mail::answer).is_accepted);
  }
  void end_session() {
    if (keeper_.valid() && keeper_.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
      ::kill(pid_, SIGKILL);
    if (keeper_.valid()) keeper_.get();
  }
  Descriptor connect(const TerminalHello& hello) {
    const auto is_there = [&] { return std::filesystem::exists(folder_ + "/lockstep/" + kId + ".terminal"); };
    for (const auto until = std::chrono::steady_clock::now() + kEnough;
         !is_there() && std::chrono::steady_clock::now() < until;)
      std::this_thread::yield();
    Descriptor socket = connect_to_keeper(folder_ + "/lockstep/" + kId + ".terminal");
    send_json(socket.get(), Mail::hello, hello);
    return socket;
  }
  /// Draws until the keeper takes no more, because the first terminal takes nothing.
  std::string flood() {
    std::string drawn;
    for (int line = 0; is_ready(terminal_.get(), POLLOUT, std::chrono::milliseconds(200));) {
      const std::string text = std::to_string(line++) + std::string(1000, '.') + "\n";
      const ssize_t count = ::write(terminal_.get(), text.data(), text.size());
      if (count > 0) drawn += text.substr(0, static_cast<size_t>(count));
    }
    return drawn;
  }

  std::string folder_;
  Descriptor master_, terminal_;  // the keeper's and the session's end of the pseudo-terminal
  Descriptor session_, of_session_;  // the session's socket, and the keeper's end of it
  Descriptor first_, of_first_;  // of the terminal that has started it
  pid_t pid_ = -1;
  std::future<void> keeper_;
};

TEST_F(KeeperTest, EndsASessionToWhichNoTerminalWasEverAttached) {
  first_.reset();
  start(std::chrono::seconds(0));
  EXPECT_EQ(keeper_.wait_for(kEnough), std::future_status::ready);
}

TEST_F(KeeperTest, SendsAllThatWasDrawnBeforeTheEnd) {
  start_attached();
  const std::string drawn = flood();
  ::kill(pid_, SIGKILL);
  std::string shown;
  Received mail = next_mail(first_.get());
  for (; mail.found == Reading::bytes && mail.kind == Mail::output; mail = next_mail(first_.get())) shown += mail.body;
  EXPECT_EQ(shown.size(), drawn.size());
  EXPECT_TRUE(shown == drawn);
  ASSERT_EQ(mail.kind, Mail::leave);
  EXPECT_EQ(protocol::read_struct<LeaveTerminal>(mail.body).value().exit_code, 128 + SIGKILL);
}

TEST_F(KeeperTest, SendsAllThatWasDrawnBeforeItLetsATerminalGo) {
  start_attached();
  const std::string drawn = flood();
  send_json(session_.get(), Mail::detach, DetachTerminal{});
  std::string shown;
  Received mail = next_mail(first_.get());
  for (; mail.found == Reading::bytes && mail.kind == Mail::output; mail = next_mail(first_.get())) shown += mail.body;
  EXPECT_EQ(shown.size(), drawn.size());
  EXPECT_TRUE(shown == drawn);
  EXPECT_EQ(mail.kind, Mail::leave);
}

TEST_F(KeeperTest, EndsAfterItsSessionAlthoughATerminalTakesNothing) {
  start_attached();
  flood();
  ::kill(pid_, SIGKILL);
  EXPECT_EQ(keeper_.wait_for(kEnough), std::future_status::ready);
}

TEST_F(KeeperTest, SaysTheLastWordsToATerminalThatHasNoRoomForThem) {
  start_attached();
  const std::string drawn = flood();
  send_json(session_.get(), Mail::detach, DetachTerminal{60});
  EXPECT_EQ(next_mail(session_.get()).kind, Mail::lost);
  std::string shown;
  Received mail = next_mail(first_.get());
  for (; mail.found == Reading::bytes && mail.kind == Mail::output; mail = next_mail(first_.get())) shown += mail.body;
  EXPECT_TRUE(drawn.starts_with(shown));
  ASSERT_EQ(mail.kind, Mail::leave);
  EXPECT_THAT(mail.body, HasSubstr("goes on without a terminal until"));
}

TEST_F(KeeperTest, KeepsATerminalToWhichNobodyCouldComeBack) {
  start_attached(std::string(200, 'x'));
  EXPECT_THAT(next_mail(session_.get()).body, HasSubstr("too long"));
  send_json(session_.get(), Mail::detach, DetachTerminal{60});
  const Received again = next_mail(session_.get());
  EXPECT_EQ(again.kind, Mail::alone);
  EXPECT_THAT(again.body, HasSubstr("too long"));
  ASSERT_EQ(::write(terminal_.get(), "here", 4), 4);
  EXPECT_EQ(next_mail(first_.get()).body, "here");
}

TEST_F(KeeperTest, RefusesATerminalOfAnotherVersion) {
  start_attached();
  TerminalHello older = typing_hello(/*takes_over=*/true);
  older.protocol = 0;
  const Descriptor socket = connect(older);
  const auto answer = mail_of<KeeperAnswer>(socket.get(), Mail::answer);
  EXPECT_FALSE(answer.is_accepted);
  EXPECT_THAT(answer.problem, HasSubstr("another version of Lockstep"));
  EXPECT_EQ(next_mail(socket.get()).found, Reading::end);
}

TEST_F(KeeperTest, TakesATerminalThatTypesHoweverManyLookOn) {
  start_attached();
  std::vector<Descriptor> watching;
  TerminalHello hello = typing_hello();
  hello.asks = Asks::watch;
  for (;;) {
    watching.push_back(connect(hello));
    const auto answer = mail_of<KeeperAnswer>(watching.back().get(), Mail::answer);
    if (answer.is_accepted && watching.size() < 1000) continue;
    EXPECT_THAT(answer.problem, HasSubstr("terminals look at the session"));
    break;
  }
  const Descriptor second = connect(typing_hello(/*takes_over=*/true));
  EXPECT_TRUE(mail_of<KeeperAnswer>(second.get(), Mail::answer).is_accepted);
  EXPECT_THAT(mail_of<LeaveTerminal>(first_.get(), Mail::leave).text, HasSubstr("has taken the session"));
}

TEST_F(KeeperTest, SaysSinceWhenNobodyWasThere) {
  start_attached();
  Descriptor second = connect(typing_hello(/*takes_over=*/true));
  EXPECT_EQ(next_mail(session_.get()).kind, Mail::lost);
  EXPECT_EQ(mail_of<NewTerminal>(session_.get(), Mail::attached).since, 0);
  EXPECT_TRUE(mail_of<KeeperAnswer>(second.get(), Mail::answer).is_accepted);
  second.reset();
  EXPECT_EQ(next_mail(session_.get()).kind, Mail::lost);
  const Descriptor third = connect(typing_hello());
  EXPECT_GT(mail_of<NewTerminal>(session_.get(), Mail::attached).since, 0);
}

TEST_F(KeeperTest, PassesTheDescriptorOfANotebookOn) {
  start_attached();
  TerminalHello hello = typing_hello(/*takes_over=*/true);
  hello.asks = Asks::notebook;
  hello.key = "key";
  const Descriptor without = connect(hello);
  EXPECT_FALSE(mail_of<KeeperAnswer>(without.get(), Mail::answer).is_accepted);
  const auto [own, of_session] = make_socket_pair();
  const Descriptor notebook = connect_to_keeper(folder_ + "/lockstep/" + kId + ".terminal");
  send_json(notebook.get(), Mail::hello, hello, of_session);
  EXPECT_TRUE(mail_of<KeeperAnswer>(notebook.get(), Mail::answer).is_accepted);
  EXPECT_THAT(mail_of<LeaveTerminal>(first_.get(), Mail::leave).text, HasSubstr("test has taken the session"));
  EXPECT_EQ(next_mail(session_.get()).kind, Mail::lost);
  const Received attached = next_mail(session_.get());
  ASSERT_EQ(attached.kind, Mail::attached);
  ASSERT_TRUE(write_all(attached.descriptor.get(), "x"));
  std::string text;
  read_some(own.get(), text);
  EXPECT_EQ(text, "x");
  EXPECT_EQ(protocol::read_struct<NewTerminal>(attached.body).value().key, "key");
  const std::string drawn = protocol::read_struct<NewTerminal>(attached.body).value().mark + "drawn for who looks on";
  ASSERT_TRUE(write_all(terminal_.get(), drawn));
  send_json(session_.get(), Mail::detach, DetachTerminal{60});
  EXPECT_THAT(mail_of<LeaveTerminal>(notebook.get(), Mail::leave).text, HasSubstr("goes on without a notebook until"));
}

}  // namespace
}  // namespace lockstep::shell

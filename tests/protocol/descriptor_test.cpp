#include "protocol/descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "protocol/descriptor_messages.h"
#include "protocol/runtime_folder.h"
#include "protocol/unix_address.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

TEST(UnixAddress, IsThereForPathsThatFit) {
  const std::string longest(protocol::kLongestSocketPath, 'x');
  const auto address = unix_address(longest);
  ASSERT_TRUE(address);
  EXPECT_EQ(std::string(address->sun_path), longest);
  EXPECT_FALSE(unix_address(longest + 'x'));
  EXPECT_EQ(errno, ENAMETOOLONG);
  EXPECT_FALSE(unix_address(std::string(5000, 'x')));
}

TEST(Descriptor, IsClosedWithItsOwner) {
  int fd = -1;
  {
    Pipe pipe = make_pipe();
    fd = pipe.read.get();
    Descriptor other = std::move(pipe.read);
    EXPECT_FALSE(pipe.read);
    EXPECT_EQ(other.get(), fd);
    EXPECT_EQ(::fcntl(fd, F_GETFD), FD_CLOEXEC);
  }
  EXPECT_EQ(::fcntl(fd, F_GETFD), -1);
}

std::atomic<int> g_interruptions = 0;

/// Interrupts calls of this thread while it lives: each signal is sent once the one before it was handled.
class Interruptions {
 public:
  Interruptions() {
    struct sigaction action = {};
    action.sa_handler = [](int) { ++g_interruptions; };
    ::sigaction(SIGUSR1, &action, nullptr);  // without SA_RESTART
    thread_ = std::thread([this, target = ::pthread_self()] {
      for (int sent = g_interruptions; !over_;)
        if (g_interruptions == sent) ++sent, ::pthread_kill(target, SIGUSR1);
    });
  }
  ~Interruptions() {
    over_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

TEST(Descriptor, ReadsAndWritesWholeThroughSignals) {
  const std::string sent(8 << 20, 'x');
  auto [ours, theirs] = make_socket_pair();
  std::string received;
  bool has_sent = false;
  std::thread writer([&, end = std::move(theirs)] { has_sent = send_all(end.get(), sent); });
  {
    const Interruptions signals;
    std::string begin(sent.size() / 2, '\0');
    EXPECT_EQ(read_all(ours.get(), begin.data(), begin.size()), std::ssize(begin));
    received = begin + read_to_end(ours.get());
  }
  writer.join();
  EXPECT_TRUE(has_sent);
  EXPECT_EQ(received, sent);
}

TEST(Descriptor, AReadingSaysWhatItHasFound) {
  Pipe pipe = make_pipe();
  set_nonblocking(pipe.read.get());
  std::string text;
  EXPECT_EQ(read_some(pipe.read.get(), text), Reading::empty);
  EXPECT_TRUE(write_all(pipe.write.get(), "abc"));
  EXPECT_EQ(read_some(pipe.read.get(), text, 2), Reading::bytes);
  EXPECT_EQ(text, "ab");
  pipe.write.reset();
  EXPECT_EQ(read_to_end(pipe.read.get()), "c");
  EXPECT_EQ(read_some(pipe.read.get(), text), Reading::end);
  EXPECT_EQ(read_some(-1, text), Reading::failed);
}

TEST(Descriptor, APartOfAFileIsReadAsFarAsItGoes) {
  const Descriptor file(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_TRUE(write_all(file.get(), "0123456789"));
  EXPECT_EQ(read_at(file.get(), 3, 2), "234");
  EXPECT_EQ(read_at(file.get(), 100, 8), "89");
  EXPECT_EQ(read_at(-1, 1), "");
}

TEST(Descriptor, AGoneReaderIsAnErrorWithoutASignal) {
  auto [ours, theirs] = make_socket_pair();
  theirs.reset();
  EXPECT_FALSE(send_all(ours.get(), "x"));
  EXPECT_EQ(errno, EPIPE);
  char byte;
  EXPECT_EQ(read_all(ours.get(), &byte, 1), 0);
}

TEST(Descriptor, WaitsUntilItsDeadline) {
  Pipe pipe = make_pipe();
  EXPECT_FALSE(is_ready(pipe.read.get(), POLLIN));
  EXPECT_FALSE(is_ready(pipe.read.get(), POLLIN, 1ms));
  {
    const Interruptions signals;
    EXPECT_FALSE(is_ready(pipe.read.get(), POLLIN, 20ms)) << "signals are no events";
  }
  write_all(pipe.write.get(), "x");
  EXPECT_TRUE(is_ready(pipe.read.get(), POLLIN));
  pollfd polled{pipe.read.get(), POLLIN, 0};
  EXPECT_EQ(poll_until({&polled, 1}), 1);
  EXPECT_EQ(poll_until({&polled, 1}, std::chrono::steady_clock::now()), 0) << "a flood of events has a deadline, too";
}

TEST(Descriptor, OfAProcessShowsItsEndAndTakesSignals) {
  const pid_t pid = ::fork();
  if (pid == 0)
    for (;;) ::pause();
  const Descriptor process = open_process(pid);
  EXPECT_FALSE(is_ready(process.get(), POLLIN));
  EXPECT_TRUE(signal_process(process.get(), SIGKILL));
  EXPECT_TRUE(is_ready(process.get(), POLLIN, 60s));
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_FALSE(signal_process(process.get(), SIGKILL)) << "it has ended";
  EXPECT_FALSE(open_process(pid));
}

TEST(Descriptor, DescriptorsGoThroughASocketWithTheirMessage) {
  auto [ours, theirs] = make_message_sockets();
  Pipe pipe = make_pipe();
  const std::array<int, 2> fds = {pipe.read.get(), pipe.write.get()};
  EXPECT_TRUE(send_descriptors(ours.get(), "two", fds));
  EXPECT_TRUE(send_descriptors(ours.get(), "none", {}));
  EXPECT_FALSE(send_descriptors(ours.get(), "too many", std::vector<int>(17, fds[0])));
  const WithDescriptors two = receive_descriptors(theirs.get(), 100);
  EXPECT_EQ(two.bytes, "two");
  ASSERT_EQ(two.descriptors.size(), 2u);
  EXPECT_EQ(::fcntl(two.descriptors[0].get(), F_GETFD), FD_CLOEXEC);
  pipe = {};
  EXPECT_TRUE(write_all(two.descriptors[1].get(), "through"));
  std::string text;
  EXPECT_EQ(read_some(two.descriptors[0].get(), text), Reading::bytes);
  EXPECT_EQ(text, "through");
  const WithDescriptors none = receive_descriptors(theirs.get(), 100);
  EXPECT_EQ(none.bytes, "none");
  EXPECT_TRUE(none.descriptors.empty());
  set_nonblocking(theirs.get());
  EXPECT_EQ(receive_descriptors(theirs.get(), 100).found, Reading::empty);
  ours.reset();
  EXPECT_EQ(receive_descriptors(theirs.get(), 100).found, Reading::end);
}

}  // namespace
}  // namespace lockstep

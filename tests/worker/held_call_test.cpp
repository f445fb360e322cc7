// Rule 9: taking the stack of a thread does not end the system call in which it waits (worker/process/held_call.h).
#include "worker/process/held_call.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <thread>

#include "worker/process/stack.h"

namespace {

using lockstep::worker::Stack;
using lockstep::worker::StackProbe;

constexpr timespec kHour{3600, 0};
constexpr int kHourMs = 3600 * 1000;

/// Takes the stack of the calling thread twice while `wait` waits, and then calls `end`, which ends it.
void look_at(const std::function<void()>& wait, const std::function<void()>& end) {
  lockstep::worker::warm_up_stacks();
  StackProbe::watch_this_thread();
  const pid_t waiting = ::gettid();
  std::thread looker([&, waiting] {
    const int taken = ::eventfd(0, EFD_CLOEXEC);
    // Twice in the same call: what the thread does between system calls is not what is looked at here.
    lockstep::worker::HeldCall call, again;
    do {
      call = again;
      again = lockstep::worker::held_call(waiting);
    } while (again.number < 0 || again.instruction != call.instruction);
    for (int i = 0; i < 2; ++i) {
      StackProbe::request(taken);
      uint64_t count;
      EXPECT_EQ(::read(taken, &count, sizeof count), static_cast<ssize_t>(sizeof count));
      Stack stack;
      EXPECT_TRUE(StackProbe::taken(stack));
      EXPECT_GT(stack.size, 2);
    }
    end();
    ::close(taken);
  });
  wait();
  looker.join();
}

class Pipe {
 public:
  Pipe() { EXPECT_EQ(::pipe(ends_), 0); }
  ~Pipe() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  int read_end() const { return ends_[0]; }
  void write() const { EXPECT_EQ(::write(ends_[1], "x", 1), 1); }

 private:
  int ends_[2];
};

/// `wait` waits for the descriptor and returns what its system call does.
void expect_one(const std::function<int(int fd)>& wait) {
  const Pipe pipe;
  look_at([&] { EXPECT_EQ(wait(pipe.read_end()), 1) << strerror(errno); }, [&] { pipe.write(); });
}

}  // namespace

TEST(HeldCall, PollGoesOn) {
  expect_one([](int fd) {
    pollfd item{fd, POLLIN, 0};
    return ::poll(&item, 1, kHourMs);
  });
  expect_one([](int fd) {
    pollfd item{fd, POLLIN, 0};
    return ::poll(&item, 1, -1);
  });
  expect_one([](int fd) {
    pollfd item{fd, POLLIN, 0};
    return ::ppoll(&item, 1, &kHour, nullptr);
  });
}

TEST(HeldCall, SelectGoesOn) {
  expect_one([](int fd) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    timeval limit{3600, 0};
    return ::select(fd + 1, &set, nullptr, nullptr, &limit);
  });
}

TEST(HeldCall, EpollGoesOn) {
  expect_one([](int fd) {
    const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
    epoll_event event{.events = EPOLLIN, .data = {}};
    EXPECT_EQ(::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), 0);
    const int ready = ::epoll_wait(epoll, &event, 1, kHourMs);
    ::close(epoll);
    return ready;
  });
}

TEST(HeldCall, ASemaphoreWithATimeGoesOn) {
  sem_t semaphore;
  ASSERT_EQ(::sem_init(&semaphore, 0, 0), 0);
  timespec end;
  ::clock_gettime(CLOCK_REALTIME, &end);
  end.tv_sec += 3600;
  look_at([&] { EXPECT_EQ(::sem_timedwait(&semaphore, &end), 0) << strerror(errno); }, [&] { ::sem_post(&semaphore); });
  ::sem_destroy(&semaphore);
}

TEST(HeldCall, ASocketWithATimeGoesOn) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const timeval limit{3600, 0};
  ASSERT_EQ(::setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
  char byte;
  look_at([&] { EXPECT_EQ(::recv(ends[0], &byte, 1, 0), 1) << strerror(errno); }, [&] { ::send(ends[1], "x", 1, 0); });
  for (const int end : ends) ::close(end);
}

TEST(HeldCall, TheTimeOfPollStillEnds) {
  look_at([] { EXPECT_EQ(::poll(nullptr, 0, 100), 0) << strerror(errno); }, [] {});
}

// A signal of the program interrupts what it always interrupts, also after a look.
TEST(HeldCall, OtherSignalsInterrupt) {
  static volatile sig_atomic_t handled;
  handled = 0;
  struct sigaction action = {}, before = {};
  action.sa_handler = [](int) { handled = handled + 1; };
  ASSERT_EQ(::sigaction(SIGUSR1, &action, &before), 0);
  const pthread_t waiting = ::pthread_self();
  look_at(
      [] {
        EXPECT_EQ(::poll(nullptr, 0, kHourMs), -1);
        EXPECT_EQ(errno, EINTR);
      },
      [&] { ::pthread_kill(waiting, SIGUSR1); });
  EXPECT_EQ(handled, 1);
  look_at([] { EXPECT_EQ(::pause(), -1); }, [&] { ::pthread_kill(waiting, SIGUSR1); });
  EXPECT_EQ(handled, 2);
  ::sigaction(SIGUSR1, &before, nullptr);
}

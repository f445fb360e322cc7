#include "shell/built/process_copies.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <new>
#include <stdexcept>

#include "protocol/error.h"

namespace lockstep::shell {
namespace {

/// Counters that copies share.
struct Shared {
  std::atomic<int> begun{0}, ended{0}, at_once{0}, most{0};
};

class Copies : public testing::Test {
 protected:
  Copies()
      : memory_(::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)),
        shared(*new(memory_) Shared) {}
  ~Copies() override { ::munmap(memory_, sizeof(Shared)); }

  static void expect_error(const std::function<void()>& what, const std::string& part) {
    try {
      what();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const StartError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }

 private:
  void* memory_;

 protected:
  Shared& shared;
  ProcessCopies copies;
};

TEST_F(Copies, ReturnWhatTheyReturnInOrderAndAreNotMoreThanAsked) {
  const pid_t self = ::getpid();
  const auto results = copies.run(9, 3, [&](size_t index) {
    const int now = ++shared.at_once;
    for (int most = shared.most; most < now && !shared.most.compare_exchange_weak(most, now);) {
    }
    // The first of the first three goes on when the two others have begun.
    ++shared.begun;
    while (shared.begun < 3) ::sched_yield();
    --shared.at_once;
    return std::string(index * 100000, static_cast<char>('a' + index)) + (::getpid() == self ? "here" : "copy");
  });
  ASSERT_EQ(results.size(), 9u);
  for (size_t i = 0; i < results.size(); ++i)
    EXPECT_EQ(results[i], std::string(i * 100000, static_cast<char>('a' + i)) + "copy");
  EXPECT_EQ(shared.most, 3);
  EXPECT_TRUE(copies.run(0, 3, [](size_t) { return std::string(); }).empty());
}

TEST_F(Copies, AnErrorEndsTheOthers) {
  expect_error(
      [&] {
        copies.run(4, 4, [&](size_t index) -> std::string {
          ++shared.begun;
          while (shared.begun < 4) ::sched_yield();
          if (index == 2) throw std::runtime_error("of copy 2");
          for (;;) ::pause();
        });
      },
      "of copy 2");
}

TEST_F(Copies, AfterAnErrorNoneIsStarted) {
  expect_error(
      [&] {
        copies.run(4, 1, [&](size_t) -> std::string {
          ++shared.begun;
          throw std::runtime_error("the first");
        });
      },
      "the first");
  EXPECT_EQ(shared.begun, 1);
}

TEST_F(Copies, ThatAreKilledAreAnError) {
  expect_error(
      [&] {
        copies.run(1, 1, [](size_t) -> std::string {
          ::raise(SIGKILL);
          return "";
        });
      },
      "Killed");
  expect_error([&] { copies.run(1, 1, [](size_t) -> std::string { ::_exit(5); }); }, "code 5");
}

TEST_F(Copies, GetTheSignalOfThisProcess) {
  static ProcessCopies* running;
  running = &copies;
  struct sigaction action = {}, before = {};
  action.sa_handler = [](int signal) { running->pass_on(signal); };
  ::sigaction(SIGUSR1, &action, &before);
  const pid_t self = ::getpid();
  expect_error(
      [&] {
        copies.run(5, 2, [&](size_t index) -> std::string {
          ::signal(SIGUSR1, SIG_DFL);
          ++shared.begun;
          while (shared.begun < 2) ::sched_yield();
          if (index == 0) ::kill(self, SIGUSR1);
          for (;;) ::pause();
        });
      },
      "User defined signal 1");
  ::sigaction(SIGUSR1, &before, nullptr);
  EXPECT_EQ(shared.begun, 2);
}

}  // namespace
}  // namespace lockstep::shell

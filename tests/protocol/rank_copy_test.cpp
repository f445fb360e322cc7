// Copies of a process, and the orders for them.
#include "protocol/rank_copy.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "protocol/descriptor_messages.h"
#include "protocol/process_copy.h"

namespace lockstep {
namespace {

TEST(ProcessCopy, KnowsItself) {
  const pid_t* const number = thread_number_address();
  ASSERT_TRUE(number) << "the kernel does not say (CONFIG_CHECKPOINT_RESTORE)";
  const pid_t pid = start_copy(::getpid());
  ASSERT_GE(pid, 0);
  if (pid == 0) ::_exit(*number == ::getpid() && thread_number_address() == number ? 3 : 1);
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(WEXITSTATUS(status), 3);
}

/// A robust mutex that a copy holds at its end is not lost.
TEST(ProcessCopy, GivesUpItsMutexes) {
  pthread_mutexattr_t kind;
  ::pthread_mutexattr_init(&kind);
  ::pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
  ::pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
  void* const memory =
      ::mmap(nullptr, sizeof(pthread_mutex_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* const mutex = static_cast<pthread_mutex_t*>(memory);
  ::pthread_mutex_init(mutex, &kind);
  const pid_t pid = start_copy(::getpid());
  ASSERT_GE(pid, 0);
  if (pid == 0) ::_exit(::pthread_mutex_lock(mutex));
  ASSERT_EQ(::waitpid(pid, nullptr, 0), pid);
  EXPECT_EQ(::pthread_mutex_trylock(mutex), EOWNERDEAD);
  ::munmap(memory, sizeof(pthread_mutex_t));
}

TEST(ProcessCopy, OfAChildIsAChild) {
  const pid_t parent = ::getpid();
  Pipe told = make_pipe();
  const pid_t child = start_copy(parent);
  ASSERT_GE(child, 0);
  if (child == 0) {
    const pid_t copy = start_copy(parent);
    if (copy > 0) write_all(told.write.get(), {reinterpret_cast<const char*>(&copy), sizeof copy});
    ::_exit(copy == 0 && ::getppid() == parent ? 7 : 0);
  }
  pid_t copy = 0;
  ASSERT_EQ(read_all(told.read.get(), &copy, sizeof copy), static_cast<ssize_t>(sizeof copy));
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(::waitpid(copy, &status, 0), copy);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(RankCopy, AnOrderComesWithItsDescriptors) {
  const auto [ours, theirs] = make_message_sockets();
  const Pipe output = make_pipe(), lifeline = make_pipe();
  protocol::OutputChannels channels = protocol::make_output_channels();
  const std::map<std::string, std::string> environment = {{"LOCKSTEP_RANK", "3"}, {"EMPTY", ""}, {"BYTES", "\xff=\n"}};
  ASSERT_TRUE(protocol::send(ours.get(), protocol::CopyOrder{.environment = environment,
                                                             .output = output.write.get(),
                                                             .lifeline = lifeline.read.get(),
                                                             .channels = channels}));
  const auto received = protocol::receive_order(theirs.get());
  ASSERT_TRUE(received);
  auto expected = environment;
  expected["LOCKSTEP_LIFELINE_FD"] = std::to_string(received->order.lifeline);
  expected["LOCKSTEP_OUTPUT_FDS"] = protocol::output_channels_text(received->order.channels);
  EXPECT_EQ(received->order.environment, expected);
  EXPECT_EQ(received->descriptors.size(), 8u);
  ASSERT_TRUE(write_all(received->order.output, "out"));
  std::string text;
  EXPECT_EQ(read_some(output.read.get(), text), Reading::bytes);
  ASSERT_TRUE(write_all(received->order.channels[1].write, "err"));
  EXPECT_EQ(read_some(channels[1].read, text), Reading::bytes);
  EXPECT_EQ(text, "outerr");
  protocol::close_output_channels(channels);
}

TEST(RankCopy, AnOrderOfTheStoreHasItsListener) {
  const auto [ours, theirs] = make_message_sockets();
  const Pipe output = make_pipe(), lifeline = make_pipe(), listener = make_pipe();
  ASSERT_TRUE(protocol::send(ours.get(), protocol::CopyOrder{.environment = {{"A", "1"}},
                                                             .output = output.write.get(),
                                                             .lifeline = lifeline.read.get(),
                                                             .listener = listener.write.get()}));
  const auto received = protocol::receive_order(theirs.get());
  ASSERT_TRUE(received);
  EXPECT_TRUE(received->order.is_store());
  const std::map<std::string, std::string> expected = {
      {"A", "1"},
      {"LOCKSTEP_LIFELINE_FD", std::to_string(received->order.lifeline)},
      {"LOCKSTEP_LISTEN_FD", std::to_string(received->order.listener)}};
  EXPECT_EQ(received->order.environment, expected);
  EXPECT_EQ(received->descriptors.size(), 3u);
  ASSERT_TRUE(write_all(received->order.listener, "connected"));
  std::string text;
  EXPECT_EQ(read_some(listener.read.get(), text), Reading::bytes);
  EXPECT_EQ(text, "connected");
}

TEST(RankCopy, WhatIsNoOrderIsNone) {
  const auto [ours, theirs] = make_message_sockets();
  ASSERT_TRUE(send_descriptors(ours.get(), "LOCKSTEP_RANK=3", {}));
  EXPECT_FALSE(protocol::receive_order(theirs.get()));
  const int null = STDIN_FILENO;
  ASSERT_TRUE(send_descriptors(ours.get(), std::string_view("LOCKSTEP_RANK\0", 14),
                               std::array<int, 8>{null, null, null, null, null, null, null, null}));
  EXPECT_FALSE(protocol::receive_order(theirs.get()));
}

TEST(RankCopy, AnAnswerIsReceived) {
  auto [ours, theirs] = make_message_sockets();
  protocol::Copied copied;
  ASSERT_TRUE(protocol::send(theirs.get(), protocol::Copied{.rank = 5, .pid = 123}));
  EXPECT_EQ(protocol::receive(ours.get(), copied), Reading::bytes);
  EXPECT_EQ(copied.rank, 5);
  EXPECT_EQ(copied.pid, 123);
  ASSERT_TRUE(send_descriptors(theirs.get(), "short", {}));
  EXPECT_EQ(protocol::receive(ours.get(), copied), Reading::failed);
  theirs.reset();
  EXPECT_EQ(protocol::receive(ours.get(), copied), Reading::end);
}

}  // namespace
}  // namespace lockstep

// What a thread is at, read off stacks as they are seen.
#include "inspectors/hang/activity.h"

#include <gtest/gtest.h>

namespace lockstep::inspect {
namespace {

using Frames = std::vector<StackFrame>;

StackFrame c(const std::string& function, const std::string& object = "libc.so.6") { return {function, 0, 0, object}; }
StackFrame cell(int line, const std::string& function = {}) { return {function, 7, line, {}}; }

TEST(Activity, OfStacksAsTheyAreSeen) {
  const std::pair<FindingKind, Frames> cases[] = {
      {FindingKind::computing, {cell(3)}},
      {FindingKind::computing, {c("at::native::(anonymous namespace)::mm", "libtorch_cpu.so"), cell(3)}},
      {FindingKind::lock, {c(""), c("pthread_mutex_lock"), c("std::mutex::lock()", ""), cell(4)}},
      {FindingKind::lock, {c(""), c("__pthread_rwlock_wrlock"), cell(4)}},
      {FindingKind::condition,
       {c(""), c("pthread_cond_wait"), c("std::condition_variable::wait(std::unique_lock<std::mutex>&)"), cell(4)}},
      {FindingKind::condition, {c(""), c("pthread_join"), c("std::thread::join()"), cell(4)}},
      {FindingKind::lock, {c(""), c("pthread_rwlock_timedrdlock"), cell(4)}},  // by which an interrupt can end the wait
      {FindingKind::lock, {c(""), c("sem_timedwait"), cell(4)}},
      {FindingKind::condition, {c("pthread_timedjoin_np"), cell(4)}},
      {FindingKind::reading, {c("read"), c("_IO_file_underflow"), c("std::istream::get()"), cell(4)}},
      {FindingKind::polling, {c("poll"), cell(4)}},
      {FindingKind::child, {c("wait4"), c("system"), cell(4)}},
      {FindingKind::collective,
       {c(""), c("pthread_cond_wait"), c("c10d::Work::wait(std::chrono::duration<long>)", "libtorch_cpu.so"),
        c("lockstep::dist::WatchedWork::wait(std::chrono::duration<long>)", "liblockstep.so"),
        c("lockstep::dist::all_reduce(at::Tensor const&)", "liblockstep.so"), cell(4)}},
      {FindingKind::collective,
       {c("pthread_cond_wait"), c("c10::ivalue::Future::wait()", "libtorch_cpu.so"),
        c("c10d::Reducer::finalize_backward()", "libtorch_cpu.so"), cell(4)}},
      {FindingKind::polling,
       {c("poll"), c("c10d::tcputil::recvBytes<char>(int, char*, unsigned long)", "libtorch_cpu.so"),
        c("c10d::TCPStore::wait(std::vector<std::string> const&)", "libtorch_cpu.so"), cell(4)}},
      {FindingKind::collective,
       {c("poll"), c("c10d::TCPStore::wait(std::vector<std::string> const&)", "libtorch_cpu.so"),
        c("c10d::ProcessGroupNCCL::broadcastUniqueNCCLID(ncclUniqueId*)", "libtorch_cuda.so"), cell(4)}},
      {FindingKind::loading_data,
       {c("pthread_cond_wait"), c("torch::data::detail::DataShuttle<int, int>::pop_result()", ""),
        c("torch::data::DataLoaderBase<X>::next()", ""), cell(4)}},
      // What the user's own code waits for counts, not who called it.
      {FindingKind::lock,
       {c("pthread_mutex_lock"), cell(8, "hook()"), c("c10d::Reducer::autograd_hook(unsigned long)"), cell(4)}},
      {FindingKind::computing, {c("at::add"), c("c10d::Reducer::mark_variable_ready_dense"), cell(4)}},
      // Names that only look like it.
      {FindingKind::computing, {cell(8, "read(Batch const&)"), cell(4)}},
      {FindingKind::computing, {c("at::native::read_scalar"), cell(4)}},
  };
  for (const auto& [activity, frames] : cases)
    EXPECT_EQ(activity_of(frames, false, false), activity) << frames[0].function << " " << frames.size();
}

TEST(Activity, WhatTheStackDoesNotShow) {
  EXPECT_EQ(activity_of({cell(3)}, true, true), FindingKind::sleeping) << "the worker's own sleep";
  EXPECT_EQ(activity_of({cell(3)}, false, true), FindingKind::blocked);
  EXPECT_EQ(activity_of({}, false, false), FindingKind::unknown);
}

TEST(Activity, PlacesAreThoseOfTheInnermostCellFrame) {
  const Frames frames = {c("read"), cell(9, "load(int)"), cell(4)};
  EXPECT_EQ(code_place(frames), "load(int) at cell 7, line 9");
  EXPECT_EQ(code_line(frames), "cell 7, line 9");
  EXPECT_EQ(code_place({cell(4)}), "cell 7, line 4");
  EXPECT_EQ(code_place({c("read")}), "");
}

}  // namespace
}  // namespace lockstep::inspect

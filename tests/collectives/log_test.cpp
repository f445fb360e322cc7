// The collective log by itself: what is written is read back, by other threads while it is written, and from files that
// are not what they should be.
#include "collectives/log/collective_log.h"

#include <c10/core/ScalarType.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "protocol/dist_error.h"

namespace lockstep::dist {
namespace {

std::string temporary_folder() {
  std::string pattern = std::filesystem::temp_directory_path() / "lockstep-log-XXXXXX";
  EXPECT_TRUE(mkdtemp(pattern.data()));
  return pattern;
}

EntryFields fields_of(const std::vector<int64_t>& shape) {
  return {.op = CollectiveOp::all_reduce,
          .dtype = static_cast<uint8_t>(c10::ScalarType::Float),
          .reduce_op = c10d::ReduceOp::SUM,
          .tensor_count = 1,
          .bytes = 4,
          .shape = shape.data(),
          .dimensions = shape.size()};
}

TEST(CollectiveLog, NamesAreThoseOfLibTorch) {
  EXPECT_STREQ(dtype_name(static_cast<uint8_t>(c10::ScalarType::Float)), "float32");
  EXPECT_STREQ(dtype_name(static_cast<uint8_t>(c10::ScalarType::Long)), "int64");
  EXPECT_STREQ(dtype_name(static_cast<uint8_t>(c10::ScalarType::Bool)), "bool");
  EXPECT_STREQ(dtype_name(static_cast<uint8_t>(c10::ScalarType::BFloat16)), "bfloat16");
  EXPECT_STREQ(dtype_name(static_cast<uint8_t>(c10::ScalarType::ComplexDouble)), "complex128");
  EXPECT_STREQ(dtype_name(static_cast<uint8_t>(c10::ScalarType::Float8_e4m3fn)), "float8_e4m3fn");
  EXPECT_STREQ(dtype_name(static_cast<uint8_t>(c10::ScalarType::UInt64)), "uint64");
  EXPECT_STREQ(dtype_name(255), "");
  EXPECT_STREQ(reduce_op_name(c10d::ReduceOp::BXOR), "BXOR");
  EXPECT_STREQ(reduce_op_name(255), "");
  EXPECT_STREQ(op_name(CollectiveOp::coalesced), "coalesced");
  EXPECT_STREQ(op_name(CollectiveOp::new_group), "new_group");
}

TEST(CollectiveLog, SignalsOfTheProgramDoNotPreventIt) {
  ASSERT_NE(signal(SIGALRM, [](int) {}), SIG_ERR);
  const itimerval often{{0, 100}, {0, 100}}, never{};
  setitimer(ITIMER_REAL, &often, nullptr);
  for (int i = 0; i < 5; ++i) EXPECT_NO_THROW(CollectiveLog("", 0, 1));
  setitimer(ITIMER_REAL, &never, nullptr);
  signal(SIGALRM, SIG_DFL);
}

TEST(CollectiveLog, AFileForWhichThereIsNoRoomIsRemoved) {
  const std::string folder = temporary_folder(), path = folder + "/log";
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit most{100'000, 100'000};
    setrlimit(RLIMIT_FSIZE, &most);
    try {
      const CollectiveLog log(path, 0, 1);
      _exit(2);
    } catch (const Error&) {
      _exit(std::filesystem::exists(path) ? 1 : 0);
    }
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  std::filesystem::remove_all(folder);
}

TEST(CollectiveLog, KeepsTheNewestEntries) {
  CollectiveLog log("", 3, 8);
  const uint32_t group = log.add_group("default", {0, 1, 2, 3, 4, 5, 6, 7}, 3, 0);
  const int64_t total = log_layout::kEntryCapacity + 100;
  const std::vector<int64_t> shape{2, 3};
  for (int64_t seq = 1; seq <= total; ++seq) {
    const uint64_t entry = log.begin(group, seq, fields_of(shape));
    if (seq != total) log.finish(entry, log_layout::EntryState::done);
  }
  const CollectiveLogReader reader(log.mapping());
  const auto all = reader.last(100'000);
  ASSERT_EQ(all.size(), log_layout::kEntryCapacity);
  EXPECT_EQ(all.front().seq, 101);
  EXPECT_EQ(all.back().seq, total);
  EXPECT_EQ(describe(all.back()), "all_reduce float32 [2, 3] SUM");
  ASSERT_EQ(reader.in_flight().size(), 1u);
  EXPECT_EQ(reader.in_flight()[0].seq, total);
  log.finish(0, log_layout::EntryState::failed);  // overwritten long ago: changes nothing
  EXPECT_EQ(reader.last(1)[0].state, CollectiveState::entered);
}

TEST(CollectiveLog, IsReadWhileItIsWritten) {
  CollectiveLog log("", 0, 1);
  const uint32_t group = log.add_group("default", {0}, 0, 0);
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    std::vector<int64_t> shape(4);
    for (int64_t seq = 1; !stop; ++seq) {
      for (int64_t& each : shape) each = seq;  // all fields of an entry belong together
      EntryFields fields = fields_of(shape);
      fields.bytes = seq;
      log.finish(log.begin(group, seq, fields), log_layout::EntryState::done);
    }
  });
  const CollectiveLogReader reader(log.mapping());
  size_t seen = 0;
  while (seen < 200'000) {
    for (const CollectiveRecord& record : reader.last(50)) {
      ++seen;
      ASSERT_EQ(record.bytes, record.seq);
      for (const int64_t each : record.shape) ASSERT_EQ(each, record.seq);
    }
  }
  stop = true;
  writer.join();
}

TEST(CollectiveLog, LimitOfGroupsIsAnError) {
  CollectiveLog log("", 0, 1);
  for (uint32_t i = 0; i < log_layout::kGroupCapacity; ++i) log.add_group("g", {0}, 0, 0);
  EXPECT_THROW(log.add_group("one more", {0}, 0, 0), Error);
  log.remove_group(17);
  EXPECT_EQ(log.add_group("one more", {0}, 0, 0), 17u);
}

TEST(CollectiveLog, LongNamesAndManyDimensionsAreCut) {
  CollectiveLog log("", 0, 1);
  const uint32_t group = log.add_group(std::string(200, 'n'), {0}, 0, 0);
  const std::vector<int64_t> shape(12, 2);
  log.begin(group, 1, fields_of(shape));
  const auto record = CollectiveLogReader(log.mapping()).last(1).at(0);
  EXPECT_EQ(record.group, std::string(63, 'n'));
  EXPECT_EQ(record.shape.size(), log_layout::kShapeCapacity);
}

TEST(CollectiveLog, FilesThatAreNoLogs) {
  const std::string folder = temporary_folder();
  EXPECT_THROW(CollectiveLogReader(folder + "/absent"), Error);
  std::ofstream(folder + "/short") << "no log";
  EXPECT_THROW(CollectiveLogReader(folder + "/short"), Error);
  std::ofstream(folder + "/long") << std::string(log_layout::kFileBytes, 'x');
  EXPECT_THROW(CollectiveLogReader(folder + "/long"), Error);
  EXPECT_THROW(CollectiveLog(folder + "/no/such/folder", 0, 1), Error);
  {
    CollectiveLog log(folder + "/log", 2, 4);
    log.mapping().header().version = 99;
    EXPECT_THROW(CollectiveLogReader(folder + "/log"), Error);
  }
  CollectiveLog log(folder + "/log", 2, 4);  // replaces it
  EXPECT_EQ(CollectiveLogReader(folder + "/log").rank(), 2);
  EXPECT_EQ(std::filesystem::status(folder + "/log").permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace lockstep::dist

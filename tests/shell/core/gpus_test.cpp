// Ranks on GPUs in a session: what %dist_status shows of them, and what a cell that runs out of memory shows. The
// program that asks the driver is a script.
#include <nlohmann/json.hpp>

#include "inspectors/gpus/gpus.h"
#include "shell/processes/gpu_lookup.h"
#include "tests/shell/core/session_fixture.h"

namespace lockstep::shell {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr auto kLong = 300s;  // ends what hangs; judges nothing

class GpusOfASession : public SessionTest {
 protected:
  void SetUp() override {
    SessionTest::SetUp();
    programs_ = runtime_ / "programs";
    fs::create_directory(programs_);
    for (const char* program : {"lockstep-worker", "lockstep-compiler"})
      fs::create_symlink(fs::path(LOCKSTEP_FAKES) / program, programs_ / program);
    ::setenv("LOCKSTEP_BIN", programs_.c_str(), 1);
    ::setenv("FAKE_GPUS", "1", 1);
  }
  void TearDown() override {
    ::unsetenv("FAKE_GPUS");
    SessionTest::TearDown();
  }
  /// What `lockstep gpus --lines` writes, and the command that it ends with.
  void driver_says(const std::vector<json>& lines, const std::string& then = "exit 0") {
    std::ofstream script(programs_ / "lockstep");
    script << "#!/bin/sh\n[ \"$*\" = 'gpus --lines' ] || exit 2\ncat <<'END'\n";
    for (const json& line : lines) script << line.dump() << "\n";
    script << "END\n" << then << "\n";
    script.close();
    fs::permissions(programs_ / "lockstep", fs::perms::owner_all);
  }
  static json machine(int count) { return {{"driver", "580.65.06"}, {"cuda", 13000}, {"count", count}}; }
  static gpus::Gpu gpu(int index) {
    gpus::Gpu gpu;
    gpu.index = index;
    gpu.name = "NVIDIA H100";
    gpu.bus_id = "0000:3" + std::to_string(index) + ":00.0";
    gpu.total_bytes = 80'000'000'000;
    gpu.used_bytes = 20'000'000'000 + index * 1'000'000'000;
    gpu.gpu_percent = 97;
    gpu.temperature = 64;
    gpu.ecc = true;
    gpu.corrected_errors = 2;
    gpu.uncorrected_errors = 0;
    gpu.slowed_by = {"power cap"};
    return gpu;
  }

  fs::path programs_;
};

TEST_F(GpusOfASession, StatusShowsTheGpusOfRanksAsTheDriverReportsThem) {
  start(2);
  gpus::Gpu second = gpu(1);
  second.processes = {{.pid = children().back(), .name = "lockstep-worker", .bytes = 7'000'000'000}};
  driver_says({machine(3), second, gpu(0), gpu(2)});
  run("%dist_status");
  const MessageEvent message = recorder_.all<MessageEvent>().at(0);
  EXPECT_THAT(message.text, HasSubstr("NVIDIA H100"));
  EXPECT_THAT(message.text, HasSubstr("20.0 GB of 80.0 GB"));
  EXPECT_THAT(message.text, HasSubstr("21.0 GB of 80.0 GB"));
  EXPECT_THAT(message.text, Not(HasSubstr("22.0 GB of 80.0 GB"))) << "no rank uses the third";
  EXPECT_THAT(message.text, HasSubstr("97%"));
  EXPECT_THAT(message.text, HasSubstr("64 °C"));
  EXPECT_THAT(message.text, HasSubstr("2 corrected, 0 not"));
  EXPECT_THAT(message.text, HasSubstr("slowed by power cap"));
  EXPECT_THAT(message.text, HasSubstr("7000 MB (host"));
  EXPECT_EQ(message.data.at("driver"), "580.65.06");
  EXPECT_EQ(message.data.at("ranks").at(0).at("gpu"), 0);
  EXPECT_EQ(message.data.at("ranks").at(0).at("device_memory_bytes"), nullptr);
  EXPECT_EQ(message.data.at("ranks").at(1).at("device_memory_bytes"), 7'000'000'000);
  ASSERT_EQ(message.data.at("gpus").size(), 3U);
  EXPECT_EQ(message.data.at("gpus").at(1).at("ranks"), json({1}));
  EXPECT_EQ(message.data.at("gpus").at(2).at("ranks"), json::array());
}

TEST_F(GpusOfASession, Rule4AGpuThatDoesNotAnswerHoldsUpNoStatus) {
  start(2);
  driver_says({machine(2), gpu(1)}, "exec sleep 1000");
  run("%dist_status");
  const MessageEvent message = recorder_.all<MessageEvent>().at(0);
  EXPECT_THAT(message.text, HasSubstr("NVIDIA H100"));
  EXPECT_THAT(message.text, HasSubstr("NVML does not answer"));
  EXPECT_THAT(message.text, HasSubstr("idle"));
  EXPECT_EQ(message.data.at("ranks").at(0).at("gpu"), nullptr);
  EXPECT_EQ(message.data.at("ranks").at(1).at("gpu"), 1);
}

TEST_F(GpusOfASession, WithoutADriverStatusSaysSo) {
  start(1);
  driver_says({{{"problem", "libnvidia-ml.so.1: cannot open shared object file"}}});
  run("%dist_status");
  EXPECT_THAT(recorder_.all<MessageEvent>().at(0).text, HasSubstr("GPUs: libnvidia-ml.so.1: cannot open"));
  fs::remove(programs_ / "lockstep");
  run("%dist_status");
  EXPECT_THAT(recorder_.all<MessageEvent>().at(0).text, HasSubstr("lockstep is missing"));
}

TEST_F(GpusOfASession, TheDriverIsNotAskedForRanksOnTheCpu) {
  ::unsetenv("FAKE_GPUS");
  start(1);
  driver_says({machine(0)}, "touch " + (programs_ / "asked").string());
  run("%dist_status");
  EXPECT_FALSE(recorder_.all<MessageEvent>().at(0).data.contains("gpus"));
  EXPECT_FALSE(fs::exists(programs_ / "asked"));
}

TEST_F(GpusOfASession, AnAnswerThatBreaksOffIsReportedAsFarAsItCame) {
  driver_says({machine(2), gpu(0)}, "printf '{\"index\": 1, \"na'");
  const gpus::Machine machine = look_at_gpus(kLong);
  ASSERT_EQ(machine.gpus.size(), 2U);
  EXPECT_EQ(machine.gpus[0], gpu(0));
  EXPECT_THAT(machine.gpus[1].problem, HasSubstr("does not answer"));
}

TEST_F(GpusOfASession, ACellThatRunsOutOfMemoryShowsWhatHoldsItOnTheRanksConcerned) {
  start(3);
  const auto outcome = run("rank 1 out_of_memory CUDA out of memory. Tried to allocate 2 GiB\nprint on");
  EXPECT_EQ(outcome.status, CellStatus::error);
  ASSERT_EQ(recorder_.all<ErrorEvent>().size(), 1U);
  EXPECT_EQ(recorder_.all<ErrorEvent>()[0].type, "c10::OutOfMemoryError");
  const auto values = recorder_.all<ValueEvent>();
  ASSERT_EQ(values.size(), 1U);
  EXPECT_EQ(values[0].ranks, RankSet{1});
  EXPECT_THAT(values[0].text, HasSubstr("holders on rank 1 __lockstep::out_of_memory({})"));
  EXPECT_EQ(recorder_.all<CellEvent>().at(0).rank_status.at(1), CellStatus::error);
  run("throw something else");
  EXPECT_TRUE(recorder_.all<ValueEvent>().empty());
}

}  // namespace
}  // namespace lockstep::shell

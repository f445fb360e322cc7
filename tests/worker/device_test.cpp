// Work on a device that fails after the calls that queued it have returned: which cell is blamed, and what becomes of
// the rank. The device is a stand-in (tests/support/stand_in_plugin.cpp).
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/worker/fake_hub.h"
#include "worker/device_work.h"

namespace lockstep::testing {
namespace {

using namespace protocol;
using ::testing::HasSubstr;
using worker::DeviceWork;

// ---- Which cell is blamed -------------------------------------------------------------------------------------------

struct MadeUpDevice {
  int work = LOCKSTEP_DEVICE_USED;
  int failure = 0;  // of the next finish(); 0: none
  bool lost = false;
  int waits = 0;
};
MadeUpDevice made_up;

const lockstep_device_state_v1 kMadeUp{.abi = kDeviceStateAbi,
                                       .work = [](int) { return made_up.work; },
                                       .finish =
                                           [](int, lockstep_device_error* error) {
                                             ++made_up.waits;
                                             if (made_up.failure == 0) return true;
                                             *error = {made_up.failure, "cudaErrorLaunchFailure",
                                                       "unspecified launch failure", made_up.lost};
                                             return false;
                                           },
                                       .allocator = nullptr,
                                       .bus_id = nullptr,
                                       .memory = nullptr};

class DeviceOfCells : public ::testing::Test {
 protected:
  DeviceOfCells() { made_up = {}; }
  DeviceWork work{&kMadeUp, 0, "cuda:0"};
};

TEST_F(DeviceOfCells, TheCellWhoseWorkFailsIsNamedAndOthersAreNot) {
  EXPECT_FALSE(work.end_cell(1, true));
  made_up.failure = 719;
  const auto failure = work.end_cell(2, true);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->first_cell, 2);
  EXPECT_EQ(failure->last_cell, 2);
  EXPECT_EQ(failure->type, "cudaErrorLaunchFailure");
  EXPECT_FALSE(failure->lost);
  EXPECT_EQ(failure->message,
            "unspecified launch failure on cuda:0 (cudaErrorLaunchFailure, 719), in work that cell 2 queued");
  made_up.failure = 0;
  EXPECT_FALSE(work.end_cell(3, true));
}

TEST_F(DeviceOfCells, ACellThatLeavesWorkUnfinishedIsOneOfThoseThatMayHaveQueuedIt) {
  EXPECT_FALSE(work.end_cell(1, true));
  EXPECT_FALSE(work.end_cell(2, false)) << "it was interrupted";
  EXPECT_FALSE(work.end_cell(3, false));
  EXPECT_EQ(made_up.waits, 1) << "a cell that ended early is not waited for";
  made_up.failure = 700;
  made_up.lost = true;
  const auto failure = work.end_cell(4, true);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->first_cell, 2);
  EXPECT_EQ(failure->last_cell, 4);
  EXPECT_TRUE(failure->lost);
  EXPECT_THAT(failure->message, HasSubstr("one of the cells 2 to 4"));
  EXPECT_THAT(failure->message, HasSubstr("The other ranks keep their state"));
}

TEST_F(DeviceOfCells, OnceAllWorkHasEndedEarlierCellsAreNotMeantAnyMore) {
  EXPECT_FALSE(work.end_cell(2, false));
  EXPECT_FALSE(work.end_cell(3, true));
  made_up.failure = 700;
  EXPECT_EQ(work.end_cell(4, true)->first_cell, 4);
}

TEST_F(DeviceOfCells, AGraphThatIsCapturedIsNotBroken) {
  made_up.work = LOCKSTEP_DEVICE_CAPTURING;
  EXPECT_FALSE(work.is_used());
  EXPECT_FALSE(work.end_cell(1, true));
  EXPECT_EQ(made_up.waits, 0);
  made_up.work = LOCKSTEP_DEVICE_USED;
  made_up.failure = 700;
  EXPECT_EQ(work.end_cell(2, true)->first_cell, 1);
}

TEST_F(DeviceOfCells, ADeviceThatWasNeverUsedIsNotAsked) {
  made_up.work = LOCKSTEP_DEVICE_UNUSED;
  made_up.failure = 700;
  EXPECT_FALSE(work.end_cell(1, true));
  EXPECT_EQ(made_up.waits, 0);
  EXPECT_FALSE(DeviceWork(nullptr, -1, "cpu").end_cell(1, true));
}

TEST_F(DeviceOfCells, ALostContextIsFoundAlsoAtTheEndOfACellThatHasThrown) {
  made_up.work = LOCKSTEP_DEVICE_FAILED;
  made_up.failure = 710;
  made_up.lost = true;
  const auto failure = work.end_cell(5, false);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->first_cell, 5);
  EXPECT_TRUE(failure->lost);
}

// ---- What a worker makes of it --------------------------------------------------------------------------------------

namespace {
/// The environment of a rank on the stand-in, and `more`.
Environment on_device(Environment more) {
  more.insert(
      {{"LOCKSTEP_DEVICE", "cuda:0"}, {"LOCKSTEP_BACKEND", "gloo"}, {"LOCKSTEP_PLUGIN", LOCKSTEP_STAND_IN_PLUGIN}});
  return more;
}
}  // namespace

TEST(DeviceError, IsThatOfTheCellThatQueuedTheWorkAndTheRankGoesOn) {
  FakeHub hub;
  hub.start_ready(on_device({{"STAND_IN_FAILS_AT", "2"}}));
  EXPECT_EQ(hub.run_cell("output", "nothing").status, CellStatus::ok);
  const auto done = hub.run_cell("output", "nothing");
  EXPECT_EQ(done.status, CellStatus::error);
  ASSERT_TRUE(done.error);
  EXPECT_EQ(done.error->type, "cudaErrorIllegalAddress");
  EXPECT_THAT(done.error->message, HasSubstr("an illegal memory access was encountered on cuda:0"));
  EXPECT_THAT(done.error->message, HasSubstr("in work that cell " + std::to_string(done.cell) + " queued"));
  EXPECT_EQ(done.error->where, "cell " + std::to_string(done.cell));
  EXPECT_TRUE(done.error->root_cause);
  EXPECT_EQ(hub.run_cell("output", "nothing").status, CellStatus::ok) << "the context was not lost";
}

TEST(DeviceError, Rule7ALostContextEndsTheRankWithTheCause) {
  FakeHub hub;
  hub.start_ready(on_device({{"STAND_IN_FAILS_AT", "1"}, {"STAND_IN_LOST", "1"}}));
  const auto cell = hub.load("output", "mixed");
  hub.run(cell);
  const auto dying = hub.expect<Dying>();
  EXPECT_EQ(dying.cell, cell);
  EXPECT_EQ(dying.error.type, "cudaErrorAssert");
  EXPECT_THAT(dying.error.message, HasSubstr("device-side assert triggered on cuda:0 (cudaErrorAssert, 710)"));
  EXPECT_THAT(dying.error.message, HasSubstr("so the rank ends"));
  EXPECT_EQ(hub.process().wait().code, 1);
  EXPECT_NE(hub.output(cell), "") << "what the cell wrote has come, too";
}

TEST(DeviceError, AnExceptionOfTheSameCellKeepsItsTypeAndLine) {
  FakeHub hub;
  hub.start_ready(on_device({{"STAND_IN_FAILS_AT", "2"}}));
  const auto thrown = hub.run_cell("errors", "second_of_three");
  EXPECT_EQ(thrown.error->message, "diverged at step 3") << "its work is not waited for";
  EXPECT_EQ(hub.run_cell("output", "nothing").status, CellStatus::ok);
  const auto done = hub.run_cell("output", "nothing");
  ASSERT_TRUE(done.error);
  EXPECT_THAT(done.error->message, HasSubstr("that cell " + std::to_string(done.cell) + " queued"));
}

TEST(DeviceError, Rule4StatusIsAnsweredWhileTheDeviceWorks) {
  FakeHub hub;
  const std::string fifo = hub.directory() + "/held";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  hub.start_ready(on_device({{"STAND_IN_HOLDS", fifo}}));
  const auto cell = hub.load("output", "nothing");
  hub.run(cell);
  question::Status::Answer status;
  EXPECT_TRUE(eventually([&] {
    status = hub.query(question::Status());
    return status.on_device;
  }));
  EXPECT_EQ(status.state, RankState::running);
  EXPECT_EQ(status.device_name, "Stand-in");
  EXPECT_EQ(status.device_bus_id, "0000:30:00.0");
  EXPECT_FALSE(hub.has<Done>()) << "the cell ends when its work on the device has ended";
  const Fd writer(::open(fifo.c_str(), O_WRONLY));
  EXPECT_EQ(hub.expect<Done>().status, CellStatus::ok);
  EXPECT_FALSE(hub.query(question::Status()).on_device);
}

TEST(DeviceError, ACellThatIsStoppedWhileTheDeviceWorksEndsAsStopped) {
  FakeHub hub;
  const std::string fifo = hub.directory() + "/held";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  hub.start_ready(on_device({{"STAND_IN_HOLDS", fifo}}));
  const auto stop = [&](const auto& message_of) {
    const auto cell = hub.load("output", "nothing");
    hub.run(cell);
    EXPECT_TRUE(eventually([&] { return hub.query(question::Status()).on_device; }));
    hub.send(message_of(cell));
    hub.query(question::Status());  // the I/O thread has taken it
    const Fd writer(::open(fifo.c_str(), O_WRONLY));
    return hub.expect<Done>();
  };
  const auto interrupted = stop([](int64_t cell) { return Interrupt{cell}; });
  EXPECT_EQ(interrupted.status, CellStatus::interrupted);
  EXPECT_EQ(interrupted.steps_done, 1) << "its statements have run";
  const auto aborted = stop([](int64_t) { return Abort{"a test"}; });
  EXPECT_EQ(aborted.status, CellStatus::aborted);
  ASSERT_TRUE(aborted.error);
  EXPECT_FALSE(aborted.error->root_cause);
}

}  // namespace
}  // namespace lockstep::testing

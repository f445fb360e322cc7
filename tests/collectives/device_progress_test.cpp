// How far collectives on a device are, by a device that is two flags in this test.
#include "collectives/log/device_progress.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>

#include "collectives/log/collective_log.h"

namespace lockstep::dist {
namespace {

constexpr std::chrono::seconds kLong{60};

/// A collective as the device sees it.
struct OnStream {
  std::atomic<bool> reached = false;
  std::atomic<StreamEnd> end = StreamEnd::none;
  std::atomic<int> asked = 0;
};

class DeviceProgressTest : public testing::Test {
 protected:
  DeviceProgressTest() { group_ = log_.add_group("default", {0, 1}, 0, 0); }

  /// Enqueues a collective; `peer`: it is a message.
  uint64_t enqueue(OnStream& device, int peer = -1) {
    const uint64_t entry = log_.begin(group_, ++seq_, {.op = CollectiveOp::all_reduce, .flags = log_layout::kOnDevice});
    log_.device_progress().add(entry, {group_, peer},
                               {.reached = [&device] { return device.reached.load(); },
                                .end =
                                    [&device] {
                                      ++device.asked;
                                      return device.end.load();
                                    }});
    return entry;
  }
  void look() { EXPECT_TRUE(log_.device_progress().look(kLong)); }
  CollectiveRecord record(uint64_t entry) { return CollectiveLogReader(log_.mapping()).record(entry).value(); }
  CollectiveStage stage(uint64_t entry) { return record(entry).stage(); }

  CollectiveLog log_{"", 0, 2};
  uint32_t group_ = 0;
  int64_t seq_ = 0;
};

TEST_F(DeviceProgressTest, GoesFromEnqueuedToDone) {
  OnStream device;
  const uint64_t entry = enqueue(device);
  EXPECT_EQ(stage(entry), CollectiveStage::enqueued) << "nobody has looked";
  look();
  EXPECT_EQ(stage(entry), CollectiveStage::waiting_for_stream);
  device.reached = true;
  EXPECT_EQ(stage(entry), CollectiveStage::waiting_for_stream) << "nobody has looked since";
  look();
  EXPECT_EQ(stage(entry), CollectiveStage::started);
  const CollectiveRecord started = record(entry);
  EXPECT_GE(started.reached_ns, started.entered_ns);
  EXPECT_GE(started.started_ns, started.reached_ns);
  EXPECT_EQ(started.state, CollectiveState::entered);
  device.end = StreamEnd::done;
  look();
  EXPECT_EQ(stage(entry), CollectiveStage::done);
  EXPECT_EQ(log_.device_progress().in_flight(), 0u);
}

TEST_F(DeviceProgressTest, ALaterCollectiveOfTheGroupStartsAfterTheEarlierOne) {
  OnStream first, second;
  const uint64_t one = enqueue(first), two = enqueue(second);
  first.reached = second.reached = true;
  look();
  EXPECT_EQ(stage(one), CollectiveStage::started);
  EXPECT_EQ(stage(two), CollectiveStage::ready);
  first.end = StreamEnd::done;
  look();
  EXPECT_EQ(stage(two), CollectiveStage::started);
}

TEST_F(DeviceProgressTest, AMessageDoesNotWaitForCollectivesNorForMessagesOfOthers) {
  OnStream collective, to_one, to_two;
  enqueue(collective);
  const uint64_t one = enqueue(to_one, 1), two = enqueue(to_two, 2);
  to_one.reached = to_two.reached = true;
  look();
  EXPECT_EQ(stage(one), CollectiveStage::started);
  EXPECT_EQ(stage(two), CollectiveStage::started);
}

TEST_F(DeviceProgressTest, AFailedDeviceFailsTheCollective) {
  OnStream device;
  const uint64_t failed = enqueue(device);
  device.end = StreamEnd::failed;
  look();
  EXPECT_EQ(stage(failed), CollectiveStage::failed);
  const uint64_t thrown = log_.begin(group_, ++seq_, {.op = CollectiveOp::barrier, .flags = log_layout::kOnDevice});
  log_.device_progress().add(thrown, {group_, -1},
                             {.reached = {}, .end = []() -> StreamEnd { throw std::runtime_error("device lost"); }});
  look();
  EXPECT_EQ(stage(thrown), CollectiveStage::failed);
}

TEST_F(DeviceProgressTest, TheFirstEndCounts) {
  OnStream device;
  const uint64_t entry = enqueue(device);
  log_.finish(entry, log_layout::EntryState::failed);
  device.end = StreamEnd::done;
  look();
  EXPECT_EQ(stage(entry), CollectiveStage::failed);
}

TEST_F(DeviceProgressTest, AnotherWayToAskReplacesTheFirst) {
  OnStream device;
  const uint64_t entry = enqueue(device);
  const int asked = device.asked;
  log_.device_progress().set_end(entry, [] { return StreamEnd::done; });
  look();
  EXPECT_EQ(stage(entry), CollectiveStage::done);
  EXPECT_EQ(device.asked, asked);
  log_.device_progress().set_end(entry, [] { return StreamEnd::failed; });  // not in flight any more
  look();
  EXPECT_EQ(stage(entry), CollectiveStage::done);
}

TEST_F(DeviceProgressTest, AnEntryThatSomebodyElseEndsIsNotAskedAnyMore) {
  OnStream device;
  const uint64_t entry = log_.begin(group_, ++seq_, {.op = CollectiveOp::barrier, .flags = log_layout::kOnDevice});
  log_.device_progress().add(entry, {group_, -1}, {.reached = [&] { return device.reached.load(); }, .end = {}});
  device.reached = true;
  look();
  EXPECT_EQ(stage(entry), CollectiveStage::started);
  EXPECT_EQ(log_.device_progress().in_flight(), 1u);
  log_.finish(entry, log_layout::EntryState::done);
  look();
  EXPECT_EQ(stage(entry), CollectiveStage::done);
  EXPECT_EQ(log_.device_progress().in_flight(), 0u);
}

TEST_F(DeviceProgressTest, ADeviceIsAskedWithinTheGuardThatItsPlugInSets) {
  static int guarded = 0;
  set_device_query_guard([](const std::function<void()>& ask) {
    ++guarded;
    ask();
  });
  OnStream device;
  const uint64_t entry = enqueue(device);
  look();
  set_device_query_guard(nullptr);
  EXPECT_EQ(guarded, 1);
  EXPECT_EQ(stage(entry), CollectiveStage::waiting_for_stream);
}

TEST_F(DeviceProgressTest, AProgramInWhichNobodyLooksGathersNone) {
  OnStream device;
  device.reached = true;
  device.end = StreamEnd::done;
  for (int i = 0; i < 1000; ++i) enqueue(device);
  EXPECT_LE(log_.device_progress().in_flight(), 1u);
}

TEST_F(DeviceProgressTest, ALookAtADeviceThatIsStuckEndsAtItsLimit) {
  std::mutex mutex;
  std::condition_variable changed;
  bool stuck = true, free = false;
  const uint64_t entry = log_.begin(group_, ++seq_, {.op = CollectiveOp::barrier, .flags = log_layout::kOnDevice});
  log_.device_progress().add(entry, {group_, -1}, {.reached = {}, .end = [&] {
                                                     std::unique_lock lock(mutex);
                                                     changed.wait(lock, [&] { return !stuck; });
                                                     free = true;
                                                     changed.notify_all();
                                                     return StreamEnd::done;
                                                   }});
  EXPECT_FALSE(log_.device_progress().look(std::chrono::milliseconds(1)));
  EXPECT_EQ(stage(entry), CollectiveStage::enqueued);
  {
    std::unique_lock lock(mutex);
    stuck = false;
    changed.notify_all();
    changed.wait(lock, [&] { return free; });
  }
  look();
  EXPECT_EQ(stage(entry), CollectiveStage::done);
}

TEST_F(DeviceProgressTest, ACollectiveOfTheHostHasNoStages) {
  const uint64_t entry = log_.begin(group_, ++seq_, {.op = CollectiveOp::barrier});
  look();
  EXPECT_EQ(stage(entry), CollectiveStage::entered);
  EXPECT_EQ(record(entry).looked_ns, 0);
  log_.finish(entry, log_layout::EntryState::done);
  EXPECT_EQ(stage(entry), CollectiveStage::done);
}

TEST_F(DeviceProgressTest, AnOldEntryDoesNotShowTheTimesOfTheOneThatTookItsSlot) {
  OnStream first, second;
  const uint64_t one = enqueue(first);
  first.reached = true;
  look();
  EXPECT_GT(record(one).started_ns, 0);
  for (uint32_t i = 1; i < log_layout::kEntryCapacity; ++i)
    log_.finish(log_.begin(group_, ++seq_, {.op = CollectiveOp::barrier}), log_layout::EntryState::done);
  const uint64_t two = enqueue(second);
  EXPECT_EQ(one % log_layout::kEntryCapacity, two % log_layout::kEntryCapacity);
  EXPECT_EQ(stage(two), CollectiveStage::enqueued);
  look();  // asks both: the old one has no slot any more
  EXPECT_EQ(stage(two), CollectiveStage::waiting_for_stream);
  EXPECT_EQ(record(two).reached_ns, 0);
}

TEST(DeviceProgress, TheLogMayEndWhileADeviceIsStuck) {
  struct Gate {
    std::mutex mutex;
    std::condition_variable changed;
    bool asked = false, stuck = true, gone = false;
  };
  const auto gate = std::make_shared<Gate>();
  {
    CollectiveLog log("", 0, 2);
    const uint32_t group = log.add_group("default", {0, 1}, 0, 0);
    const uint64_t entry = log.begin(group, 1, {.op = CollectiveOp::barrier, .flags = log_layout::kOnDevice});
    log.device_progress().add(entry, {group, -1}, {.reached = {}, .end = [gate] {
                                                     std::unique_lock lock(gate->mutex);
                                                     gate->asked = true;
                                                     gate->changed.notify_all();
                                                     gate->changed.wait(lock, [&] { return !gate->stuck; });
                                                     gate->gone = true;
                                                     gate->changed.notify_all();
                                                     return StreamEnd::done;
                                                   }});
    EXPECT_FALSE(log.device_progress().look(std::chrono::milliseconds(1)));
    std::unique_lock lock(gate->mutex);
    gate->changed.wait(lock, [&] { return gate->asked; });
  }
  std::unique_lock lock(gate->mutex);
  gate->stuck = false;
  gate->changed.notify_all();
  gate->changed.wait(lock, [&] { return gate->gone; });
}

}  // namespace
}  // namespace lockstep::dist

// Collectives of tensors on a device, in the log: through the watched backend, with a device and a transport that stand
// in for real ones. A stream of this device has passed an event when the test says so.
#include <ATen/ATen.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "collectives/watch/call_context.h"
#include "collectives/watch/stream_mark.h"
#include "collectives/watch/watched_backend.h"
#include "collectives/watch/watched_group.h"

namespace lockstep::dist {
namespace {

/// The stream: events in the order of their recording, of which it has passed the first ones.
struct Stream {
  std::mutex mutex;
  int recorded = 0, passed = 0;
  bool lost = false;  // the device has failed
};
Stream& the_stream() {
  static Stream stream;
  return stream;
}
void pass(int events) {
  const std::lock_guard lock(the_stream().mutex);
  the_stream().passed += events;
}
int recorded() {
  const std::lock_guard lock(the_stream().mutex);
  return the_stream().recorded;
}

class StandIn : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::DeviceType::PrivateUse1; }
  c10::Device exchangeDevice(c10::Device) const override { return getDevice(); }
  c10::Device getDevice() const override { return {c10::DeviceType::PrivateUse1, 0}; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device device) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void** event, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {
    const std::lock_guard lock(the_stream().mutex);
    if (the_stream().lost) throw std::runtime_error("the device is lost");
    *event = new int(++the_stream().recorded);
  }
  bool queryEvent(void* event) const override {
    const std::lock_guard lock(the_stream().mutex);
    if (the_stream().lost) throw std::runtime_error("the device is lost");
    return *static_cast<int*>(event) <= the_stream().passed;
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { delete static_cast<int*>(event); }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, StandIn);

/// Work as NCCL's process group gives it out: a wait returns at once, the future is complete from the start, and the
/// end is reported by another one.
class QueuedWork : public c10d::Work {
 public:
  QueuedWork() : future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {
    future_->markCompleted(std::vector<at::Tensor>());
  }
  void report(c10d::WorkResult result) {
    done = result == c10d::WorkResult::SUCCESS;
    if (!done) error = std::make_exception_ptr(std::runtime_error("aborted"));
    end_->markCompleted(c10::IValue(static_cast<int64_t>(result)));
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override { return end_; }
  bool wait(std::chrono::milliseconds) override { return true; }
  void synchronize() override {}
  bool isCompleted() override { return done || error; }
  bool isSuccess() const override { return done; }
  std::exception_ptr exception() const override { return error; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

  std::atomic<bool> done = false;
  std::exception_ptr error;

 private:
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
  const c10::intrusive_ptr<c10::ivalue::Future> end_ = c10::make_intrusive<c10::ivalue::Future>(c10::AnyType::get());
};

class QueuedTransport : public c10d::Backend {
 public:
  QueuedTransport() : c10d::Backend(0, 2) {}
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>&, const c10d::AllreduceOptions&) override {
    works.push_back(c10::make_intrusive<QueuedWork>());
    marks_before.push_back(recorded());
    return works.back();
  }
  c10d::ErrorType getError() override { return c10d::ErrorType::SUCCESS; }

  std::vector<c10::intrusive_ptr<QueuedWork>> works;
  std::vector<int> marks_before;  // events on the stream when the call came
};

class StreamStages : public testing::Test {
 protected:
  StreamStages() {
    register_backend("queued", c10::DeviceType::PrivateUse1, [](const GroupDescription&) { return nullptr; });
    {
      const std::lock_guard lock(the_stream().mutex);
      the_stream().recorded = the_stream().passed = 0;
      the_stream().lost = false;
    }
    group_ = std::make_shared<WatchedGroup>(WatchedGroup::Identity{.name = "default",
                                                                   .number = 0,
                                                                   .ranks = {0, 1},
                                                                   .group_rank = 0,
                                                                   .backend = "cpu:gloo,privateuseone:queued",
                                                                   .timeout = std::chrono::seconds(60)},
                                            log_, std::make_shared<HangWatch>(log_->mapping()),
                                            std::make_shared<AbortFlag>(), /*check=*/false);
    backend_ = c10::make_intrusive<WatchedBackend>(group_);
    backend_->set_transport(transport_);
    group_->connected({}, 0, 1);
  }

  /// A tensor whose memory nobody touches.
  static at::Tensor on_device() {
    static float memory[4];
    return at::for_blob(memory, {4})
        .options(at::TensorOptions().dtype(at::kFloat).device(c10::Device(c10::DeviceType::PrivateUse1, 0)))
        .target_device(c10::Device(c10::DeviceType::PrivateUse1, 0))
        .make_tensor();
  }

  c10::intrusive_ptr<c10d::Work> all_reduce(const at::Tensor& tensor, bool async = false) {
    const CallContext context(nullptr);
    std::vector<at::Tensor> tensors{tensor};
    c10d::AllreduceOptions options;
    options.asyncOp = async;
    return backend_->allreduce(tensors, options);
  }

  CollectiveRecord newest() {
    EXPECT_TRUE(log_->device_progress().look(std::chrono::seconds(60)));
    return CollectiveLogReader(log_->mapping()).last(1).at(0);
  }

  const std::shared_ptr<CollectiveLog> log_ = std::make_shared<CollectiveLog>("", 0, 2);
  std::shared_ptr<WatchedGroup> group_;
  c10::intrusive_ptr<WatchedBackend> backend_;
  const c10::intrusive_ptr<QueuedTransport> transport_ = c10::make_intrusive<QueuedTransport>();
};

TEST_F(StreamStages, ACallIsMarkedOnItsStreamBeforeTheTransportGetsIt) {
  const auto work = all_reduce(on_device());
  EXPECT_EQ(transport_->marks_before.at(0), 1);
  EXPECT_EQ(newest().stage(), CollectiveStage::waiting_for_stream);
  pass(1);
  EXPECT_EQ(newest().stage(), CollectiveStage::started);
}

TEST_F(StreamStages, AWaitThatReturnsAtOnceIsNotTheEnd) {
  const auto work = all_reduce(on_device());
  work->wait();
  EXPECT_EQ(newest().stage(), CollectiveStage::waiting_for_stream);
  pass(1);
  EXPECT_EQ(newest().stage(), CollectiveStage::started);
  transport_->works.at(0)->report(c10d::WorkResult::SUCCESS);
  EXPECT_EQ(newest().stage(), CollectiveStage::done);
}

TEST_F(StreamStages, AfterAWaitTheWorkIsNotKept) {
  all_reduce(on_device())->wait();
  EXPECT_EQ(transport_->works.at(0).use_count(), 1u);
}

TEST_F(StreamStages, AFutureThatIsCompleteFromTheStartIsNotTheEnd) {
  const auto work = all_reduce(on_device(), /*async=*/true);
  EXPECT_EQ(newest().stage(), CollectiveStage::waiting_for_stream);
  pass(1);
  EXPECT_EQ(newest().stage(), CollectiveStage::started);
  transport_->works.at(0)->report(c10d::WorkResult::SUCCESS);
  EXPECT_EQ(newest().stage(), CollectiveStage::done) << "nobody has waited";
}

TEST_F(StreamStages, WorkWithAnErrorHasFailed) {
  const auto work = all_reduce(on_device(), /*async=*/true);
  transport_->works.at(0)->report(c10d::WorkResult::COMM_ERROR);
  EXPECT_EQ(newest().stage(), CollectiveStage::failed);
}

TEST_F(StreamStages, TheSecondOfTwoIsReadyAndNotStarted) {
  const auto first = all_reduce(on_device()), second = all_reduce(on_device());
  pass(2);
  EXPECT_EQ(newest().stage(), CollectiveStage::ready);
  transport_->works.at(0)->report(c10d::WorkResult::SUCCESS);
  EXPECT_EQ(newest().stage(), CollectiveStage::started);
}

TEST_F(StreamStages, ALostDeviceFailsWhatIsInFlight) {
  const auto work = all_reduce(on_device());
  work->wait();
  {
    const std::lock_guard lock(the_stream().mutex);
    the_stream().lost = true;
  }
  EXPECT_EQ(newest().stage(), CollectiveStage::failed);
  EXPECT_FALSE(mark_stream(c10::Device(c10::DeviceType::PrivateUse1, 0))) << "the call itself reports the loss";
}

TEST_F(StreamStages, AStreamThatIsBeingCapturedHasNoMark) {
  set_stream_capture_query([](c10::Device) { return true; });
  const auto work = all_reduce(on_device());
  EXPECT_EQ(recorded(), 0);
  EXPECT_EQ(newest().stage(), CollectiveStage::done) << "nothing reports the end of what a graph replays";
  set_stream_capture_query(nullptr);
}

TEST_F(StreamStages, ACallOfTheHostHasNoMarkAndIsDoneWhenItsWaitReturns) {
  const auto work = all_reduce(at::zeros({4}));
  EXPECT_EQ(recorded(), 0);
  EXPECT_EQ(newest().stage(), CollectiveStage::entered);
  work->wait();
  EXPECT_EQ(newest().stage(), CollectiveStage::done);
  EXPECT_EQ(log_->device_progress().in_flight(), 0u);
}

}  // namespace
}  // namespace lockstep::dist

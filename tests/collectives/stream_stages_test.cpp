// Collectives of tensors on a device, in the log: through the watched backend, with a device and a transport that stand
// in for real ones. A stream of this device has passed an event when the test says so.
#include <ATen/ATen.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "collectives/dist.h"
#include "collectives/watch/call_context.h"
#include "collectives/watch/stream_mark.h"
#include "collectives/watch/watched_backend.h"
#include "collectives/watch/watched_group.h"
#include "tests/support/spawn_ranks.h"

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

/// Two devices. As on CUDA, a thread's is 0 at first, and making one current makes a context on it.
class StandIn : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::DeviceType::PrivateUse1; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {c10::DeviceType::PrivateUse1, current}; }
  void setDevice(c10::Device device) const override {
    if (device.index() != current) has_context.at(static_cast<size_t>(device.index())) = true;
    current = device.index();
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (has_context.at(static_cast<size_t>(device.index()))) current = device.index();
  }
  c10::Stream getStream(c10::Device device) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return 2; }
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
  void destroyEvent(void* event, c10::DeviceIndex device) const noexcept override {
    const c10::Device before = getDevice();
    setDevice({c10::DeviceType::PrivateUse1, device});
    delete static_cast<int*>(event);
    setDevice(before);
  }

  static inline thread_local c10::DeviceIndex current = 0;
  static inline std::array<std::atomic<bool>, 2> has_context;
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

  // As ProcessGroupNCCL: the operations of a batch have no works.
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override { calls.push_back("start"); }
  c10::intrusive_ptr<c10d::Work> endCoalescing() override {
    calls.push_back("end");
    works.push_back(c10::make_intrusive<QueuedWork>());
    return works.back();
  }
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int, int) override {
    return message("send", tensors[0]);
  }
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int, int) override {
    return message("recv", tensors[0]);
  }
  c10::intrusive_ptr<c10d::Work> message(const std::string& call, const at::Tensor& tensor) {
    calls.push_back(call + (tensor.is_cpu() ? " of the host" : ""));
    if (call == fails) throw std::runtime_error("refused");
    if (calls.front() == "start" && calls.back() != "end" && !tensor.is_cpu()) return nullptr;
    works.push_back(c10::make_intrusive<QueuedWork>());
    return works.back();
  }

  std::vector<std::string> calls;  // of batches and messages
  std::string fails;
  std::vector<c10::intrusive_ptr<QueuedWork>> works;
  std::vector<int> marks_before;  // events on the stream when the call came
};

class StreamStages : public ::testing::Test {
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

  CollectiveRecord newest() { return last(1).at(0); }
  std::vector<CollectiveRecord> last(size_t count) {
    EXPECT_TRUE(log_->device_progress().look(std::chrono::seconds(60)));
    return CollectiveLogReader(log_->mapping()).last(count);
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

TEST_F(StreamStages, AnEventThatAnotherThreadEndsMakesNoContextOnTheFirstDevice) {
  std::thread([] {  // of a rank whose device is the second
    const c10::Device second(c10::DeviceType::PrivateUse1, 1);
    StandIn().setDevice(second);
    std::thread([mark = mark_stream(second)]() mutable { mark = nullptr; }).join();
  })
      .join();
  EXPECT_TRUE(StandIn::has_context[1]);
  EXPECT_FALSE(StandIn::has_context[0]);
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

using Calls = std::vector<std::string>;

TEST_F(StreamStages, MessagesOfABatchAreOneOperationOfTheTransport) {
  std::vector<at::Tensor> sent{on_device()}, received{on_device()};
  backend_->startCoalescing();
  EXPECT_FALSE(backend_->send(sent, 1, 0)) << "as NCCL: the end has the work";
  EXPECT_FALSE(backend_->recv(received, 1, 0));
  EXPECT_EQ(transport_->calls, Calls()) << "a call that throws now leaves nothing open";
  const auto work = backend_->endCoalescing();
  EXPECT_EQ(transport_->calls, Calls({"start", "send", "recv", "end"}));
  work->wait();
  pass(2);
  EXPECT_EQ(last(2)[0].stage(), CollectiveStage::started);
  transport_->works.at(0)->report(c10d::WorkResult::SUCCESS);
  const auto records = last(10);
  ASSERT_EQ(records.size(), 2U) << "and no collective, which the ranks outside would miss";
  EXPECT_EQ(records[0].op, op_name(CollectiveOp::send));
  EXPECT_EQ(records[1].op, op_name(CollectiveOp::recv));
  for (const CollectiveRecord& each : records) EXPECT_EQ(each.stage(), CollectiveStage::done);
  EXPECT_EQ(group_->seq(), 0);
  EXPECT_EQ(work->result().size(), 2U);
}

TEST_F(StreamStages, CollectivesOfABatchAreOneCollective) {
  backend_->startCoalescing();
  EXPECT_FALSE(all_reduce(on_device()));
  EXPECT_FALSE(all_reduce(on_device()));
  EXPECT_TRUE(transport_->works.empty());
  const auto work = backend_->endCoalescing();
  EXPECT_EQ(newest().op, op_name(CollectiveOp::coalesced));
  EXPECT_EQ(group_->seq(), 3);
  transport_->works.back()->report(c10d::WorkResult::SUCCESS);
  for (const CollectiveRecord& each : last(3)) EXPECT_EQ(each.stage(), CollectiveStage::done);
}

TEST_F(StreamStages, MessagesOfTheHostBeginAtOnceAndTheBatchWaitsForThem) {
  std::vector<at::Tensor> sent{at::zeros({4})}, received{at::zeros({4})};
  backend_->startCoalescing();
  EXPECT_TRUE(backend_->send(sent, 1, 0));
  EXPECT_TRUE(backend_->recv(received, 1, 0));
  const auto work = backend_->endCoalescing();
  EXPECT_EQ(transport_->calls, Calls({"send of the host", "recv of the host"}));
  ASSERT_TRUE(work) << "Python waits for it";
  work->wait();
  for (const CollectiveRecord& each : last(2)) EXPECT_EQ(each.stage(), CollectiveStage::done);
}

TEST_F(StreamStages, ABatchOfWhichTheTransportRefusesOneIsClosed) {
  std::vector<at::Tensor> sent{on_device()};
  transport_->fails = "send";
  backend_->startCoalescing();
  backend_->send(sent, 1, 0);
  backend_->send(sent, 1, 0);
  EXPECT_THROW(backend_->endCoalescing(), Error);
  EXPECT_EQ(transport_->calls, Calls({"start", "send", "end"})) << "later operations would wait in an open one";
  for (const CollectiveRecord& each : last(2)) EXPECT_EQ(each.stage(), CollectiveStage::failed);
}

TEST_F(StreamStages, ACallThatThrowsEndsItsBatch) {
  std::vector<at::Tensor> sent{on_device()};
  backend_->startCoalescing();
  backend_->send(sent, 1, 0);
  EXPECT_THROW(backend_->send(sent, 0, 0), ArgumentError) << "to itself";
  EXPECT_EQ(newest().stage(), CollectiveStage::failed);
  EXPECT_EQ(transport_->calls, Calls());
  EXPECT_TRUE(all_reduce(on_device())) << "belongs to no batch";
}

/// The transport above, beside Gloo.
class QueuedConnector : public BackendConnector {
 public:
  explicit QueuedConnector(c10::intrusive_ptr<QueuedTransport> transport) : transport_(std::move(transport)) {}
  std::string announcement() override { return "queued"; }
  c10::intrusive_ptr<c10d::Backend> connect(const c10::intrusive_ptr<c10d::Store>&, const std::vector<std::string>&,
                                            std::chrono::milliseconds) override {
    return transport_;
  }
  void interrupt() noexcept override {}
  bool is_transport_error(const std::exception_ptr&) const noexcept override { return false; }
  bool lost_connection() const noexcept override { return false; }

 private:
  const c10::intrusive_ptr<QueuedTransport> transport_;
};

TEST_F(StreamStages, BatchIsendIrecvIsOneOperationOfADevice) {
  const c10::intrusive_ptr<QueuedTransport> transports[] = {c10::make_intrusive<QueuedTransport>(),
                                                            c10::make_intrusive<QueuedTransport>()};
  register_backend("queued", c10::DeviceType::PrivateUse1, [&](const GroupDescription& group) {
    return std::make_unique<QueuedConnector>(transports[group.group_rank]);
  });
  testing::spawn_ranks(
      2,
      [&](int rank, int) {
        const at::Tensor on_host = at::full({2}, 1.0 * rank), from_host = at::zeros({2});
        const auto works = batch_isend_irecv({P2POp(isend, on_device(), 1 - rank), P2POp(irecv, on_device(), 1 - rank),
                                              P2POp(isend, on_host, 1 - rank), P2POp(irecv, from_host, 1 - rank)});
        ASSERT_EQ(works.size(), 4U);
        for (const Work& each : works) each.wait();
        EXPECT_EQ(from_host[0].item<double>(), 1 - rank);
        EXPECT_EQ(transports[rank]->calls, Calls({"start", "send", "recv", "end"}));
        transports[rank]->works.back()->report(c10d::WorkResult::SUCCESS);
      },
      {.backend = "cpu:gloo,privateuseone:queued"});
}

}  // namespace
}  // namespace lockstep::dist

#include "inspectors/trace/backward_clock.h"

#include <ATen/record_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

namespace lockstep::inspect {
namespace {

thread_local BackwardClock* own_clock = nullptr;
std::atomic<BackwardClock*> any_clock = nullptr;  // for nodes on LibTorch's threads

BackwardClock* clock_here() { return own_clock ? own_clock : any_clock.load(); }

}  // namespace

BackwardClock::BackwardClock(std::optional<c10::Device> device) : device_(device) {
  own_clock = this;
  any_clock = this;
  // LibTorch passes thread-local callbacks on to the threads that run the graph.
  callback_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> {
        if (BackwardClock* clock = clock_here()) clock->node_begins();
        return nullptr;
      }).scopes({at::RecordScope::BACKWARD_FUNCTION}));
}

BackwardClock::~BackwardClock() {
  at::removeCallback(callback_);
  own_clock = nullptr;
  BackwardClock* self = this;
  any_clock.compare_exchange_strong(self, nullptr);
}

void BackwardClock::reset() {
  const std::lock_guard lock(mutex_);
  begin_.reset();
  end_.reset();
  task_ = -1;
}

void BackwardClock::node_begins() {
  const int task = torch::autograd::get_current_graph_task_id();
  if (task_.exchange(task) == task) return;
  {
    const std::lock_guard lock(mutex_);
    if (!begin_) begin_.emplace(device_);
  }
  // Called on the streams that are current where the program called backward, which wait for all of its nodes by then.
  torch::autograd::Engine::get_default_engine().queue_callback([this] { backward_ends(); });
}

void BackwardClock::backward_ends() {
  const std::lock_guard lock(mutex_);
  end_.reset();
  end_.emplace(device_);
}

}  // namespace lockstep::inspect

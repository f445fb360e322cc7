#include "inspectors/trace/backward_clock.h"

#include <ATen/record_function.h>

#include <algorithm>

#include "collectives/log/collective_log.h"

namespace lockstep::inspect {
namespace {

thread_local BackwardClock* own_clock = nullptr;
std::atomic<BackwardClock*> any_clock = nullptr;  // for nodes on LibTorch's threads

BackwardClock* clock_here() { return own_clock ? own_clock : any_clock.load(); }

}  // namespace

BackwardClock::BackwardClock() {
  own_clock = this;
  any_clock = this;
  // LibTorch passes thread-local callbacks on to the threads that run the graph.
  callback_ = at::addThreadLocalCallback(at::RecordFunctionCallback(
                                             [](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> {
                                               if (BackwardClock* clock = clock_here())
                                                 clock->node_begins(dist::monotonic_ns());
                                               return nullptr;
                                             },
                                             [](const at::RecordFunction&, at::ObserverContext*) {
                                               if (BackwardClock* clock = clock_here())
                                                 clock->node_ends(dist::monotonic_ns());
                                             })
                                             .scopes({at::RecordScope::BACKWARD_FUNCTION}));
}

BackwardClock::~BackwardClock() {
  at::removeCallback(callback_);
  own_clock = nullptr;
  BackwardClock* self = this;
  any_clock.compare_exchange_strong(self, nullptr);
}

void BackwardClock::reset() {
  begin_ns_ = std::numeric_limits<int64_t>::max();
  end_ns_ = 0;
}

void BackwardClock::node_begins(int64_t now) {
  int64_t seen = begin_ns_;
  while (now < seen && !begin_ns_.compare_exchange_weak(seen, now)) {
  }
}

void BackwardClock::node_ends(int64_t now) {
  int64_t seen = end_ns_;
  while (now > seen && !end_ns_.compare_exchange_weak(seen, now)) {
  }
}

}  // namespace lockstep::inspect

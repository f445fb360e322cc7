#include "inspectors/timing/operator_events.h"

#include <ATen/record_function.h>

#include "collectives/log/collective_log.h"
#include "collectives/rank_context.h"
#include "collectives/watch/spelling.h"
#include "inspectors/timing/timeline.h"
#include "protocol/error.h"

namespace lockstep::inspect {
namespace {

struct Recording {
  std::shared_ptr<OperatorEvents> events;
  bool running = false;
};
Recording& own_recording() {
  static thread_local Recording recording;
  return recording;
}

/// Passes from the begin of an operator to its end.
struct Context : at::ObserverContext {
  int64_t begin_ns = 0;
};

// Guards operators on LibTorch's threads.
std::mutex any_mutex;
std::weak_ptr<OperatorEvents> any_events;

std::shared_ptr<OperatorEvents> events_here() {
  if (own_recording().running) return own_recording().events;
  const std::lock_guard lock(any_mutex);
  return any_events.lock();
}

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction&) {
  auto context = std::make_unique<Context>();
  context->begin_ns = dist::monotonic_ns();
  return context;
}

void end(const at::RecordFunction& function, at::ObserverContext* context) {
  const int64_t now = dist::monotonic_ns();
  if (!context) return;
  if (const auto events = events_here())
    events->add(function.name(), {.thread = static_cast<uint32_t>(at::RecordFunction::currentThreadId()),
                                  .backward = function.scope() == at::RecordScope::BACKWARD_FUNCTION,
                                  .begin_ns = static_cast<Context*>(context)->begin_ns,
                                  .end_ns = now});
}

/// Turns the recording on or off for all groups that there are.
void record_device_spans(bool on) {
  const auto context = dist::current_context();
  if (!context) return;
  for (const dist::GroupEntry& entry : context->entries()) {
    if (!entry.group->member()) continue;
    if (on)
      entry.group->device_spans().turn_on();
    else
      entry.group->device_spans().turn_off();
  }
}

}  // namespace

void OperatorEvents::add(const char* name, OperatorEvent event) {
  const std::lock_guard lock(mutex);
  if (events.size() >= kMost) {
    ++left_out;
    return;
  }
  const auto [index, is_new] = indices_.try_emplace(name, static_cast<uint32_t>(names.size()));
  if (is_new) names.push_back(index->first);
  event.name = index->second;
  events.push_back(event);
}

std::shared_ptr<const OperatorEvents> recorded_operators() { return own_recording().events; }

OperatorRecording::OperatorRecording() {
  Recording& own = own_recording();
  if (own.running)
    throw Error(inspect_name("record_operators") + ": the operators of this thread are already recorded");
  own = {.events = std::make_shared<OperatorEvents>(), .running = true};
  {
    const std::lock_guard lock(any_mutex);
    any_events = own.events;
  }
  record_device_spans(true);
  callback_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(begin, end)
          .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION, at::RecordScope::USER_SCOPE}));
}

OperatorRecording::OperatorRecording(OperatorRecording&& other) noexcept
    : callback_(std::exchange(other.callback_, std::nullopt)) {}

OperatorRecording::~OperatorRecording() {
  if (!callback_) return;
  at::removeCallback(*callback_);
  record_device_spans(false);
  own_recording().running = false;
}

void set_operator_recording(bool on) {
  static thread_local std::optional<OperatorRecording> recording;
  if (on == recording.has_value()) return;
  if (on)
    recording.emplace();
  else
    recording.reset();
}

}  // namespace lockstep::inspect

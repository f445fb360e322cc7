#include "ddp/step/step_machine.h"

#include <string>

#include "protocol/error.h"

namespace lockstep::ddp::detail {
namespace {

const char* words_for(Phase phase) {
  switch (phase) {
    case Phase::kIdle:
      return "has no forward since the last reduction or reset";
    case Phase::kLocal:
      return "has a forward under no_sync";
    case Phase::kNotFound:
      return "has a forward without an output to search from";
    case Phase::kAnnounced:
      return "waits for a backward";
    case Phase::kEntered:
      return "is in a backward that has reached no parameter";
    case Phase::kBackward:
      return "is in a backward";
    case Phase::kPartial:
      return "has a backward that ended without a reduction";
  }
  return "is in an unknown phase";
}

const char* words_for(Event event) {
  switch (event) {
    case Event::kForwardLocal:
      return "a forward under no_sync";
    case Event::kForwardUnsearchable:
      return "a forward without an output to search from";
    case Event::kForwardReduced:
      return "a forward";
    case Event::kOutputs:
      return "a backward at the outputs";
    case Event::kGradient:
      return "a gradient";
    case Event::kLeftOpen:
      return "the end of a backward without a reduction";
    case Event::kReduced:
      return "the end of a reduction";
    case Event::kReducedStatic:
      return "the end of a reduction over a static graph";
    case Event::kReset:
      return "a reset";
  }
  return "an unknown event";
}

}  // namespace

std::optional<Phase> next_phase(Phase from, Event event) {
  switch (event) {
    case Event::kForwardLocal:
      return Phase::kLocal;
    case Event::kForwardUnsearchable:
      return Phase::kNotFound;
    case Event::kForwardReduced:
      return Phase::kAnnounced;
    case Event::kReset:
      return Phase::kIdle;
    case Event::kOutputs:
      if (from == Phase::kAnnounced) return Phase::kEntered;
      if (from == Phase::kPartial) return Phase::kBackward;
      return from;  // already running, or a backward over the graph of an earlier forward
    case Event::kGradient:
      if (awaits_reduction(from)) return Phase::kBackward;
      if (from == Phase::kLocal) return Phase::kLocal;
      return std::nullopt;
    case Event::kLeftOpen:
      if (from == Phase::kEntered) return Phase::kAnnounced;
      if (from == Phase::kBackward) return Phase::kPartial;
      return std::nullopt;
    case Event::kReduced:
      if (from == Phase::kBackward) return Phase::kIdle;
      return std::nullopt;
    case Event::kReducedStatic:
      if (from == Phase::kBackward) return Phase::kAnnounced;
      return std::nullopt;
  }
  return std::nullopt;
}

Transition StepMachine::transition(Event event) {
  Phase from = phase_;
  while (true) {
    const auto to = next_phase(from, event);
    if (!to) {
      throw StateError("DistributedDataParallel: " + std::string(words_for(event)) + " came while the step " +
                       words_for(from) + ". Call net.reset() and net.zero_grad() on every rank");
    }
    if (phase_.compare_exchange_weak(from, *to)) return {from, *to};
  }
}

}  // namespace lockstep::ddp::detail

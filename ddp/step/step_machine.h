// The step of a wrapper as a state machine: what the last forward announced, and how far the backward after it has
// come.
//
//   every phase ── kForwardReduced ──────> kAnnounced   the Reducer waits for gradients
//   every phase ── kForwardLocal ────────> kLocal       gradients stay on this rank: kGradient changes nothing
//   every phase ── kForwardUnsearchable ─> kNotFound    kGradient is an error
//   every phase ── kReset ───────────────> kIdle        kGradient is an error
//
//            kForwardReduced                 kOutputs
//   kIdle ───────────────────> kAnnounced ───────────────> kEntered
//     ^                         ^   |      <───────────────   |
//     |                         |   |          kLeftOpen      |
//     |          kReducedStatic |   | kGradient               | kGradient
//     |                         |   v                         |
//     └──────────────────────  kBackward <────────────────────┘
//            kReduced           |   ^
//                     kLeftOpen |   | kGradient, kOutputs
//                               v   |
//                              kPartial
//
// A forward that records no gradients is not an event. With a static graph, backward passes may nest, and the wrapper
// can't always see which one is the outermost, so the phase after a reduction is kAnnounced again. No LibTorch.
#pragma once
#include <atomic>
#include <optional>

namespace lockstep::ddp::detail {

enum class Phase {
  kIdle,  // no forward since the last reduction or reset
  kLocal,  // the last forward ran under no_sync
  kNotFound,  // find_unused_parameters found no output with a graph, so the Reducer was not prepared
  kAnnounced,  // the last forward announced a reduction
  kEntered,  // backward has passed the outputs of forward and reached no parameter yet
  kBackward,  // gradients arrive, and a callback waits for the end of backward
  kPartial,  // backward has ended without a reduction: it was nested in another one, or gradients are missing
};

enum class Event {
  kForwardLocal,
  kForwardUnsearchable,
  kForwardReduced,
  kOutputs,  // backward passes the outputs of forward
  kGradient,  // backward reaches a parameter
  kLeftOpen,  // backward ends without a reduction
  kReduced,  // backward ends, and every gradient is reduced
  kReducedStatic,  // the same with a static graph
  kReset,
};

/// Returns the phase after `event` in phase `from`; none if the event is illegal there. It is the whole table.
std::optional<Phase> next_phase(Phase from, Event event);

/// Whether a backward may come, reduced or local.
constexpr bool is_announced(Phase phase) { return phase != Phase::kIdle && phase != Phase::kNotFound; }
/// Whether the last forward announced a reduction, and it has not ended.
constexpr bool awaits_reduction(Phase phase) { return is_announced(phase) && phase != Phase::kLocal; }
/// Whether gradients have arrived since a reduction was announced.
constexpr bool has_gradients(Phase phase) { return phase == Phase::kBackward || phase == Phase::kPartial; }
/// Whether a callback waits for the end of a backward.
constexpr bool is_running(Phase phase) { return phase == Phase::kEntered || phase == Phase::kBackward; }

struct Transition {
  Phase from, to;
  /// Whether a backward begins, so that its end has to be awaited.
  bool starts_backward() const { return !is_running(from) && is_running(to); }
};

/// Events may come from several threads: autograd runs one a device.
class StepMachine {
 public:
  Phase phase() const { return phase_; }
  bool accepts(Event event) const { return next_phase(phase_, event).has_value(); }
  /// Takes the transition that the table has for `event`. Throws StateError if it has none, and stays in its phase.
  Transition transition(Event event);

 private:
  std::atomic<Phase> phase_ = Phase::kIdle;
};

}  // namespace lockstep::ddp::detail

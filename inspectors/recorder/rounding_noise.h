// Changes what operators return by what rounding changes. How far the values of a training move then shows what another
// order of additions explains (docs/compare.md#what-rounding-explains).
#pragma once
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>

namespace lockstep::inspect {

/// While it is on, each element that an operator of the thread returns is changed by half a unit in the last place of 1,
/// up or down, in forward and in backward. Left alone are integers, views, constants, random numbers, and what operators
/// that other operators call return. One at a time in a process.
class RoundingNoise {
 public:
  /// The changes depend on `number` and on the order of the operators.
  explicit RoundingNoise(int64_t number);
  ~RoundingNoise();  // on the thread on which it is on
  RoundingNoise(const RoundingNoise&) = delete;
  RoundingNoise& operator=(const RoundingNoise&) = delete;

  void set_on(bool on);

  // A key of LibTorch for functions that come before all others, autograd's too; nothing else has registered any for it.
  static constexpr auto kKey = c10::DispatchKey::TESTING_ONLY_GenericWrapper;
};

/// While it lives, nothing is changed on the calling thread.
struct WithoutRoundingNoise {
  c10::impl::ExcludeDispatchKeyGuard guard{RoundingNoise::kKey};
};

}  // namespace lockstep::inspect

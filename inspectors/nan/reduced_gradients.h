// Decides which rank names a gradient that is bad after the reduction, and so on every rank: the lowest one, if no rank
// has found a bad value of its own in the step. The ranks exchange this through the store.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "inspectors/nan/bad_value.h"

namespace lockstep::inspect {

// `serial` is the number of the step, by its first backward.

/// Announces that this rank names a bad value of its own.
void announce_bad_value(int64_t serial);

/// Whether this rank names the reduced gradient, where all ranks have checked theirs before the reduction began.
bool names_reduced_gradient(int64_t serial);

/// Reduced gradients that were checked on devices: a rank may read later than this one that its own gradient was bad
/// before. So each rank whose own was finite says so, and the lowest one waits for all of these, without blocking.
class LateReductions {
 public:
  using Publish = std::function<void(const BadValue&)>;

  void add(int64_t serial, BadValue found, const Publish& publish);
  /// Publishes what is decided. `last`: also what is not.
  void decide(bool last, const Publish& publish);

 private:
  struct Undecided {
    std::string key;
    BadValue found;
  };
  std::vector<Undecided> undecided_;
};

}  // namespace lockstep::inspect

// A rank as an argument of a collective, with the group in which it counts.
#pragma once
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace lockstep::dist {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

/// A plain int is a rank of the default group, as in torch.distributed. group_src(r), group_dst(r) and group_peer(r)
/// are ranks of the group of the call, as the arguments of these names are in torch.distributed: dist::broadcast(t,
/// dist::group_src(0), group).
class Rank {
 public:
  Rank(int rank) : value_(rank) {}
  static Rank of_group(int rank) {
    Rank result(rank);
    result.in_group_ = true;
    return result;
  }

  int value() const { return value_; }
  /// Whether it counts in the group of the call.
  bool in_group() const { return in_group_; }

 private:
  int value_;
  bool in_group_ = false;
};

inline Rank group_src(int rank) { return Rank::of_group(rank); }
inline Rank group_dst(int rank) { return Rank::of_group(rank); }
inline Rank group_peer(int rank) { return Rank::of_group(rank); }

}  // namespace lockstep::dist

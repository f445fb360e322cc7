// What ranks have called as each number of each group, as far as it is known: which calls are new, and which differ
// from those of other ranks?
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>

#include "collectives/log/new_calls.h"

namespace lockstep::shell {

class CallTable {
 public:
  enum class Seen { first, again, differs };

  /// A call that another one has taken the place of, 1,024 numbers later, counts as seen again.
  Seen add(const dist::NewCall& call) {
    Group& group = groups_[call.incarnation];
    if (!group.calls) group.calls = std::make_unique<Calls>();
    group.used = ++uses_;
    if (groups_.size() > kMostGroups) forget_oldest();
    Call& known = (*group.calls)[static_cast<uint64_t>(call.seq) % kCalls];
    if (known.seq > call.seq) return Seen::again;
    if (known.seq == call.seq) return known.signature == call.signature ? Seen::again : Seen::differs;
    known = {call.seq, call.signature};
    return Seen::first;
  }

 private:
  static constexpr size_t kCalls = 1024, kMostGroups = 512;  // 16 KB each
  struct Call {
    int64_t seq = 0;
    uint64_t signature = 0;
  };
  using Calls = std::array<Call, kCalls>;
  struct Group {
    std::unique_ptr<Calls> calls;
    uint64_t used = 0;
  };

  void forget_oldest() {
    auto oldest = groups_.begin();
    for (auto each = groups_.begin(); each != groups_.end(); ++each)
      if (each->second.used < oldest->second.used) oldest = each;
    groups_.erase(oldest);
  }

  std::map<uint64_t, Group> groups_;  // by incarnation
  uint64_t uses_ = 0;
};

}  // namespace lockstep::shell

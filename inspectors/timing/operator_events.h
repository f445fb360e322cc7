// Records the operators that a thread has run, with their times, for a timeline.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace lockstep::inspect {

struct OperatorEvent {
  uint32_t name = 0;  // index in the table of names
  uint32_t thread = 0;  // LibTorch's number
  bool backward = false;
  int64_t begin_ns = 0, end_ns = 0;  // CLOCK_MONOTONIC
};

class OperatorEvents {
 public:
  static constexpr size_t kMost = 500'000;

  void add(const char* name, OperatorEvent event);

  mutable std::mutex mutex;  // of all below
  std::vector<OperatorEvent> events;
  std::vector<std::string> names;
  int64_t left_out = 0;

 private:
  std::unordered_map<std::string, uint32_t> indices_;  // of names
};

/// Returns the operators of the calling thread's recording, the running one or the last; null without any.
std::shared_ptr<const OperatorEvents> recorded_operators();

}  // namespace lockstep::inspect

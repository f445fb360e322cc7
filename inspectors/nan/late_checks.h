// Checks of values on the device that holds them, on the stream that made them, while the host goes on. The host reads
// the results when they have arrived.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "inspectors/device/late_flag.h"
#include "inspectors/nan/bad_value.h"

namespace lockstep::inspect {

class LateChecks {
 public:
  struct Bad {
    WatchedValue value;
    int64_t serial = 0;
    int64_t step = 0;
  };

  /// Takes a tensor into the next launch. Returns false where its device can't check it. `serial` is that of the step.
  bool add(const at::Tensor& tensor, WatchedValue value, int64_t serial);
  void add(const at::Tensor& values, WatchedValue value, c10::Stream stream, int64_t serial);
  /// Returns the entry of a written parameter in the next launch; null: it has none.
  WatchedValue* next_update_of(const at::Tensor& parameter);
  bool has_next() const { return !next_.tensors.empty(); }
  /// Queues the checks of what was added, before it is overwritten.
  void launch(int64_t serial);

  /// Keeps the steps, as the user counts them, of all checks that are queued.
  void note_steps(const std::function<int64_t(const WatchedValue&)>& step_of);
  /// Passes the first bad value of each check that has arrived to `take`; with `all`, waits for every check. Their
  /// steps have to be noted before.
  void read(bool all, const std::function<void(const Bad&)>& take);

 private:
  /// Values of one stream that are checked by one launch.
  struct Batch {
    static constexpr size_t kMostTensors = 128;
    static constexpr size_t kMostBytes = size_t{64} << 20;  // of gradients that are kept alive until the launch

    std::optional<c10::Stream> stream;
    std::vector<at::Tensor> tensors;
    std::vector<WatchedValue> values;  // as many
    size_t bytes = 0;

    bool full() const { return tensors.size() >= kMostTensors || bytes >= kMostBytes; }
  };
  struct Queued {
    LateFlag flag;
    std::vector<WatchedValue> values;
    int64_t serial;
    std::vector<int64_t> steps;  // as many, or none yet
  };

  Batch next_;
  std::deque<Queued> queued_;
};

}  // namespace lockstep::inspect

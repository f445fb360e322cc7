// memory: what holds it? Tensors by the name of what they belong to, the process and LibTorch's allocators; and, while it is
// watched, the peak of each cell and what is kept from step to step.
//
//   inspect::memory({inspect::named_memory("net", net), inspect::named_memory("optimizer", optimizer)});      // on every rank
//   auto watching = inspect::watch_memory();      // from here on, allocations of this thread's work are counted
#pragma once
#include <torch/torch.h>

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "inspectors/exchange/report.h"
#include "inspectors/subject/subject.h"

namespace lockstep::inspect {

/// The tensors of one name, by kind: "parameter", "gradient", "buffer", "state", "tensor".
struct NamedMemory {
  std::string name;
  std::vector<std::pair<std::string, at::Tensor>> tensors;
};

struct MemoryOptions {
  /// The ranks that tell, each of which must call. Unset: all that are alive.
  TORCH_ARG(std::optional<RankSet>, ranks) = std::nullopt;
  TORCH_ARG(std::chrono::milliseconds, deadline) = std::chrono::seconds(10);
  TORCH_ARG(bool, publish) = true;
};

/// Memory of one name and kind. A storage that several names share is counted where it comes first.
struct TensorMemory {
  std::string name, kind, device;
  int64_t tensors = 0, bytes = 0;
};

/// What an allocator of LibTorch's did while one cell ran (or, in a program, all of it).
struct PeriodMemory {
  int64_t cell = 0;
  int64_t allocations = 0, allocated = 0;  // in all
  int64_t peak = 0;  // above what was held when the watch began
  int64_t kept = 0;  // allocated and not given back within the period; negative where more was given back
};

struct WatchedMemory {
  std::vector<PeriodMemory> cells;  // in the order in which they ran
  int64_t steps = 0;  // of inspect::step, while it watched
  std::optional<int64_t> growth_per_step;  // the middle one of the last steps; unset below three steps
};

struct RankMemory {
  int rank = 0;
  int64_t resident = 0, peak_resident = 0;  // of the process: VmRSS, VmHWM
  int64_t heap_used = 0, heap_free = 0;  // glibc's malloc, from which CPU tensors come: in use; kept for later
  std::optional<int64_t> device_allocated, device_reserved, device_peak;  // of the current GPU, where there is one
  std::vector<TensorMemory> tensors;
  std::optional<WatchedMemory> watched;
};

struct MemoryReport : Report {
  std::vector<RankMemory> ranks;  // by place
};

/// Ranks side by side.
std::ostream& operator<<(std::ostream& out, const MemoryReport& report);

/// Collective over the options' ranks, over connections of its own.
MemoryReport memory(const std::vector<NamedMemory>& named = {}, const MemoryOptions& options = {});

/// Counts allocations of LibTorch on the thread that made it, and on the threads that work for it (backward), while it lives. CPU
/// allocations are counted with LibTorch's own memory reports, so not under a profiler that asks for them itself; a block from
/// before is not counted when it is freed. One at a time for a thread: throws std::logic_error for a second one.
class [[nodiscard]] MemoryWatch {
 public:
  MemoryWatch();
  ~MemoryWatch();
  MemoryWatch(MemoryWatch&&) noexcept = default;
  MemoryWatch& operator=(MemoryWatch&&) = delete;
  WatchedMemory counted() const;

 private:
  struct Counter;
  std::shared_ptr<Counter> counter_;
  friend std::optional<WatchedMemory> watched_memory();
};
inline MemoryWatch watch_memory() { return {}; }
/// What the thread's watch has counted. Nothing without one.
std::optional<WatchedMemory> watched_memory();
/// For a session, where no variable need hold it: watches on this thread until it is turned off.
void set_memory_watch(bool on);

namespace detail {

/// Whether describe_any can take a T apart, and may find tensors in it.
template <typename T>
constexpr bool has_tensors() {
  if constexpr (std::derived_from<T, ddp::DistributedModule> || std::derived_from<T, torch::nn::Module> ||
                std::derived_from<T, torch::optim::Optimizer> || std::derived_from<T, at::Tensor> ||
                std::same_as<T, torch::nn::AnyModule> || Holder<T> || WithModule<T>)
    return true;
  else if constexpr (Value<T> || std::is_enum_v<T>)
    return false;
  else if constexpr (OrderedDictionary<T>)
    return has_tensors<std::remove_cvref_t<decltype(std::declval<const T&>().begin()->value())>>();
  else if constexpr (Dictionary<T>)
    return has_tensors<typename T::mapped_type>();
  else if constexpr (std::ranges::range<const T>)
    return has_tensors<std::remove_cvref_t<std::ranges::range_value_t<const T>>>();
  else if constexpr (std::is_function_v<std::remove_pointer_t<T>>)
    return false;
  else if constexpr (Pointer<T>)
    return has_tensors<std::remove_cvref_t<decltype(*std::declval<const T&>())>>();
  else
    return false;
}

void add_gradients(NamedMemory& memory, const std::vector<at::Tensor>& parameters);

}  // namespace detail

/// The tensors of a module, a wrapper, an optimizer, a tensor or a container of these; none of anything else. Local, copies none.
template <typename T>
NamedMemory named_memory(std::string name, const T& object) {
  NamedMemory memory{std::move(name), {}};
  if constexpr (detail::has_tensors<T>()) {
    for (Item& item : subject_of(object, memory.name).items)
      if (item.tensor.defined()) memory.tensors.emplace_back(std::move(item.kind), std::move(item.tensor));
    if constexpr (std::derived_from<T, ddp::DistributedModule> || std::derived_from<T, torch::nn::Module>)
      detail::add_gradients(memory, object.parameters());
    else if constexpr (detail::Holder<T>)
      detail::add_gradients(memory, object.ptr()->parameters());
    else if constexpr (std::derived_from<T, at::Tensor>)
      detail::add_gradients(memory, {object});
  }
  return memory;
}

}  // namespace lockstep::inspect

// memory says what uses it: tensors by the names of their owners, the process, the device and LibTorch's allocators;
// during a watch also the peak of each cell and the growth from step to step.
//
//   // On every rank:
//   inspect::memory({inspect::named_memory("net", net), inspect::named_memory("optimizer", optimizer)});
//   auto watching = inspect::watch_memory();      // counts allocations of this thread from here on
#pragma once
#include <c10/core/Device.h>
#include <torch/torch.h>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "inspectors/exchange/report.h"
#include "inspectors/memory/facts.h"
#include "inspectors/subject/subject.h"

namespace lockstep::inspect {

struct NamedTensor {
  std::string kind;  // "parameter", "gradient", "buffer", "bucket", "state", "tensor"
  at::Tensor tensor;
  std::string name;  // within its owner: "fc1.weight", "0.exp_avg"; empty for a tensor without an owner
};

/// The tensors of one variable.
struct NamedMemory {
  std::string name;
  std::vector<NamedTensor> tensors;
};

struct MemoryOptions : InspectOptionsOf<MemoryOptions> {};

struct MemoryReport : Report {
  std::vector<RankMemory> ranks;  // by rank index
};

/// Prints a column for each rank.
std::ostream& operator<<(std::ostream& out, const MemoryReport& report);
/// Returns the report as the text of a JSON object, with a chart of it (docs/events.md).
std::string report_data(const MemoryReport& report);

/// Collective over the options' ranks, over the inspectors' own connections. Copies no tensor, and waits for no device.
/// Notes, on devices: a rank whose tensors take more than those of the others, memory that is free in split blocks,
/// other programs on a rank's GPU (inspectors/memory/findings.h has the limits). Throws dist::ArgumentError for ranks
/// that do not exist.
MemoryReport memory(const std::vector<NamedMemory>& named = {}, const MemoryOptions& options = {});

/// During its lifetime counts LibTorch's allocations on the thread that made it, and on threads that work for it
/// (backward). CPU allocations come from LibTorch's memory reports, so they are not counted under a profiler that uses
/// these; blocks that were allocated before are not counted when they are freed. One at a time per thread: throws
/// lockstep::Error for a second one.
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
/// Returns the counts of the thread's watch; nothing without one.
std::optional<WatchedMemory> watched_memory();
/// Watches on this thread until it is turned off: for sessions, without a variable.
void set_memory_watch(bool on);

namespace detail {

/// Whether describe_any() supports T and may find tensors in it.
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

void add_gradients(NamedMemory& memory, const torch::OrderedDict<std::string, at::Tensor>& parameters);
void add_gradient(NamedMemory& memory, std::string name, const at::Tensor& parameter);
/// Adds what a wrapper reduces gradients in. With gradient_as_bucket_view that is the gradients' own memory.
void add_buckets(NamedMemory& memory, const ddp::DistributedModule& wrapper);

}  // namespace detail

/// Returns the tensors of a module, a wrapper, an optimizer, a tensor or a container of these; none of anything else.
/// Local, copies none.
template <typename T>
NamedMemory named_memory(std::string name, const T& object) {
  NamedMemory memory{std::move(name), {}};
  if constexpr (detail::has_tensors<T>()) {
    for (Item& item : subject_of(object, memory.name).items)
      if (item.tensor.defined())
        memory.tensors.push_back({std::string(to_string(item.kind)), std::move(item.tensor), std::move(item.name)});
    if constexpr (std::derived_from<T, ddp::DistributedModule> || std::derived_from<T, torch::nn::Module>)
      detail::add_gradients(memory, object.named_parameters());
    else if constexpr (detail::Holder<T>)
      detail::add_gradients(memory, object.ptr()->named_parameters());
    else if constexpr (std::derived_from<T, at::Tensor>)
      detail::add_gradient(memory, "", object);
    if constexpr (std::derived_from<T, ddp::DistributedModule>) detail::add_buckets(memory, object);
  }
  return memory;
}

/// Tensors of one variable and kind, of which each storage is counted once, for the first variable that has it.
struct MemoryHolder {
  std::string name, kind;  // "net", "parameter"
  int64_t tensors = 0, bytes = 0;
  std::string largest;  // "fc1.weight [4096, 1024]"; empty for a single tensor without a name
  int64_t largest_bytes = 0;
};

struct OutOfMemoryReport {
  std::string device;  // "cuda:0"
  std::vector<MemoryHolder> holders;  // the most bytes first
  std::optional<DeviceMemory> memory;  // unset for the CPU
  int64_t pid = 0;
};

std::ostream& operator<<(std::ostream& out, const OutOfMemoryReport& report);

/// Reports on `device`. Local: other ranks may be waiting in a collective. Copies no tensor, and waits for no device.
/// Memory that was freed since the failure, such as that of a function's variables, is not seen, and the report says
/// how much more was in use at the peak.
OutOfMemoryReport out_of_memory(const std::vector<NamedMemory>& named, c10::Device device);
/// Reports on the device that this process uses: the accelerator's current one, or the CPU.
OutOfMemoryReport out_of_memory(const std::vector<NamedMemory>& named);

}  // namespace lockstep::inspect
